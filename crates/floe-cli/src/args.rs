//! The command line, as types. docs/interface.md is its reference.

mod access_log;
mod bench;
mod gc_roots;
mod log;
mod manual;
mod serve;
mod store_files;
mod timeout;

use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

pub(crate) use access_log::AccessLogFormat;
pub(crate) use bench::{BenchCommand, BenchCopyArgs};
pub(crate) use gc_roots::GcRootArgs;
pub(crate) use log::{LogArgs, LogFormat, TraceArgs};
pub(crate) use manual::{CompletionsArgs, ManArgs};
pub(crate) use serve::{CompressMode, ServeArgs};
pub(crate) use store_files::StoreFileArgs;
pub(crate) use timeout::{parse_seconds, parse_timeout};

/// Moves Nix closures, fast and safely, without needing Nix.
#[derive(Debug, Parser)]
#[command(name = "floe", version, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) log: LogArgs,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Install the closures of store paths from binary caches
    Install(InstallArgs),
    /// Copy closures between stores and binary caches
    Copy(CopyArgs),
    /// Check a store: contents against hashes, database against disk
    Verify(VerifyArgs),
    /// Show what a store or cache knows of paths
    Info(InfoArgs),
    /// Show the settings of nix.conf that floe knows, and where their values come from
    Config(ConfigArgs),
    /// Serve a live store as a binary cache over HTTP
    Serve(Box<ServeArgs>),
    /// Make and convert the keys that sign binary caches
    Key {
        #[command(subcommand)]
        command: KeyCommand,
    },
    /// Time programs side by side
    Bench {
        #[command(subcommand)]
        command: BenchCommand,
    },
    /// Print a script that completes the command line in a shell
    Completions(CompletionsArgs),
    /// Print the manual page, or write those of all commands into a directory
    Man(ManArgs),
    /// Publish floe itself, install it elsewhere, verify it and run it: everything in one go
    Demo(DemoArgs),
}

impl Cli {
    /// How stderr looks. `floe serve` gives its own option of that name, for requests, so there it
    /// stands before the command.
    pub(crate) fn log_format(&self) -> LogFormat {
        let log = match &self.command {
            Command::Install(args) => args.log,
            Command::Copy(args) => args.log,
            Command::Verify(args) => args.log,
            Command::Info(args) => args.log,
            _ => LogArgs::default(),
        };
        let asked = log.log_format.or(self.log.log_format);
        asked.unwrap_or(LogFormat::Text)
    }
}

#[derive(Debug, Args)]
pub(crate) struct InstallArgs {
    /// A binary cache or store to fetch from; repeat for several, asked in this order
    /// [default: the substituters of nix.conf, else https://cache.nixos.org]
    #[arg(long, value_name = "URL")]
    pub(crate) from: Vec<String>,
    /// Install into the store below this directory (DIR/nix/store)
    #[arg(long, value_name = "DIR", conflicts_with = "to")]
    pub(crate) root: Option<PathBuf>,
    /// Install into this store: a directory, local?root=DIR, or auto
    #[arg(long, value_name = "STORE")]
    pub(crate) to: Option<String>,
    /// The store directory that the paths name, for caches built for another prefix
    #[arg(long, value_name = "DIR")]
    pub(crate) store_dir: Option<String>,
    #[command(flatten)]
    pub(crate) trust: TrustArgs,
    #[command(flatten)]
    pub(crate) options: OptionArgs,
    #[command(flatten)]
    pub(crate) store_files: StoreFileArgs,
    #[command(flatten)]
    pub(crate) gc_roots: GcRootArgs,
    #[command(flatten)]
    pub(crate) trace: TraceArgs,
    #[command(flatten)]
    pub(crate) log: LogArgs,
    #[command(flatten)]
    pub(crate) transfer: TransferArgs,
    /// Full store paths, base names or hash parts
    #[arg(required = true, value_name = "PATH")]
    pub(crate) paths: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct CopyArgs {
    /// The store or cache to copy from
    #[arg(
        long,
        value_name = "STORE|URL",
        required_unless_present = "to",
        default_value = "auto"
    )]
    pub(crate) from: String,
    /// The store or cache to copy to, such as file:///srv/cache?compression=zstd&secret-key=FILE
    #[arg(long, value_name = "STORE|URL", default_value = "auto")]
    pub(crate) to: String,
    /// The store directory that the paths name
    #[arg(long, value_name = "DIR")]
    pub(crate) store_dir: Option<String>,
    #[command(flatten)]
    pub(crate) trust: TrustArgs,
    #[command(flatten)]
    pub(crate) options: OptionArgs,
    #[command(flatten)]
    pub(crate) store_files: StoreFileArgs,
    #[command(flatten)]
    pub(crate) gc_roots: GcRootArgs,
    #[command(flatten)]
    pub(crate) trace: TraceArgs,
    #[command(flatten)]
    pub(crate) log: LogArgs,
    #[command(flatten)]
    pub(crate) transfer: TransferArgs,
    /// Copy every path of the source
    #[arg(long, conflicts_with = "paths")]
    pub(crate) all: bool,
    /// Full store paths, base names or hash parts
    #[arg(required_unless_present = "all", value_name = "PATH")]
    pub(crate) paths: Vec<String>,
}

/// Whose signatures count.
#[derive(Debug, Args)]
pub(crate) struct TrustArgs {
    /// Trust these keys instead of the configured ones, separated by spaces
    #[arg(long, value_name = "NAME:KEY …")]
    pub(crate) trusted_public_keys: Option<String>,
    /// Trust this key instead of the configured ones; may be repeated
    #[arg(long, value_name = "NAME:KEY")]
    pub(crate) trusted_public_key: Vec<String>,
    /// Trust these keys besides the others, separated by spaces
    #[arg(long, value_name = "NAME:KEY …")]
    pub(crate) extra_trusted_public_keys: Vec<String>,
    /// Accept paths that nobody trusted has signed
    #[arg(long)]
    pub(crate) no_check_sigs: bool,
}

/// Settings on the command line.
#[derive(Debug, Args)]
pub(crate) struct OptionArgs {
    /// Set what nix.conf calls NAME, over all files and the environment; may be repeated
    #[arg(long, num_args = 2, value_names = ["NAME", "VALUE"])]
    option: Vec<String>,
}

impl OptionArgs {
    /// Names and values, in the order in which they were given.
    pub(crate) fn pairs(&self) -> Vec<(&str, &str)> {
        let (pairs, _) = self.option.as_chunks();
        pairs
            .iter()
            .map(|[name, value]| (&**name, &**value))
            .collect()
    }
}

/// How the work is done and shown.
#[derive(Debug, Args)]
pub(crate) struct TransferArgs {
    /// How many paths are unpacked at once [default: what suits the processor]
    #[arg(long, value_name = "N")]
    pub(crate) jobs: Option<NonZeroUsize>,
    /// Show what would be fetched, and fetch nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Begin even where the target's file system has no room for all of it
    #[arg(long)]
    pub(crate) no_check_space: bool,
    /// Print the result as one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct VerifyArgs {
    /// The store below this directory
    #[arg(long, value_name = "DIR", conflicts_with = "store")]
    pub(crate) root: Option<PathBuf>,
    /// The store: a directory, local?root=DIR, or auto
    #[arg(long, value_name = "STORE")]
    pub(crate) store: Option<String>,
    /// The store directory that the paths name
    #[arg(long, value_name = "DIR")]
    pub(crate) store_dir: Option<String>,
    /// How many paths are hashed at once [default: what suits the processor]
    #[arg(long, value_name = "N")]
    pub(crate) jobs: Option<NonZeroUsize>,
    /// Print the result as one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) log: LogArgs,
    /// Check these paths only
    #[arg(value_name = "PATH")]
    pub(crate) paths: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct InfoArgs {
    /// The store or cache to ask
    #[arg(long, value_name = "URL|STORE", default_value = "auto")]
    pub(crate) from: String,
    /// The store directory that the paths name
    #[arg(long, value_name = "DIR")]
    pub(crate) store_dir: Option<String>,
    #[command(flatten)]
    pub(crate) options: OptionArgs,
    /// Show the whole closures
    #[arg(short, long)]
    pub(crate) recursive: bool,
    /// Print what `nix path-info --json` would
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) log: LogArgs,
    /// Full store paths, base names or hash parts
    #[arg(required = true, value_name = "PATH")]
    pub(crate) paths: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct ConfigArgs {
    #[command(flatten)]
    pub(crate) options: OptionArgs,
    /// Print the result as one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    /// Show these settings only
    #[arg(value_name = "NAME")]
    pub(crate) names: Vec<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum KeyCommand {
    /// Print a new secret key; keep it in a file that only its owner may read
    Generate {
        /// The name of the key, such as cache.example.org-1
        name: String,
    },
    /// Read a secret key from stdin and print the public key that belongs to it
    Public,
}

#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// Keep everything in this directory, which must not exist yet
    #[arg(long, value_name = "DIR")]
    pub(crate) keep: Option<PathBuf>,
}
