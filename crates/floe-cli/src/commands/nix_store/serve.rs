//! `nix-store --serve`: the store for a client that uses `ssh://`.

use anyhow::bail;
use floe_config::StoreAccess;

use super::args::NixStoreArgs;
use crate::exit::UsageError;
use crate::hosting;
use crate::options::Settings;

pub(super) fn run(args: &NixStoreArgs) -> anyhow::Result<()> {
    let settings = Settings::load(&args.options, None)?;
    let access = if args.write {
        StoreAccess::Write
    } else {
        StoreAccess::Read
    };
    let store = settings.store(args.local.choice(), access)?;
    if store.facts().daemon_socket.is_some() {
        bail!(UsageError(
            "cannot write the store of another user over ssh://: use ssh-ng://, which floe \
             forwards to the daemon of this machine"
                .into()
        ));
    }
    let store = hosting::open(&store, &settings, args.write)?;
    let (input, output) = hosting::take_standard_streams()?;
    // The protocol has no messages: the client shows what this process prints, and may end at once
    // when a stream ends. So they stay open until the process has printed its error.
    std::mem::forget((input.try_clone()?, output.try_clone()?));
    Ok(floe_daemon::serve(&store, input, output)?)
}
