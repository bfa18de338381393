//! What an install or copy leaves behind besides paths: links to them.

use std::path::PathBuf;

use clap::Args;

/// Links that keep what was moved from being collected.
#[derive(Debug, Default, Args)]
pub(crate) struct GcRootArgs {
    /// Make this a link to the path and a garbage-collector root; of several paths, the second has
    /// LINK-1, and so on
    #[arg(long, short, value_name = "LINK")]
    pub(crate) out_link: Option<PathBuf>,
    /// Make the path the newest generation of this profile
    #[arg(long, value_name = "LINK")]
    pub(crate) profile: Option<PathBuf>,
}
