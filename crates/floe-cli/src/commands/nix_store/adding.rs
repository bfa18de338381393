//! `nix-store --add`, `--add-fixed` and `--print-fixed-path`: paths that follow from contents.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context as _, anyhow, bail};
use floe_config::StoreAccess;
use floe_format::content_address::ContentAddressMethod;
use floe_format::{ContentAddress, Hash, HashAlgorithm};

use super::args::NixStoreArgs;
use super::contents::hosted;
use crate::stdout::print;
use crate::store_choice::LocalStore;

pub(super) fn add(args: &NixStoreArgs) -> anyhow::Result<()> {
    let kind = (ContentAddressMethod::NixArchive, HashAlgorithm::Sha256);
    add_files(args, &args.paths, kind)
}

pub(super) fn add_fixed(args: &NixStoreArgs) -> anyhow::Result<()> {
    let Some((algorithm, files)) = args.paths.split_first() else {
        bail!("cannot add files: the first argument of --add-fixed is a hash algorithm");
    };
    add_files(args, files, (method(args), parse_algorithm(algorithm)?))
}

fn add_files(
    args: &NixStoreArgs,
    files: &[String],
    kind: (ContentAddressMethod, HashAlgorithm),
) -> anyhow::Result<()> {
    if files.is_empty() {
        return Ok(());
    }
    let store = LocalStore::of(&args.local, &args.options)?;
    let hosted = hosted(args, &store, StoreAccess::Write)?;
    for file in files {
        let info = floe_daemon::add(&hosted, kind, Path::new(file))?;
        print(store.layout.store_dir.full_path(&info.path))?;
    }
    Ok(())
}

/// Prints a path that nothing in the store need have.
pub(super) fn print_fixed_path(args: &NixStoreArgs) -> anyhow::Result<()> {
    let [algorithm, digest, name] = &*args.paths else {
        bail!("cannot print a path: --print-fixed-path takes a hash algorithm, a hash and a name");
    };
    let hash = Hash::parse_any(digest, Some(parse_algorithm(algorithm)?));
    let ca = ContentAddress {
        method: method(args),
        hash: hash.with_context(|| format!("cannot use the hash {digest}"))?,
    };
    let store = LocalStore::of(&args.local, &args.options)?;
    let dir = &store.layout.store_dir;
    let path = ca.store_path(dir, name, &BTreeSet::new(), false);
    let path = path.with_context(|| format!("cannot use the name {name:?}"))?;
    print(dir.full_path(&path))
}

fn method(args: &NixStoreArgs) -> ContentAddressMethod {
    if args.recursive {
        ContentAddressMethod::NixArchive
    } else {
        ContentAddressMethod::Flat
    }
}

fn parse_algorithm(name: &str) -> anyhow::Result<HashAlgorithm> {
    HashAlgorithm::from_name(name).ok_or_else(|| {
        let known = HashAlgorithm::ALL.map(HashAlgorithm::name).join(", ");
        anyhow!("cannot use the hash algorithm {name:?}: it is unknown; try one of {known}")
    })
}
