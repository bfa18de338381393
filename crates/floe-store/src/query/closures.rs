//! Closures as Nix computes them (`computeFSClosure`).

use std::collections::{BTreeMap, BTreeSet};

use floe_format::StorePath;

use super::reader::StoreReader;
use crate::error::StoreError;

impl StoreReader {
    /// Returns the references of each valid path in the closure of some paths.
    ///
    /// Errors: those of the database.
    pub fn closure_references(
        &self,
        paths: &[StorePath],
    ) -> Result<BTreeMap<StorePath, BTreeSet<StorePath>>, StoreError> {
        self.database().closure_references(paths)
    }

    /// Returns the closure of some paths. With `include_outputs`, also the valid outputs of its
    /// derivations with their closures.
    ///
    /// Errors: those of the database.
    pub fn full_closure(
        &self,
        paths: impl IntoIterator<Item = StorePath>,
        include_outputs: bool,
    ) -> Result<BTreeSet<StorePath>, StoreError> {
        let mut closure: BTreeSet<StorePath> = BTreeSet::new();
        let mut roots: Vec<StorePath> = paths.into_iter().collect();
        while !roots.is_empty() {
            let found = self.closure_paths(&roots)?;
            roots.clear();
            for path in found {
                if !closure.insert(path.clone()) || !include_outputs {
                    continue;
                }
                for output in self.derivation_outputs(&path)? {
                    if !closure.contains(&output) && self.is_valid(&output)? {
                        roots.push(output);
                    }
                }
            }
        }
        Ok(closure)
    }

    /// Returns the valid paths that refer to some paths directly or indirectly, with these
    /// themselves. `related` returns further paths that a path leads to.
    ///
    /// Errors: those of the database, and of `related`.
    pub fn referrers_closure(
        &self,
        paths: impl IntoIterator<Item = StorePath>,
        related: &dyn Fn(&StorePath) -> Result<Vec<StorePath>, StoreError>,
    ) -> Result<BTreeSet<StorePath>, StoreError> {
        let mut open: Vec<StorePath> = paths.into_iter().collect();
        let mut closure: BTreeSet<StorePath> = open.iter().cloned().collect();
        while let Some(path) = open.pop() {
            for found in self.referrers(&path)?.into_iter().chain(related(&path)?) {
                if closure.insert(found.clone()) {
                    open.push(found);
                }
            }
        }
        Ok(closure)
    }
}
