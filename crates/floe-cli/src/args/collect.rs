//! The arguments of the commands that free space: `floe gc`, `delete` and `optimise`.

use std::num::NonZeroUsize;

use clap::{ArgGroup, Args};
use floe_config::ByteSize;

use super::{StoreQueryArgs, parse_bytes, parse_count};

#[derive(Debug, Args)]
#[command(group = ArgGroup::new("shown").args(["print_roots", "print_live", "print_dead"]))]
pub(crate) struct GcArgs {
    #[command(flatten)]
    pub(crate) store: StoreQueryArgs,
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
    /// First delete the generations of your own profiles that were not in use within this time,
    /// such as 30d
    #[arg(long, value_name = "TIME")]
    pub(crate) delete_older_than: Option<String>,
    /// First delete old generations of your own profiles, and keep this many of each; with
    /// --delete-older-than, keep at least this many
    #[arg(long, value_name = "N", value_parser = parse_count)]
    pub(crate) keep_generations: Option<NonZeroUsize>,
}

#[derive(Debug, Args)]
pub(crate) struct OptimiseArgs {
    #[command(flatten)]
    pub(crate) store: StoreQueryArgs,
    /// Show how much space equal files would save, and change nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Read at most this many paths at once [default: chosen for the processor]
    #[arg(long, value_name = "N", value_parser = parse_count)]
    pub(crate) jobs: Option<NonZeroUsize>,
}

#[derive(Debug, Args)]
pub(crate) struct DeleteArgs {
    #[command(flatten)]
    pub(crate) store: StoreQueryArgs,
    /// Show what would be deleted, and delete nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Delete also the closures of the paths
    #[arg(short, long)]
    pub(crate) recursive: bool,
    /// Leave the paths that are alive, and delete the others
    #[arg(long)]
    pub(crate) skip_alive: bool,
    /// Delete also the paths that refer to the paths
    #[arg(long)]
    pub(crate) also_referrers: bool,
    /// Delete paths even if roots keep them; the roots then point to nothing
    #[arg(long)]
    pub(crate) ignore_liveness: bool,
    /// Store paths, hash parts, or links to store paths
    #[arg(required = true, value_name = "PATH")]
    pub(crate) paths: Vec<String>,
}
