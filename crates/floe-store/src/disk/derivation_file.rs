//! The files of derivations.

use std::io::{self, Read as _};
use std::path::Path;

use floe_format::StorePath;
use floe_format::derivation::{DERIVATION_LEN_MAX, Derivation, DerivationError};
use floe_format::store_path::DERIVATION_EXTENSION;

use super::StoreLayout;
use super::regular_file::open_regular_file_nofollow;
use crate::error::{StoreError, is_system_wide};

/// Reads and parses a derivation. Follows no symbolic link.
pub(crate) fn read_derivation(
    layout: &StoreLayout,
    path: &StorePath,
) -> Result<Derivation, StoreError> {
    let mut global_error = None;
    read_derivation_of(layout, path, &mut global_error).map_err(|source| {
        let path = path.clone();
        global_error.unwrap_or(StoreError::Derivation { path, source })
    })
}

/// Reads and parses a derivation. Stores an error that concerns more than this file in
/// `global_error`.
pub(crate) fn read_derivation_of(
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
pub(crate) fn derivation_name(path: &StorePath) -> &str {
    path.name()
        .strip_suffix(DERIVATION_EXTENSION)
        .unwrap_or(path.name())
}
