//! The arguments of `floe pin`, `floe unpin` and `floe pins`.

use std::path::PathBuf;

use clap::{Args, ValueHint};
use clap_complete::engine::ArgValueCompleter;

use crate::args::{LogArgs, OptionArgs, OutputArgs, TrustArgs};
use crate::completions;

#[derive(Debug, Args)]
pub(crate) struct PinArgs {
    /// The name, by which floe install --from URL NAME finds the path
    pub(crate) name: String,
    /// The store path, or a link to it such as ./result
    #[arg(add = ArgValueCompleter::new(completions::paths))]
    pub(crate) path: String,
    /// Write the pin to this cache, such as s3://BUCKET?region=eu-west-1 or file:///DIR [default:
    /// the setting push-to]
    #[arg(long, value_name = "URL")]
    pub(crate) to: Option<String>,
    /// Sign with the key in this file; may be repeated [default: secret-key and secret-keys of the
    /// URL, and secret-key-files of nix.conf]
    #[arg(value_hint = ValueHint::FilePath, long, value_name = "FILE")]
    pub(crate) secret_key_file: Vec<PathBuf>,
    /// Do not ask whether the cache has the path, which another cache or floe serve may have
    #[arg(long)]
    pub(crate) no_check_path: bool,
    /// Write the pin although the cache has another identifier than before
    #[arg(long)]
    pub(crate) allow_downgrade: bool,
    /// Print the pin as one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) options: OptionArgs,
    #[command(flatten)]
    pub(crate) log: LogArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Debug, Args)]
pub(crate) struct UnpinArgs {
    /// The names of the pins
    #[arg(value_name = "NAME", required = true)]
    pub(crate) names: Vec<String>,
    /// Delete the pins in this cache [default: the setting push-to]
    #[arg(long, value_name = "URL")]
    pub(crate) to: Option<String>,
    #[command(flatten)]
    pub(crate) options: OptionArgs,
    #[command(flatten)]
    pub(crate) log: LogArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Debug, Args)]
pub(crate) struct PinsArgs {
    /// Show only these pins. A server without a list needs their names
    #[arg(value_name = "NAME")]
    pub(crate) names: Vec<String>,
    /// Show the pins of this cache [default: the setting push-to]
    #[arg(long, value_name = "URL")]
    pub(crate) from: Option<String>,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) trust: TrustArgs,
    #[command(flatten)]
    pub(crate) options: OptionArgs,
    #[command(flatten)]
    pub(crate) log: LogArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}
