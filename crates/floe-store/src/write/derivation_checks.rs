//! The check that the paths of a derivation's outputs follow from its contents.

use std::io::{self, Read as _};
use std::path::Path;

use floe_format::derivation::{
    DERIVATION_LEN_MAX, Derivation, DerivationError, DerivationHashCache,
};
use floe_format::store_path::DERIVATION_EXTENSION;
use floe_format::{PathInfo, StoreDir, StorePath};
use parking_lot::Mutex;

use crate::disk::{StoreLayout, open_regular_file_nofollow};
use crate::error::{StoreError, is_system_wide};

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
        let mut read = |path: &StorePath| read_derivation(layout, path, &mut global_error);
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

/// Reads and parses a derivation. Stores an error that concerns more than this file in
/// `global_error`.
fn read_derivation(
    layout: &StoreLayout,
    path: &StorePath,
    global_error: &mut Option<StoreError>,
) -> Result<Derivation, DerivationError> {
    let file = layout.real_path(path);
    let text = read_plain_file(&file).map_err(|source| {
        let reason = source.to_string();
        if is_system_wide(&source) {
            *global_error = Some(StoreError::Io {
                action: "read",
                path: file.clone(),
                source,
            });
        }
        let path = path.clone();
        DerivationError::Read { path, reason }
    })?;
    Derivation::parse(&text, &layout.store_dir, derivation_name(path))
}

/// Reads a file of an untrusted tree. Follows no symbolic link, and reads at most one byte more
/// than a derivation may have.
fn read_plain_file(path: &Path) -> io::Result<Vec<u8>> {
    let file = open_regular_file_nofollow(path)?;
    let mut text = Vec::new();
    let most = DERIVATION_LEN_MAX as u64 + 1;
    file.take(most).read_to_end(&mut text)?;
    Ok(text)
}

/// The name that a derivation and its outputs use.
fn derivation_name(path: &StorePath) -> &str {
    path.name()
        .strip_suffix(DERIVATION_EXTENSION)
        .unwrap_or(path.name())
}
