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

/// Fetches what some texts name, unless it is valid: `PATH`, `DERIVATION!OUTPUT,…`, or a derivation
/// for all of its outputs. Returns the outputs of each by name; none for a path.
///
/// Errors: [`HostError::CannotBuild`], [`HostError::Refused`], those of the substituters and of the
/// store.
pub fn realise(
    store: &HostedStore,
    texts: &[String],
) -> Result<Vec<BTreeMap<String, StorePath>>, HostError> {
    let parsed = texts
        .iter()
        .map(|text| Wanted::parse_legacy(text, store.store_dir()));
    let wanted: Vec<Wanted> = parsed.collect::<Result<_, _>>()?;
    let fetched = Fetched::fetch(store, &wanted)?;
    wanted
        .iter()
        .map(|wanted| fetched.outputs(wanted))
        .collect()
}

/// Some wanted paths after the substituters were asked, once for all of them.
pub(crate) struct Fetched<'s> {
    store: &'s HostedStore,
    /// Why substituters failed.
    failure: Option<String>,
}

impl<'s> Fetched<'s> {
    /// Fetches the paths and outputs that are missing, as far as substituters have them.
    ///
    /// Errors: those of the store.
    pub(crate) fn fetch(
        store: &'s HostedStore,
        wanted: &[Wanted],
    ) -> Result<Fetched<'s>, HostError> {
        let mut fetched = Fetched {
            store,
            failure: None,
        };
        fetched.ensure(wanted.iter().map(|wanted| wanted.path.clone()).collect())?;
        let mut outputs = BTreeSet::new();
        for wanted in wanted {
            store.check_cancelled()?;
            if let Some(names) = &wanted.outputs
                && store.reader().is_valid(&wanted.path)?
                // The same derivation fails again when its outputs are wanted.
                && let Ok(selected) = select_outputs(store, &wanted.path, names)
            {
                outputs.extend(selected.into_values().flatten());
            }
        }
        fetched.ensure(outputs)?;
        Ok(fetched)
    }

    fn ensure(&mut self, paths: BTreeSet<StorePath>) -> Result<(), HostError> {
        match self.store.ensure(&paths) {
            Err(HostError::Substitute(reason)) => {
                self.failure.get_or_insert(reason);
                Ok(())
            }
            ensured => ensured,
        }
    }

    /// Returns the valid outputs of a derivation by name; none for a path.
    ///
    /// Errors: [`HostError::CannotBuild`], [`HostError::Refused`], [`HostError::Substitute`], and
    /// those of the store.
    pub(crate) fn outputs(
        &self,
        wanted: &Wanted,
    ) -> Result<BTreeMap<String, StorePath>, HostError> {
        let store = self.store;
        store.check_cancelled()?;
        let shown = store.store_dir().full_path(&wanted.path);
        let is_valid = store.reader().is_valid(&wanted.path)?;
        let Some(names) = &wanted.outputs else {
            return match &self.failure {
                _ if is_valid => Ok(BTreeMap::new()),
                Some(reason) => Err(HostError::Substitute(reason.clone())),
                None => Err(HostError::Refused(format!(
                    "cannot fetch {shown}: no substituter of this machine has it"
                ))),
            };
        };
        if !is_valid {
            return Err(HostError::CannotBuild(shown));
        }
        let mut outputs = BTreeMap::new();
        for (name, path) in select_outputs(store, &wanted.path, names)? {
            match path {
                Some(path) if store.reader().is_valid(&path)? => outputs.insert(name, path),
                _ => return Err(HostError::CannotBuild(shown)),
            };
        }
        Ok(outputs)
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
/// derivation whose inputs the store does not have. `cache` has the hashes of this store.
///
/// Errors: those of the store.
pub(crate) fn realisations(
    store: &HostedStore,
    path: &StorePath,
    outputs: &BTreeMap<String, StorePath>,
    cache: &mut DerivationHashCache,
) -> Result<BTreeMap<String, StorePath>, HostError> {
    let reader = store.reader();
    let mut read = |path: &StorePath| {
        let unreadable = |error: floe_store::StoreError| DerivationError::Read {
            path: path.clone(),
            reason: error.to_string(),
        };
        reader.derivation(path).map_err(unreadable)
    };
    let derivation = reader.derivation(path)?;
    let hashes = derivation.output_hashes(store.store_dir(), name_of(path)?, cache, &mut read);
    // A closure need not have the inputs of its derivations.
    let hashes = hashes.unwrap_or_default();
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
