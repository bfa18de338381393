//! The arguments of `floe run` and `floe shell`.

use std::ffi::OsString;
use std::num::NonZeroUsize;

use clap::Args;
use clap_complete::engine::ArgValueCompleter;

use crate::completions;

use crate::args::{
    LocalStoreArgs, LogArgs, NameArgs, OptionArgs, OutputArgs, TrustArgs, parse_count,
};
use crate::copying::TransferArgs;

/// How paths are found, and installed if necessary.
#[derive(Debug, Args)]
pub(crate) struct ProgramArgs {
    /// Fetch from this binary cache or store what is missing; may be repeated, and is tried in this
    /// order [default: the substituters of nix.conf, else https://cache.nixos.org]
    #[arg(long, value_name = "URL")]
    pub(crate) from: Vec<String>,
    /// Query caches again instead of using their remembered replies
    #[arg(long)]
    pub(crate) refresh: bool,
    /// Unpack at most this many paths at once [default: chosen for the processor]
    #[arg(long, short, value_name = "N", value_parser = parse_count)]
    jobs: Option<NonZeroUsize>,
    #[command(flatten)]
    pub(crate) local: LocalStoreArgs,
    #[command(flatten)]
    pub(crate) names: NameArgs,
    #[command(flatten)]
    trust: TrustArgs,
    #[command(flatten)]
    options: OptionArgs,
    #[command(flatten)]
    pub(crate) log: LogArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

impl ProgramArgs {
    /// Returns the arguments of an install that makes no links.
    pub(crate) fn transfer(&self) -> TransferArgs {
        TransferArgs {
            trust: self.trust.clone(),
            options: self.options.clone(),
            refresh: self.refresh,
            log: self.log,
            output: self.output,
            jobs: self.jobs,
            ..TransferArgs::default()
        }
    }

    pub(crate) fn options(&self) -> &OptionArgs {
        &self.options
    }
}

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// Run this program of the path [default: the only one, else the one with the path's name]
    #[arg(long = "program", value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// A store path, base name, hash part, link such as ./result, name of a present path or of a
    /// package, or the program itself
    #[arg(add = ArgValueCompleter::new(completions::paths), value_name = "PATH")]
    pub(crate) path: String,
    /// The arguments of the program
    #[arg(last = true, value_name = "ARGUMENT")]
    pub(crate) arguments: Vec<OsString>,
    #[command(flatten)]
    pub(crate) program: ProgramArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ShellArgs {
    /// Store paths, base names, hash parts, links such as ./result, or names of present paths or of
    /// packages
    #[arg(add = ArgValueCompleter::new(completions::paths), required = true, value_name = "PATH")]
    pub(crate) paths: Vec<String>,
    /// The command and its arguments [default: $SHELL, else /bin/sh]
    #[arg(last = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
    #[command(flatten)]
    pub(crate) program: ProgramArgs,
}
