//! The arguments of `floe profile`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueHint};
use clap_complete::engine::ArgValueCompleter;

use crate::args::StoreQueryArgs;
use crate::completions;

/// The commands of `floe profile`.
#[derive(Debug, Subcommand)]
pub(crate) enum ProfileCommand {
    /// List the generations, as nix-env --list-generations does
    List(ProfileArgs),
    /// Show what each generation changed
    History(ProfileArgs),
    /// Show the versions and sizes that each generation changed in the closure
    DiffClosures(ProfileArgs),
    /// Switch to the generation before the current one
    Rollback {
        /// Switch to this generation
        #[arg(long, value_name = "N")]
        #[arg(add = ArgValueCompleter::new(completions::generations))]
        to: Option<u64>,
        #[command(flatten)]
        profile: ProfileArgs,
    },
    /// Switch to a generation
    Switch {
        /// The number of the generation
        #[arg(value_name = "N")]
        #[arg(add = ArgValueCompleter::new(completions::generations))]
        generation: u64,
        #[command(flatten)]
        profile: ProfileArgs,
    },
    /// Delete all generations except the current one
    WipeHistory {
        /// Delete only those that were not in use within this time, such as 30d
        #[arg(long, value_name = "TIME")]
        older_than: Option<String>,
        /// Show what would be deleted, and delete nothing
        #[arg(long)]
        dry_run: bool,
        #[command(flatten)]
        profile: ProfileArgs,
    },
    /// Delete generations: numbers, old, 30d for those before, or +5 to keep five
    DeleteGenerations {
        /// Show what would be deleted, and delete nothing
        #[arg(long)]
        dry_run: bool,
        /// Numbers, old, a time such as 30d, or +N
        #[arg(required = true, value_name = "SPEC")]
        #[arg(add = ArgValueCompleter::new(completions::generations))]
        spec: Vec<String>,
        #[command(flatten)]
        profile: ProfileArgs,
    },
}

impl ProfileCommand {
    pub(crate) fn args(&self) -> &ProfileArgs {
        match self {
            ProfileCommand::List(profile)
            | ProfileCommand::History(profile)
            | ProfileCommand::DiffClosures(profile)
            | ProfileCommand::Rollback { profile, .. }
            | ProfileCommand::Switch { profile, .. }
            | ProfileCommand::WipeHistory { profile, .. }
            | ProfileCommand::DeleteGenerations { profile, .. } => profile,
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct ProfileArgs {
    /// The profile [default: that of nix-env, which ~/.nix-profile names]
    #[arg(value_hint = ValueHint::AnyPath, long, short, value_name = "LINK")]
    pub(crate) profile: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) store: StoreQueryArgs,
}
