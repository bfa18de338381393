//! The arguments of the commands that list and remove what a store keeps.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueHint};
use clap_complete::engine::ArgValueCompleter;

use super::{LocalStoreArgs, OptionArgs, OutputArgs};
use crate::completions;

/// The local store, and how its contents are shown.
#[derive(Debug, Args)]
pub(crate) struct StoreQueryArgs {
    #[command(flatten)]
    pub(crate) local: LocalStoreArgs,
    #[command(flatten)]
    pub(crate) options: OptionArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
    /// Print the result as one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct RootsArgs {
    #[command(flatten)]
    pub(crate) store: StoreQueryArgs,
    /// Show how the roots lead to this path; may be repeated
    #[arg(add = ArgValueCompleter::new(completions::paths), long, value_name = "PATH")]
    pub(crate) why: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    pub(crate) store: StoreQueryArgs,
    /// Show also the valid paths that no root keeps
    #[arg(long)]
    pub(crate) all: bool,
}

#[derive(Debug, Args)]
pub(crate) struct UninstallArgs {
    #[command(flatten)]
    pub(crate) store: StoreQueryArgs,
    /// Show what would be removed, and remove nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Links, store paths, or the names of paths that a link or a profile keeps
    #[arg(required = true, value_name = "LINK|PATH|NAME")]
    #[arg(add = ArgValueCompleter::new(completions::kept_names))]
    pub(crate) names: Vec<String>,
}

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
        #[command(flatten)]
        profile: ProfileArgs,
        /// Switch to this generation
        #[arg(long, value_name = "N")]
        #[arg(add = ArgValueCompleter::new(completions::generations))]
        to: Option<u64>,
    },
    /// Switch to a generation
    Switch {
        #[command(flatten)]
        profile: ProfileArgs,
        /// The number of the generation
        #[arg(value_name = "N")]
        #[arg(add = ArgValueCompleter::new(completions::generations))]
        generation: u64,
    },
    /// Delete all generations except the current one
    WipeHistory {
        #[command(flatten)]
        profile: ProfileArgs,
        /// Delete only those that were not in use within this time, such as 30d
        #[arg(long, value_name = "TIME")]
        older_than: Option<String>,
        /// Show what would be deleted, and delete nothing
        #[arg(long)]
        dry_run: bool,
    },
    /// Delete generations: numbers, old, 30d for those before, or +5 to keep five
    DeleteGenerations {
        #[command(flatten)]
        profile: ProfileArgs,
        /// Show what would be deleted, and delete nothing
        #[arg(long)]
        dry_run: bool,
        /// Numbers, old, a time such as 30d, or +N
        #[arg(required = true, value_name = "SPEC")]
        #[arg(add = ArgValueCompleter::new(completions::generations))]
        spec: Vec<String>,
    },
}

#[derive(Debug, Args)]
pub(crate) struct ProfileArgs {
    /// The profile [default: that of nix-env, which ~/.nix-profile names]
    #[arg(value_hint = ValueHint::AnyPath, long, short, value_name = "LINK")]
    pub(crate) profile: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) store: StoreQueryArgs,
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
