//! The command line. docs/interface.md describes it.

mod bench;
mod collect;
mod manage;
mod nix_copy_closure;
mod number;
mod output;
mod paths;
mod push;
mod run;
mod timeout;
mod transfer;

use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum, ValueHint};

pub(crate) use bench::{BenchCommand, BenchCopyArgs};
pub(crate) use collect::{DeleteArgs, GcArgs, OptimiseArgs};
pub(crate) use manage::{
    ListArgs, ProfileArgs, ProfileCommand, RootsArgs, StoreQueryArgs, UninstallArgs,
};
pub(crate) use nix_copy_closure::NixCopyClosureArgs;
pub(crate) use number::{parse_bytes, parse_count, parse_number, parse_port};
pub(crate) use output::{OutputArgs, log_format};
pub(crate) use paths::{PathArgs, read_paths};
pub(crate) use push::PushArgs;
pub(crate) use run::{ProgramArgs, RunArgs, ShellArgs};
pub(crate) use timeout::{parse_seconds, parse_timeout};
pub(crate) use transfer::{TransferArgs, TrustArgs};

#[derive(Debug, Args)]
pub(crate) struct InstallArgs {
    /// Fetch from this binary cache or store; may be repeated, and is tried in this order
    /// [default: the substituters of nix.conf, else https://cache.nixos.org]
    #[arg(long, value_name = "URL")]
    pub(crate) from: Vec<String>,
    /// Install into the store below this directory (DIR/nix/store)
    #[arg(long, value_name = "DIR")]
    pub(crate) root: Option<PathBuf>,
    /// Install into this store: a directory, local?root=DIR, or auto
    #[arg(
        long,
        visible_alias = "to",
        value_name = "STORE",
        conflicts_with = "root"
    )]
    pub(crate) store: Option<String>,
    /// The store directory in the paths, for caches of another prefix than /nix/store
    #[arg(long, value_name = "DIR")]
    pub(crate) store_dir: Option<String>,
    /// Hash the valid paths of the closures, and replace those that are damaged
    #[arg(long)]
    pub(crate) repair: bool,
    #[command(flatten)]
    pub(crate) transfer: TransferArgs,
    #[command(flatten)]
    pub(crate) paths: PathArgs,
}

#[derive(Debug, Args)]
pub(crate) struct CopyArgs {
    /// Copy from this store or binary cache [default: the store of --root or --store]
    #[arg(long, value_name = "STORE|URL", required_unless_present = "to")]
    pub(crate) from: Option<String>,
    /// Copy to this store or cache, such as file:///srv/cache?compression=zstd&secret-key=FILE
    /// [default: the store of --root or --store]
    #[arg(long, value_name = "STORE|URL")]
    pub(crate) to: Option<String>,
    #[command(flatten)]
    pub(crate) local: LocalStoreArgs,
    /// The store directory in the paths
    #[arg(long, value_name = "DIR")]
    pub(crate) store_dir: Option<String>,
    #[command(flatten)]
    pub(crate) transfer: TransferArgs,
    /// With paths from stdin: copy each as its line arrives, until stdin ends
    #[arg(long, conflicts_with_all = ["out_link", "profile", "dry_run"])]
    pub(crate) follow: bool,
    /// Let the target, a store behind a Nix daemon, first fetch missing paths from its substituters
    #[arg(short, long)]
    pub(crate) substitute_on_destination: bool,
    #[command(flatten)]
    pub(crate) paths: PathArgs,
}

/// The local store.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Store")]
pub(crate) struct LocalStoreArgs {
    /// The local store is below this directory (DIR/nix/store)
    #[arg(value_hint = ValueHint::DirPath, long, value_name = "DIR", conflicts_with = "store")]
    pub(crate) root: Option<PathBuf>,
    /// The local store: a directory, local?root=DIR, or auto [default: auto]
    #[arg(long, value_name = "STORE")]
    pub(crate) store: Option<String>,
}

/// Settings of nix.conf on the command line.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Configuration")]
pub(crate) struct OptionArgs {
    /// Set the setting NAME of nix.conf, which overrides files and environment; may be repeated
    #[arg(long, num_args = 2, value_names = ["NAME", "VALUE"])]
    option: Vec<String>,
}

impl OptionArgs {
    /// Returns names and values in their order on the command line.
    pub(crate) fn pairs(&self) -> Vec<(&str, &str)> {
        let (pairs, _) = self.option.as_chunks();
        pairs
            .iter()
            .map(|[name, value]| (&**name, &**value))
            .collect()
    }
}

#[derive(Debug, Args)]
pub(crate) struct VerifyArgs {
    /// Check the store below this directory (DIR/nix/store)
    #[arg(long, value_name = "DIR", conflicts_with = "store")]
    pub(crate) root: Option<PathBuf>,
    /// Check this store: a directory, local?root=DIR, auto, or one behind a daemon, such as
    /// ssh-ng://HOST
    #[arg(long, value_name = "STORE")]
    pub(crate) store: Option<String>,
    /// The store directory in the paths
    #[arg(long, value_name = "DIR")]
    pub(crate) store_dir: Option<String>,
    /// Hash at most this many paths at once [default: chosen for the processor]
    #[arg(long, value_name = "N", value_parser = parse_count)]
    pub(crate) jobs: Option<NonZeroUsize>,
    /// Print the result as one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    /// Fetch damaged and missing valid paths again and replace them
    #[arg(long)]
    pub(crate) repair: bool,
    /// With --repair: fetch from this binary cache or store; may be repeated, and is tried in this
    /// order [default: the substituters of nix.conf, else https://cache.nixos.org]
    #[arg(long, value_name = "URL", requires = "repair")]
    pub(crate) from: Vec<String>,
    /// With --repair: query caches again instead of using their remembered replies
    #[arg(long, requires = "repair")]
    pub(crate) refresh: bool,
    #[command(flatten)]
    pub(crate) trust: TrustArgs,
    #[command(flatten)]
    pub(crate) options: OptionArgs,
    #[command(flatten)]
    pub(crate) log: LogArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
    /// Check the paths on stdin, one in each line, as - among the paths does
    #[arg(long)]
    pub(crate) stdin: bool,
    /// Check only these paths
    #[arg(value_name = "PATH")]
    pub(crate) paths: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct InfoArgs {
    /// Query this store or binary cache [default: the store of --root or --store]
    #[arg(long, value_name = "URL|STORE", conflicts_with_all = ["root", "store"])]
    pub(crate) from: Option<String>,
    #[command(flatten)]
    pub(crate) local: LocalStoreArgs,
    /// The store directory in the paths
    #[arg(long, value_name = "DIR")]
    pub(crate) store_dir: Option<String>,
    #[command(flatten)]
    pub(crate) options: OptionArgs,
    /// Query caches again instead of using their remembered replies
    #[arg(long)]
    pub(crate) refresh: bool,
    /// Show whole closures
    #[arg(short, long)]
    pub(crate) recursive: bool,
    /// Print one JSON object, as `nix path-info --json` does
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) log: LogArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
    #[command(flatten)]
    pub(crate) paths: PathArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ConfigArgs {
    #[command(flatten)]
    pub(crate) options: OptionArgs,
    /// Print the result as one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    /// Show only these settings
    #[arg(value_name = "NAME")]
    pub(crate) names: Vec<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum KeyCommand {
    /// Print a new secret key; store it in a file that only its owner can read
    Generate {
        /// The name of the key, such as cache.example.org-1
        name: String,
    },
    /// Read a secret key, and print its public key
    Public {
        /// The file of the secret key; without it, stdin
        file: Option<PathBuf>,
    },
}

/// The format of stderr.
#[derive(Clone, Copy, Debug, Default, Args)]
#[command(next_help_heading = "Output")]
pub(crate) struct LogArgs {
    /// The format of stderr [default: text]
    #[arg(long, value_name = "FORMAT")]
    pub(crate) log_format: Option<LogFormat>,
}

/// `--log-format`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// Lines of text; on a terminal with progress that changes in place
    Text,
    /// One JSON object per line
    Json,
}
