//! The arguments of `floe nix`.

use clap::{ArgAction, Args, Subcommand};
use floe_format::JsonFormat;

use crate::args::{
    ColumnArgs, LocalStoreArgs, LogArgs, OptionArgs, OutputArgs, PathArgs, json_format,
};

/// Commands of `nix`.
#[derive(Debug, Subcommand)]
pub(crate) enum NixCommand {
    /// Print store paths with their sizes, signatures or metadata, as nix path-info does
    #[command(disable_help_flag = true)]
    PathInfo(PathInfoArgs),
    /// Tell whether a store can be used, as nix store info and nix store ping do
    StoreInfo(StoreInfoArgs),
    /// Write the NAR of a store path to standard output, as nix store dump-path does
    StoreDumpPath(DumpPathArgs),
    /// Print settings and their values, as nix config show does
    ConfigShow(ConfigShowArgs),
}

/// Arguments of `floe nix path-info`.
#[derive(Debug, Args)]
pub(crate) struct PathInfoArgs {
    /// Print whole closures
    #[arg(long, short)]
    pub(super) recursive: bool,
    #[command(flatten)]
    pub(super) columns: ColumnArgs,
    /// Print one JSON object
    #[arg(long)]
    pub(super) json: bool,
    /// The version of the JSON object [default: 1]
    #[arg(long, value_name = "VERSION", value_parser = json_format())]
    pub(super) json_format: Option<JsonFormat>,
    /// Print help
    #[arg(long, action = ArgAction::Help)]
    help: Option<bool>,
    #[command(flatten)]
    pub(super) paths: PathArgs,
    #[command(flatten)]
    pub(super) local: LocalStoreArgs,
    #[command(flatten)]
    pub(super) options: OptionArgs,
    #[command(flatten)]
    log: LogArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// Arguments of `floe nix store-info`.
#[derive(Debug, Args)]
pub(crate) struct StoreInfoArgs {
    /// Print one JSON object
    #[arg(long)]
    pub(super) json: bool,
    #[command(flatten)]
    pub(super) local: LocalStoreArgs,
    #[command(flatten)]
    pub(super) options: OptionArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// Arguments of `floe nix store-dump-path`.
#[derive(Debug, Args)]
pub(crate) struct DumpPathArgs {
    /// The store path
    #[arg(value_name = "PATH")]
    pub(super) path: String,
    #[command(flatten)]
    pub(super) local: LocalStoreArgs,
    #[command(flatten)]
    pub(super) options: OptionArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// Arguments of `floe nix config-show`.
#[derive(Debug, Args)]
pub(crate) struct ConfigShowArgs {
    /// Print one JSON object
    #[arg(long, conflicts_with = "name")]
    pub(super) json: bool,
    /// Print only the value of this setting
    #[arg(value_name = "NAME")]
    pub(super) name: Option<String>,
    #[command(flatten)]
    pub(super) options: OptionArgs,
}
