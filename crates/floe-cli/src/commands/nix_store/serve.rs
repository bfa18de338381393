//! `nix-store --serve`: the store for a client that uses `ssh://`.

use floe_config::StoreAccess;

use super::args::NixStoreArgs;
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
    let store = hosting::open(&store, &settings, args.write)?;
    let (input, output) = hosting::take_standard_streams()?;
    // The protocol has no messages: the client shows what this process prints, and may end at once
    // when a stream ends. So they stay open until the process has printed its error.
    std::mem::forget((input.try_clone()?, output.try_clone()?));
    Ok(floe_daemon::serve(&store, input, output)?)
}
