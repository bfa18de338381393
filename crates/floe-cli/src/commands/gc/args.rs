//! The arguments of `floe gc`.

use std::num::NonZeroUsize;

use clap::{ArgGroup, Args};
use floe_config::ByteSize;

use crate::args::{StoreQueryArgs, parse_bytes, parse_count};

#[derive(Debug, Args)]
#[command(group = ArgGroup::new("shown").args(["print_roots", "print_live", "print_dead"]))]
pub(crate) struct GcArgs {
    /// Show what would be deleted, with sizes, and delete nothing
    #[arg(long, conflicts_with = "shown")]
    pub(crate) dry_run: bool,
    /// Print the roots, and delete nothing
    #[arg(long, conflicts_with_all = ["delete_older_than", "keep_generations"])]
    pub(crate) print_roots: bool,
    /// Print the paths that would stay, and delete nothing
    #[arg(long)]
    pub(crate) print_live: bool,
    /// Print the paths that would be deleted, and delete nothing
    #[arg(long)]
    pub(crate) print_dead: bool,
    /// Stop when more than this is freed, such as 10G
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    #[arg(conflicts_with_all = ["shown", "dry_run"])]
    pub(crate) max_freed: Option<ByteSize>,
    /// Stop when the file system of the store has this much free space, such as 10G
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    #[arg(conflicts_with_all = ["shown", "dry_run", "max_freed"])]
    pub(crate) free: Option<ByteSize>,
    /// Delete paths that a root names, that are on disk, and that the database does not have;
    /// otherwise such a root stops the collection, because the database may be damaged
    #[arg(long)]
    pub(crate) ignore_unregistered_roots: bool,
    /// Also make the database file as small as its rows allow; SQLite keeps the space of deleted
    /// rows for new ones
    #[arg(long)]
    #[arg(conflicts_with_all = ["shown", "dry_run"])]
    pub(crate) vacuum: bool,
    /// First delete the generations of your own profiles that were not in use within this time,
    /// such as 30d
    #[arg(long, value_name = "TIME")]
    pub(crate) delete_older_than: Option<String>,
    /// First delete old generations of your own profiles, and keep this many of each; with
    /// --delete-older-than, keep at least this many
    #[arg(long, value_name = "N", value_parser = parse_count)]
    pub(crate) keep_generations: Option<NonZeroUsize>,
    /// Whether all generations except the current ones are deleted first, for nix-collect-garbage.
    #[arg(skip)]
    pub(crate) delete_old: bool,
    #[command(flatten)]
    pub(crate) store: StoreQueryArgs,
}
