//! The arguments for links to copied paths.

use std::path::PathBuf;

use clap::Args;

/// Links that keep copied paths from being garbage-collected.
#[derive(Debug, Default, Args)]
pub(crate) struct GcRootArgs {
    /// Make LINK a link to the path and a GC root; the second of several paths gets LINK-1, and so
    /// on
    #[arg(long, short, value_name = "LINK")]
    pub(crate) out_link: Option<PathBuf>,
    /// Make the path the newest generation of this profile
    #[arg(long, value_name = "LINK")]
    pub(crate) profile: Option<PathBuf>,
}
