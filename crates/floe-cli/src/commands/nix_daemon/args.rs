//! The options of nix-daemon.

use clap::Args;

use crate::args::{LocalStoreArgs, OptionArgs, OutputArgs};

/// Options of `floe nix-daemon`, which are those of Nix's command.
#[derive(Clone, Debug, Args)]
pub(crate) struct NixDaemonArgs {
    /// Serve one client over standard input and output, as ssh-ng:// does. Otherwise listen on the
    /// socket of the daemon
    #[arg(long)]
    pub(crate) stdio: bool,
    #[command(flatten)]
    pub(crate) local: LocalStoreArgs,
    #[command(flatten)]
    pub(crate) options: OptionArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}
