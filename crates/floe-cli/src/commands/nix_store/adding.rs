//! `nix-store --add`, `--add-fixed` and `--print-fixed-path`: paths that follow from contents.

use std::collections::BTreeSet;

use anyhow::{Context as _, anyhow, bail};
use floe_config::StoreAccess;
use floe_copy::FileToAdd;
use floe_format::content_address::ContentAddressMethod;
use floe_format::{ContentAddress, Hash, HashAlgorithm};

use super::args::NixStoreArgs;
use crate::adding;
use crate::options::Settings;
use crate::stdout::print;
use crate::store_choice::LocalStore;
use crate::writable_mount::make_writable;

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
    (method, algorithm): (ContentAddressMethod, HashAlgorithm),
) -> anyhow::Result<()> {
    if files.is_empty() {
        return Ok(());
    }
    let settings = Settings::load(&args.options, None)?;
    let target = settings.store(args.local.choice(), StoreAccess::Write)?;
    let files = files.iter().map(|file| FileToAdd {
        file: file.into(),
        name: None,
        method,
        algorithm,
    });
    let files: Vec<FileToAdd> = files.collect();
    let (mut request, paths) = adding::request(&settings, target, &files)?;
    if let Some(layout) = request.target.layout() {
        make_writable(&layout.real_store_dir)?;
        request.options.optimise = *settings.config.auto_optimise_store.get();
    }
    request.write = settings.write_options(&request.options.cancel)?;
    let open = request.open()?;
    if let Some(error) = open.run()?.failures.into_iter().next() {
        return Err(error.into());
    }
    let dir = open.target.store_dir();
    paths.iter().try_for_each(|path| print(dir.full_path(path)))
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
