//! The arguments of `floe roots`.

use clap::Args;
use clap_complete::engine::ArgValueCompleter;

use crate::args::StoreQueryArgs;
use crate::completions;

#[derive(Debug, Args)]
pub(crate) struct RootsArgs {
    /// Show how the roots lead to this path; may be repeated
    #[arg(add = ArgValueCompleter::new(completions::paths), long, value_name = "PATH")]
    pub(crate) why: Vec<String>,
    #[command(flatten)]
    pub(crate) store: StoreQueryArgs,
}
