//! `nix-store --read-log`: the logs of builds, which Nix has left beside the store.

use std::io;

use anyhow::bail;
use floe_config::{StoreFlags, build_log_dir};
use floe_transfer::open_build_log;

use super::args::NixStoreArgs;
use super::paths::Paths;
use crate::options;
use crate::store_choice::LocalStore;

pub(super) fn run(args: &NixStoreArgs) -> anyhow::Result<()> {
    let store = LocalStore::of(&args.local, &args.options)?;
    let flags = StoreFlags {
        root: args.local.root.as_deref(),
        store: args.local.store.as_deref(),
        ..StoreFlags::default()
    };
    let log_dir = build_log_dir(&store.layout, &flags, &options::environment())?;
    let reader = store.open()?;
    for path in Paths::read(args, &store)?.into_paths()? {
        let derivation = if path.is_derivation() {
            Some(path.clone())
        } else {
            reader.path_info(&path)?.and_then(|info| info.deriver)
        };
        let log = match derivation {
            Some(derivation) => open_build_log(&log_dir, &derivation)?,
            None => None,
        };
        let full = store.layout.store_dir.full_path(&path);
        let Some(mut log) = log else {
            bail!("build log of derivation '{full}' is not available");
        };
        io::copy(&mut log, &mut io::stdout().lock())?;
    }
    Ok(())
}
