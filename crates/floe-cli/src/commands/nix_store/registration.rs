//! `nix-store --dump-db`, `--load-db` and `--register-validity`: the rows of paths as text.

use std::io::Read as _;

use anyhow::{Context as _, anyhow, bail};
use floe_format::ValidityRegistration;
use floe_format::validity_registration::{NarHashes, REGISTRATIONS_LEN_MAX};
use floe_store::{ExistingTrees, StoreWriter};
use floe_transfer::Cancel;

use super::args::NixStoreArgs;
use super::paths::{Paths, not_valid};
use crate::stdout::print;
use crate::store_choice::LocalStore;

/// Prints rows.
pub(super) fn dump(args: &NixStoreArgs) -> anyhow::Result<()> {
    let store = LocalStore::of(&args.local, &args.options)?;
    let reader = store.open()?;
    let dir = &store.layout.store_dir;
    let mut paths = Paths::read(args, &store)?.into_paths()?;
    if args.paths.is_empty() && !args.stdin {
        paths = reader.readable_paths()?;
    }
    for path in &paths {
        let info = reader.path_info(path)?;
        let info = info.ok_or_else(|| not_valid(&dir.full_path(path)))?;
        print(info.to_registration(dir).trim_end())?;
    }
    Ok(())
}

/// Registers the paths that `--dump-db` has printed. The trees stay as they are, as from Nix: they
/// may be on a read-only file system.
pub(super) fn load(args: &NixStoreArgs) -> anyhow::Result<()> {
    let trees = ExistingTrees {
        reregister: true,
        canonicalise: false,
    };
    register_input(args, (NarHashes::Given, trees), "--load-db")
}

pub(super) fn register(args: &NixStoreArgs) -> anyhow::Result<()> {
    let hashes = if args.hash_given {
        NarHashes::Given
    } else {
        NarHashes::Absent
    };
    let trees = ExistingTrees {
        reregister: args.reregister,
        canonicalise: true,
    };
    register_input(args, (hashes, trees), "--register-validity")
}

fn register_input(
    args: &NixStoreArgs,
    (hashes, trees): (NarHashes, ExistingTrees),
    operation: &str,
) -> anyhow::Result<()> {
    if let Some(path) = args.paths.first() {
        bail!("cannot register {path}: {operation} takes no paths; write rows to its stdin");
    }
    let store = LocalStore::of(&args.local, &args.options)?;
    let mut text = Vec::new();
    let mut input = std::io::stdin()
        .lock()
        .take(REGISTRATIONS_LEN_MAX as u64 + 1);
    let read = input.read_to_end(&mut text);
    read.context("cannot read the rows of paths from stdin")?;
    let rows = ValidityRegistration::parse_all(&text, hashes, &store.layout.store_dir);
    let rows =
        rows.map_err(|error| anyhow!("cannot read the rows of paths from stdin: {error}"))?;
    store.prepare_writing()?;
    let options = store.settings.write_options(&Cancel::default())?;
    let writer = StoreWriter::open_with(store.layout.clone(), &options)?;
    Ok(writer.register_existing(rows, trees)?)
}
