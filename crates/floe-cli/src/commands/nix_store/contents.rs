//! The contents of paths as NARs and exports.

use std::collections::BTreeSet;
use std::io::Write as _;

use anyhow::bail;
use floe_config::StoreAccess;
use floe_daemon::{HostedStore, export as write_export, import as read_import};
use floe_format::StorePath;
use floe_store::tree::{dump_path, restore_path};

use super::args::NixStoreArgs;
use super::paths::Paths;
use crate::hosting;
use crate::stdout::print;
use crate::store_choice::LocalStore;

/// Writes the NAR of a file or directory, in the store or elsewhere.
pub(super) fn dump(args: &NixStoreArgs) -> anyhow::Result<()> {
    let [path] = &*args.paths else {
        bail!("cannot write a NAR: --dump takes exactly one path");
    };
    let mut output = std::io::stdout().lock();
    dump_path::<anyhow::Error>(path.as_ref(), &mut |chunk| Ok(output.write_all(chunk)?))?;
    Ok(output.flush()?)
}

/// Unpacks a NAR outside of the store.
pub(super) fn restore(args: &NixStoreArgs) -> anyhow::Result<()> {
    let [path] = &*args.paths else {
        bail!("cannot unpack a NAR: --restore takes exactly one path");
    };
    Ok(restore_path(path.as_ref(), &mut std::io::stdin().lock())?)
}

pub(super) fn export(args: &NixStoreArgs) -> anyhow::Result<()> {
    let store = LocalStore::of(&args.local, &args.options)?;
    let paths: BTreeSet<StorePath> = Paths::read(args, &store)?
        .into_paths()?
        .into_iter()
        .collect();
    let hosted = hosted(args, &store, StoreAccess::Read)?;
    let (_, output) = hosting::take_standard_streams()?;
    Ok(write_export(&hosted, &paths, output)?)
}

pub(super) fn import(args: &NixStoreArgs) -> anyhow::Result<()> {
    let store = LocalStore::of(&args.local, &args.options)?;
    let hosted = hosted(args, &store, StoreAccess::Write)?;
    let input = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 0)?;
    let dir = &store.layout.store_dir;
    let imported = read_import(&hosted, input)?;
    imported
        .iter()
        .try_for_each(|path| print(dir.full_path(path)))
}

/// Opens the store as for a client with the rights of this user.
pub(super) fn hosted(
    args: &NixStoreArgs,
    store: &LocalStore,
    access: StoreAccess,
) -> anyhow::Result<HostedStore> {
    let may_write = matches!(access, StoreAccess::Write);
    let config = store.settings.store(args.local.choice(), access)?;
    hosting::open(&config, &store.settings, may_write)
}
