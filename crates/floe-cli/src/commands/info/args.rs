//! The arguments of `floe info`.

use clap::{ArgAction, Args};
use floe_format::JsonFormat;

use crate::args::{
    ColumnArgs, LocalStoreArgs, LogArgs, NameArgs, OptionArgs, OutputArgs, PathArgs, SourceArgs,
    json_format,
};

#[derive(Debug, Args)]
pub(crate) struct InfoArgs {
    #[command(flatten)]
    pub(crate) source: SourceArgs,
    /// Show whole closures
    #[arg(short, long)]
    pub(crate) recursive: bool,
    #[command(flatten)]
    pub(crate) columns: ColumnArgs,
    /// Print one JSON object, as `nix path-info --json` does
    #[arg(long)]
    pub(crate) json: bool,
    /// The version of the JSON object, in which missing paths are null and no error
    #[arg(long, requires = "json", value_name = "VERSION", value_parser = json_format())]
    pub(crate) json_format: Option<JsonFormat>,
    /// Print help
    #[arg(long, action = ArgAction::Help)]
    help: Option<bool>,
    #[command(flatten)]
    pub(crate) paths: PathArgs,
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
