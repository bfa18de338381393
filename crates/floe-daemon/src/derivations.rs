//! Paths and outputs that clients want built. floe fetches them, and builds nothing.

use std::collections::{BTreeMap, BTreeSet};

use floe_format::derivation::{DerivationError, DerivationHashCache};
use floe_format::{Derivation, StoreDir, StorePath};

use crate::error::HostError;
use crate::hosted_store::HostedStore;

/// A path, or outputs of a derivation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub(crate) path: StorePath,
    /// `None` if the path itself is wanted.
    pub(crate) outputs: Option<OutputNames>,
}

/// The outputs of a derivation that a client wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum OutputNames {
    All,
    Some(BTreeSet<String>),
}

impl Wanted {
    /// Parses `PATH`, `DERIVATION!*` or `DERIVATION!OUTPUT,…`.
    ///
    /// Errors: [`HostError::Refused`].
    pub(crate) fn parse(text: &str, dir: &StoreDir) -> Result<Wanted, HostError> {
        let (path, names) = match text.split_once('!') {
            Some((path, names)) => (path, Some(names)),
            None => (text, None),
        };
        let path = dir.parse(path);
        let path =
            path.map_err(|error| HostError::Refused(format!("cannot build {text}: {error}")))?;
        let outputs = names.map(|names| match names {
            "*" => OutputNames::All,
            names => OutputNames::Some(names.split(',').map(str::to_owned).collect()),
        });
        Ok(Wanted { path, outputs })
    }

    /// Parses a path as the serve protocol names it, where a derivation stands for all of its
    /// outputs.
    ///
    /// Errors: [`HostError::Refused`].
    pub(crate) fn parse_legacy(text: &str, dir: &StoreDir) -> Result<Wanted, HostError> {
        let mut wanted = Wanted::parse(text, dir)?;
        if wanted.outputs.is_none() && wanted.path.is_derivation() {
            wanted.outputs = Some(OutputNames::All);
        }
        Ok(wanted)
    }
}

/// Fetches what `text` names, unless it is valid: `PATH`, `DERIVATION!OUTPUT,…`, or a derivation
/// for all of its outputs. Returns the outputs by name; none for a path.
///
/// Errors: [`HostError::Refused`] if it would have to be built; those of the substituters and of
/// the store.
pub fn realise_text(
    store: &HostedStore,
    text: &str,
) -> Result<BTreeMap<String, StorePath>, HostError> {
    realise(store, &Wanted::parse_legacy(text, store.store_dir())?)
}

/// Fetches what a client wants, unless it is valid. Returns the outputs by name; none for a path.
///
/// Errors: [`HostError::Refused`] if it would have to be built; those of the substituters and of
/// the store.
pub(crate) fn realise(
    store: &HostedStore,
    wanted: &Wanted,
) -> Result<BTreeMap<String, StorePath>, HostError> {
    let shown = store.store_dir().full_path(&wanted.path);
    let found = store.ensure(&[&wanted.path]);
    let Some(names) = &wanted.outputs else {
        return if found? {
            Ok(BTreeMap::new())
        } else {
            Err(HostError::Refused(format!(
                "cannot fetch {shown}: no substituter of this machine has it"
            )))
        };
    };
    if !store.warn_of_substituters(found)? {
        return Err(HostError::Refused(cannot_build(&shown)));
    }
    let mut outputs = BTreeMap::new();
    for (name, path) in select_outputs(store, &wanted.path, names)? {
        let path = path.ok_or_else(|| HostError::Refused(cannot_build(&shown)))?;
        outputs.insert(name, path);
    }
    let paths: Vec<&StorePath> = outputs.values().collect();
    if store.warn_of_substituters(store.ensure(&paths))? {
        Ok(outputs)
    } else {
        Err(HostError::Refused(cannot_build(&shown)))
    }
}

/// Returns the paths of some outputs of a valid derivation by name, as far as they are known.
///
/// Errors: [`HostError::Refused`] if the derivation does not have an output, or cannot be read.
pub(crate) fn select_outputs(
    store: &HostedStore,
    path: &StorePath,
    names: &OutputNames,
) -> Result<BTreeMap<String, Option<StorePath>>, HostError> {
    let mut outputs = output_paths(store, path)?;
    if let OutputNames::Some(names) = names {
        if let Some(name) = names.iter().find(|name| !outputs.contains_key(*name)) {
            let shown = store.store_dir().full_path(path);
            return Err(HostError::Refused(format!(
                "cannot build {shown}: it has no output {name:?}"
            )));
        }
        outputs.retain(|name, _| names.contains(name));
    }
    Ok(outputs)
}

/// Returns the paths of all outputs of a valid derivation by name, as far as they are known.
///
/// Errors: [`HostError::NotValid`], and [`HostError::Refused`] if it cannot be read.
pub(crate) fn output_paths(
    store: &HostedStore,
    path: &StorePath,
) -> Result<BTreeMap<String, Option<StorePath>>, HostError> {
    store.valid_path_info(path)?;
    let name = name_of(path)?;
    let derivation = store.reader().derivation(path)?;
    Ok(derivation.output_paths(store.store_dir(), name))
}

/// Returns the outputs of a derivation as realisations name them: `HASH!OUTPUT`. Returns none for a
/// derivation whose hash is known only after a build.
///
/// Errors: those of the store.
pub(crate) fn realisations(
    store: &HostedStore,
    path: &StorePath,
    outputs: &BTreeMap<String, StorePath>,
) -> Result<BTreeMap<String, StorePath>, HostError> {
    let reader = store.reader();
    let mut read = |path: &StorePath| {
        let unreadable = |error: floe_store::StoreError| DerivationError::Read {
            path: path.clone(),
            reason: error.to_string(),
        };
        reader.derivation(path).map_err(unreadable)
    };
    let (dir, cache) = (store.store_dir(), &mut DerivationHashCache::default());
    let hashes = reader
        .derivation(path)?
        .output_hashes(dir, name_of(path)?, cache, &mut read);
    // A closure need not have the inputs of its derivations.
    let hashes = hashes.ok().flatten().unwrap_or_default();
    let identified = |(name, path): (&String, &StorePath)| {
        let hash = hashes.get(name)?.to_base16();
        Some((format!("{hash}!{name}"), path.clone()))
    };
    Ok(outputs.iter().filter_map(identified).collect())
}

fn name_of(path: &StorePath) -> Result<&str, HostError> {
    Derivation::name_from_path(path)
        .map_err(|error| HostError::Refused(format!("cannot read {path}: {error}")))
}

/// Whether there are paths, and all of them are valid.
pub(crate) fn are_valid<'a>(
    store: &HostedStore,
    paths: impl Iterator<Item = &'a str>,
) -> Result<bool, HostError> {
    let mut has_any = false;
    for path in paths {
        has_any = true;
        let Ok(path) = store.store_dir().parse(path) else {
            return Ok(false);
        };
        if !store.reader().is_valid(&path)? {
            return Ok(false);
        }
    }
    Ok(has_any)
}

/// The message for a client that wants a build.
pub(crate) fn cannot_build(path: &str) -> String {
    format!(
        "cannot build {path}: this machine has floe, which copies paths and builds none; build it \
         elsewhere, and copy the result"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wanted_paths_are_parsed() {
        let dir = StoreDir::default();
        let drv = "/nix/store/7bw2d1cqdpnxi05lr3s6pmcgl5xazl2c-hello.drv";
        let parse = |suffix: &str| Wanted::parse(&format!("{drv}{suffix}"), &dir).unwrap();
        assert_eq!(parse("").outputs, None);
        assert_eq!(parse("!*").outputs, Some(OutputNames::All));
        let names = ["dev".to_owned(), "out".to_owned()].into();
        assert_eq!(parse("!out,dev").outputs, Some(OutputNames::Some(names)));
        let legacy = Wanted::parse_legacy(drv, &dir).unwrap();
        assert_eq!(legacy.outputs, Some(OutputNames::All));
        let plain = Wanted::parse_legacy(drv.trim_end_matches(".drv"), &dir).unwrap();
        assert_eq!(plain.outputs, None);
        assert!(Wanted::parse("/elsewhere/x!out", &dir).is_err());
    }
}
