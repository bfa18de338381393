//! The store or cache that a command asks for closures.

use clap::Args;

use super::{LocalStoreArgs, LogArgs, NameArgs, OptionArgs, OutputArgs};

/// The store or cache of a query.
#[derive(Debug, Args)]
pub(crate) struct SourceArgs {
    /// Query this store or binary cache [default: the store of --root or --store]
    #[arg(long, value_name = "URL|STORE", conflicts_with_all = ["root", "store"])]
    pub(crate) from: Option<String>,
    /// The store directory in the paths
    #[arg(long, value_name = "DIR")]
    pub(crate) store_dir: Option<String>,
    /// Query caches again instead of using their remembered replies
    #[arg(long)]
    pub(crate) refresh: bool,
}

/// The options of a command that asks a store or cache about paths.
#[derive(Debug, Args)]
pub(crate) struct QueryArgs {
    #[command(flatten)]
    pub(crate) source: SourceArgs,
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

/// The options of a command that looks into closures, beside its paths.
#[derive(Debug, Args)]
pub(crate) struct ClosureArgs {
    /// Print the result as one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) query: QueryArgs,
}
