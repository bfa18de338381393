//! The arguments of `floe push`.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::{Args, ValueHint};
use clap_complete::engine::ArgValueCompleter;

use crate::completions;

use crate::args::{
    LocalStoreArgs, LogArgs, NameArgs, OptionArgs, OutputArgs, PathArgs, parse_count,
};
use crate::copying::TransferArgs;

#[derive(Debug, Args)]
pub(crate) struct PushArgs {
    /// Push to this cache, such as s3://BUCKET?region=eu-west-1 or https://cache.example.org
    /// [default: the setting push-to]
    #[arg(long, value_name = "URL")]
    pub(crate) to: Option<String>,
    /// Sign with the key in this file; may be repeated [default: secret-key and secret-keys of the
    /// URL, else secret-key-files of nix.conf]
    #[arg(value_hint = ValueHint::FilePath, long, value_name = "FILE")]
    pub(crate) secret_key_file: Vec<PathBuf>,
    /// Leave out paths that this cache has, because all clients use it too; may be repeated. PATHs
    /// themselves are always pushed
    #[arg(long, value_name = "URL")]
    pub(crate) skip_upstream: Vec<String>,
    /// Push the build log of each new path too, as far as there is one; `nix log --store URL` shows
    /// it
    #[arg(long)]
    pub(crate) build_logs: bool,
    /// The store directory in the paths
    #[arg(long, value_name = "DIR")]
    pub(crate) store_dir: Option<String>,
    /// Write a timeline of every path to this file, for ui.perfetto.dev or chrome://tracing
    #[arg(value_hint = ValueHint::FilePath, long, value_name = "FILE")]
    pub(crate) trace: Option<PathBuf>,
    /// Print where the time went at the end
    #[arg(long)]
    pub(crate) stats: bool,
    /// Compress at most this many paths at once [default: chosen for the processor]
    #[arg(long, short, value_name = "N", value_parser = parse_count)]
    pub(crate) jobs: Option<NonZeroUsize>,
    /// Read the narinfo of each path that the cache has, compare its NAR by size, and push damaged
    /// paths again; otherwise a list of the cache must look damaged for that
    #[arg(long)]
    pub(crate) check: bool,
    /// Show what would be pushed, and push nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Print the result as one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    /// With paths from stdin: push each as its line arrives, until stdin ends
    #[arg(long, conflicts_with = "dry_run")]
    pub(crate) follow: bool,
    /// Push each path that becomes valid in the store, until SIGINT or SIGTERM
    #[arg(long, conflicts_with_all = ["dry_run", "follow", "stdin", "all"])]
    pub(crate) watch_store: bool,
    /// All paths of the store
    #[arg(long, conflicts_with_all = ["stdin", "paths"])]
    all: bool,
    /// Read paths from stdin too, one in each line, as - among the paths does
    #[arg(long)]
    stdin: bool,
    /// Store paths, base names, hash parts, files in store paths, links such as ./result, or names
    /// of paths in a local store
    #[arg(add = ArgValueCompleter::new(completions::paths), value_name = "PATH")]
    #[arg(required_unless_present_any = ["all", "stdin", "watch_store"])]
    paths: Vec<String>,
    #[command(flatten)]
    pub(crate) names: NameArgs,
    #[command(flatten)]
    pub(crate) local: LocalStoreArgs,
    #[command(flatten)]
    pub(crate) options: OptionArgs,
    #[command(flatten)]
    pub(crate) log: LogArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

impl PushArgs {
    /// Returns the paths.
    pub(crate) fn paths(&self) -> PathArgs {
        PathArgs::new(self.all, self.stdin, self.paths.clone())
    }

    /// Returns how the copy is done and shown.
    pub(crate) fn transfer(&self) -> TransferArgs {
        TransferArgs {
            options: self.options.clone(),
            trace: self.trace.clone(),
            stats: self.stats,
            log: self.log,
            output: self.output,
            jobs: self.jobs,
            dry_run: self.dry_run,
            json: self.json,
            ..TransferArgs::default()
        }
    }
}
