//! The paths of `nix path-info`, with the replies of a store.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use floe_format::{HashPart, NarInfo, PathInfo, StorePath};
use floe_store::references_first;
use floe_transfer::{Error, PathSpec, Source};

use crate::args::ColumnArgs;

/// The replies of a store about paths.
pub(crate) struct Queried<'a> {
    pub(crate) columns: &'a ColumnArgs,
    /// Whether whole closures are listed.
    pub(crate) recursive: bool,
    pub(crate) source: &'a dyn Source,
    /// Also the closures, if their sizes are wanted.
    pub(crate) found: BTreeMap<StorePath, NarInfo>,
}

impl Queried<'_> {
    /// Returns the requested paths, references first, and those that the store does not have.
    pub(crate) fn listed<'s>(&self, specs: &'s [PathSpec]) -> (Vec<StorePath>, Vec<&'s StorePath>) {
        let by_hash_part: HashMap<HashPart, &StorePath> = self
            .found
            .keys()
            .map(|path| (path.hash_part(), path))
            .collect();
        let (mut paths, mut missing) = (BTreeSet::new(), Vec::new());
        for spec in specs {
            match (by_hash_part.get(&spec.hash_part()), spec) {
                (Some(path), _) => _ = paths.insert((*path).clone()),
                (None, PathSpec::Path(path)) => missing.push(path),
                _ => {}
            }
        }
        if self.recursive {
            paths.extend(self.found.keys().cloned());
        }
        let infos = paths.into_iter().filter_map(|path| {
            let references = self.found.get(&path)?.info.references.clone();
            Some((path, references))
        });
        (references_first(&infos.collect()), missing)
    }

    /// Returns the narinfo of a path that was found.
    pub(crate) fn narinfo(&self, path: &StorePath) -> &NarInfo {
        &self.found[path]
    }

    /// Returns what the store has registered about a path.
    pub(crate) fn info(&self, path: &StorePath) -> Result<PathInfo, Error> {
        let registered = match self.source.as_registry() {
            Some(registry) => registry.query_registration(path)?,
            None => None,
        };
        Ok(registered.unwrap_or_else(|| self.narinfo(path).info.clone()))
    }

    /// Returns the narinfos of the closure of a path.
    pub(crate) fn closure(&self, path: &StorePath) -> Vec<&NarInfo> {
        let (mut open, mut seen) = (vec![path], BTreeSet::from([path]));
        let mut closure = Vec::new();
        while let Some(path) = open.pop() {
            let Some(narinfo) = self.found.get(path) else {
                continue;
            };
            closure.push(narinfo);
            let references = narinfo.info.references.iter();
            open.extend(references.filter(|it| seen.insert(it)));
        }
        closure
    }

    /// Checks that the sizes of closures are known: the size of a part would mislead.
    ///
    /// Errors: [`Error::NotFound`] for a path that a closure lacks.
    pub(crate) fn check_closure_sizes(&self) -> Result<(), Error> {
        let infos = self.found.values().map(|narinfo| &narinfo.info);
        let mut references = infos.flat_map(|info| &info.references);
        match references.find(|path| !self.found.contains_key(*path)) {
            Some(path) if self.columns.closure_size => Err(Error::NotFound {
                path: path.to_string(),
                sources: vec![self.source.name()],
            }),
            _ => Ok(()),
        }
    }
}

/// Returns the errors that are not about one of the paths.
pub(crate) fn without(absent: Vec<Error>, paths: &[&StorePath]) -> Vec<Error> {
    let names: BTreeSet<&str> = paths.iter().map(|path| path.as_str()).collect();
    let others = absent.into_iter().filter(|error| {
        let name = error.path_name();
        name.is_none_or(|name| !names.contains(name))
    });
    others.collect()
}
