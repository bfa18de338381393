//! The options of nix-env.

use std::path::PathBuf;

use clap::{ArgGroup, Args, ValueHint};

use crate::args::StoreQueryArgs;

/// Options of `floe nix-env`, which are those of Nix's command for profiles.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("operation").required(true))]
pub(crate) struct NixEnvArgs {
    /// The profile [default: that which ~/.nix-profile names]
    #[arg(value_hint = ValueHint::AnyPath, long, short, value_name = "LINK")]
    pub(crate) profile: Option<PathBuf>,
    /// Make this path the newest generation, and switch to it
    #[arg(long, value_name = "PATH", group = "operation")]
    pub(crate) set: Option<String>,
    /// Switch to the generation before the current one
    #[arg(long, group = "operation")]
    pub(crate) rollback: bool,
    /// Switch to a generation
    #[arg(long, short = 'G', value_name = "N", group = "operation")]
    pub(crate) switch_generation: Option<u64>,
    /// List the generations
    #[arg(long, group = "operation")]
    pub(crate) list_generations: bool,
    /// Delete generations: numbers, old, 30d for those before, or +5 to keep five
    #[arg(long, value_name = "SPEC", num_args = 1.., group = "operation")]
    pub(crate) delete_generations: Vec<String>,
    /// Show what would be done
    #[arg(long)]
    pub(crate) dry_run: bool,
    #[command(flatten)]
    pub(crate) store: StoreQueryArgs,
}
