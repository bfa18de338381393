//! `floe nix-store`: the operations of nix-store, also under its name.

pub(crate) mod args;
pub(crate) mod page;
mod serve;

use anyhow::bail;

use crate::exit::UsageError;
use args::NixStoreArgs;

pub(crate) fn run(args: &NixStoreArgs) -> anyhow::Result<()> {
    if args.serve {
        return serve::run(args);
    }
    bail!(UsageError(
        "cannot do anything: no operation is named; floe knows --serve of nix-store's".into()
    ))
}

/// The name of the command, as that of Nix.
pub(super) const NAME: &str = "nix-store";
