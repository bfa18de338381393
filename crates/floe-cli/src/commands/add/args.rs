//! The arguments of `floe add`.

use std::path::PathBuf;

use clap::{Args, ValueEnum, ValueHint};
use floe_format::HashAlgorithm;
use floe_format::content_address::ContentAddressMethod;

use crate::args::{LocalStoreArgs, LogArgs, OptionArgs, OutputArgs, hash_algorithm};

#[derive(Debug, Args)]
pub(crate) struct AddArgs {
    /// The name of the store path [default: that of the file]
    #[arg(long, short)]
    pub(crate) name: Option<String>,
    /// The contents from which the path follows
    #[arg(long, default_value = "nar")]
    pub(crate) mode: AddMode,
    /// The hash algorithm of the contents
    #[arg(long, value_name = "ALGORITHM", default_value = "sha256")]
    #[arg(value_parser = hash_algorithm())]
    pub(crate) hash_algo: HashAlgorithm,
    /// Add to this store or binary cache [default: the store of --root or --store]
    #[arg(long, value_name = "STORE|URL", conflicts_with_all = ["root", "store"])]
    pub(crate) to: Option<String>,
    /// The store directory in the paths
    #[arg(long, value_name = "DIR")]
    pub(crate) store_dir: Option<String>,
    /// Make LINK a link to the path and a GC root; the second of several paths gets LINK-1, and so
    /// on
    #[arg(value_hint = ValueHint::AnyPath, long, short, value_name = "LINK")]
    pub(crate) out_link: Option<PathBuf>,
    /// Show what would be added, and add nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Print the result as one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    /// Files and directories
    #[arg(value_hint = ValueHint::AnyPath, value_name = "FILE", required = true)]
    pub(crate) files: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) local: LocalStoreArgs,
    #[command(flatten)]
    pub(crate) options: OptionArgs,
    #[command(flatten)]
    pub(crate) log: LogArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// A kind of content address (`ContentAddressMethod`).
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum AddMode {
    /// The NAR of a file or directory
    Nar,
    /// The bytes of a file, as for fixed-output derivations
    Flat,
    /// The bytes of a text file, as for builtins.toFile
    Text,
}

impl AddMode {
    pub(crate) fn method(self) -> ContentAddressMethod {
        match self {
            AddMode::Nar => ContentAddressMethod::NixArchive,
            AddMode::Flat => ContentAddressMethod::Flat,
            AddMode::Text => ContentAddressMethod::Text,
        }
    }
}
