//! The check that the paths of a derivation's outputs follow from its contents.

use floe_format::derivation::{Derivation, DerivationError, DerivationHashCache};
use floe_format::{PathInfo, StoreDir, StorePath};
use parking_lot::Mutex;

use crate::disk::{StoreLayout, derivation_name, read_derivation_of};
use crate::error::StoreError;

/// The checks of the derivations of one store. Each derivation is read once.
#[derive(Debug, Default)]
pub(super) struct DerivationChecks {
    /// Hashes of registered derivations.
    cache: Mutex<DerivationHashCache>,
}

impl DerivationChecks {
    /// Returns the outputs of a derivation after a check that their paths follow from its contents.
    /// Returns none for other paths.
    pub(super) fn outputs(
        &self,
        layout: &StoreLayout,
        info: &PathInfo,
    ) -> Result<Vec<(String, StorePath)>, StoreError> {
        if !info.path.is_derivation() {
            return Ok(Vec::new());
        }
        let mut global_error = None;
        let mut read = |path: &StorePath| read_derivation_of(layout, path, &mut global_error);
        let path = &info.path;
        self.checked_outputs(&layout.store_dir, path, &mut read)
            .map_err(|source| {
                let path = path.clone();
                global_error.unwrap_or(StoreError::Derivation { path, source })
            })
    }

    fn checked_outputs(
        &self,
        dir: &StoreDir,
        path: &StorePath,
        read: &mut dyn FnMut(&StorePath) -> Result<Derivation, DerivationError>,
    ) -> Result<Vec<(String, StorePath)>, DerivationError> {
        let name = derivation_name(path);
        let derivation = read(path)?;
        let mut cache = self.cache.lock();
        if let Err(error) = derivation.check_invariants(dir, name, &mut cache, read) {
            // The cache may hold hashes that follow from an invalid derivation.
            *cache = DerivationHashCache::default();
            return Err(error);
        }
        let outputs = derivation.output_paths(dir, name).into_iter();
        Ok(outputs.filter_map(|(id, path)| Some((id, path?))).collect())
    }
}
