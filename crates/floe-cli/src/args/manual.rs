//! The arguments of `floe completions` and `floe man`.

use std::path::PathBuf;

use clap::Args;
use clap_complete::Shell;

#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// The shell that will run the script
    pub(crate) shell: Shell,
}

#[derive(Debug, Args)]
pub(crate) struct ManArgs {
    /// Write floe.1, floe-install.1 and so on into this directory, such as
    /// ~/.local/share/man/man1
    pub(crate) dir: Option<PathBuf>,
}
