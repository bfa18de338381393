//! `floe nix-daemon`: the place of the Nix daemon, also under its name.

pub(crate) mod args;
mod clients;
mod connected;
mod forward;
pub(crate) mod page;
mod socket;

use floe_config::StoreAccess;
use floe_daemon::WorkerClient;

use crate::hosting;
use crate::options::Settings;
use args::NixDaemonArgs;

pub(crate) fn run(args: &NixDaemonArgs) -> anyhow::Result<()> {
    let settings = Settings::load(&args.options, None)?;
    let store = settings.store(args.local.choice(), StoreAccess::Write)?;
    if !args.stdio {
        return clients::run(&settings, &store);
    }
    if let Some(socket) = store.facts().daemon_socket {
        return forward::forward(socket, hosting::take_standard_streams()?);
    }
    let store = hosting::open(&store, &settings, true)?;
    let streams = hosting::take_standard_streams()?;
    let (dir, is_trusted) = (store.store_dir(), store.is_trusted());
    match WorkerClient::greet(dir, streams, VERSION, is_trusted)? {
        Some(client) => Ok(client.serve(&store)?),
        None => Ok(()),
    }
}

/// The name of the command, as that of Nix.
pub(super) const NAME: &str = "nix-daemon";

/// The version that a client shows.
pub(super) const VERSION: &str = concat!("floe ", env!("CARGO_PKG_VERSION"));
