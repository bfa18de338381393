//! The paths that a build would fetch.

use std::collections::{BTreeMap, BTreeSet};

use floe_format::StorePath;
use floe_wire::worker::MissingPaths;

use crate::derivations::{Wanted, select_outputs};
use crate::error::HostError;
use crate::hosted_store::HostedStore;

/// Returns what [`crate::realise`] would fetch for these texts, and what would have to be built.
///
/// Errors: [`HostError::Refused`], those of the substituters and of the store.
pub fn find_missing(store: &HostedStore, texts: &[String]) -> Result<MissingPaths, HostError> {
    let parsed = texts
        .iter()
        .map(|text| Wanted::parse_legacy(text, store.store_dir()));
    query_missing(store, parsed.collect::<Result<_, _>>()?)
}

/// Returns what a build would do. A derivation whose outputs substituters have is not built.
///
/// Errors: those of the substituters and of the store.
pub(crate) fn query_missing(
    store: &HostedStore,
    wanted_paths: Vec<Wanted>,
) -> Result<MissingPaths, HostError> {
    let mut missing = MissingPaths::default();
    let mut wanted: BTreeMap<StorePath, Option<StorePath>> = BTreeMap::new();
    for Wanted { path, outputs } in wanted_paths {
        match outputs {
            None => {
                wanted.insert(path, None);
            }
            Some(names) if store.reader().is_valid(&path)? => {
                for output in select_outputs(store, &path, &names)?.into_values() {
                    match output {
                        Some(output) => {
                            wanted.insert(output, Some(path.clone()));
                        }
                        None => {
                            missing.will_build.insert(path.clone());
                        }
                    }
                }
            }
            // A realisation fetches the derivation first.
            Some(_) => {
                wanted.insert(path, None);
            }
        }
    }
    let mut paths = Vec::new();
    for path in wanted.keys() {
        if !store.reader().is_valid(path)? {
            paths.push(path.clone());
        }
    }
    let found = store.query_substituters(&paths, true)?;
    let known: BTreeSet<&StorePath> = found.iter().map(|narinfo| &narinfo.info.path).collect();
    for path in paths.iter().filter(|path| !known.contains(path)) {
        match &wanted[path] {
            Some(derivation) => missing.will_build.insert(derivation.clone()),
            None => missing.unknown.insert(path.clone()),
        };
    }
    for narinfo in &found {
        if !store.reader().is_valid(&narinfo.info.path)? {
            missing.will_substitute.insert(narinfo.info.path.clone());
            missing.download_size += narinfo.file_size.unwrap_or_default();
            missing.nar_size += narinfo.info.nar_size;
        }
    }
    Ok(missing)
}
