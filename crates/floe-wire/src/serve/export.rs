//! The format of `nix-store --export`: for each path a number, its NAR, and its facts.
//!
//! The source of the format is `exportPaths` and `importPaths` in Nix's `export-import.cc`.

use std::collections::BTreeSet;

use floe_format::{PathInfo, StoreDir, StorePath};

use crate::error::WireError;
use crate::input::{Input, TEXT_LEN_MAX};
use crate::output;
use crate::worker::path_info::{
    read_optional_path, read_path, read_paths, write_optional_path, write_paths,
};

/// A path in an export, beside its NAR.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImportedPath {
    /// The path.
    pub path: StorePath,
    /// The paths to which it refers.
    pub references: BTreeSet<StorePath>,
    /// The derivation that built it.
    pub deriver: Option<StorePath>,
}

/// Reads the number before an entry. Returns whether an entry follows.
pub fn read_entry(input: &mut Input<'_>) -> Result<bool, WireError> {
    match input.number()? {
        0 => Ok(false),
        1 => Ok(true),
        other => Err(WireError::value(
            "the beginning of a path",
            other.to_string(),
            "nix-store --export has not written it",
        )),
    }
}

/// Reads what follows a NAR.
pub fn read_info(input: &mut Input<'_>, dir: &StoreDir) -> Result<ImportedPath, WireError> {
    let magic = input.number()?;
    if magic != MAGIC {
        return Err(WireError::value(
            "the end of a NAR",
            magic.to_string(),
            "nix-store --export has not written it",
        ));
    }
    let imported = ImportedPath {
        path: read_path(input, dir)?,
        references: read_paths(input, dir)?,
        deriver: read_optional_path(input, dir)?,
    };
    if input.number()? == 1 {
        // A signature of an old version, which nothing verifies any more.
        input.bytes("a signature", TEXT_LEN_MAX)?;
    }
    Ok(imported)
}

/// Appends the number before an entry. Its NAR follows.
pub fn write_entry(output: &mut Vec<u8>) {
    output::number(output, 1);
}

/// Appends what follows a NAR.
pub fn write_info(output: &mut Vec<u8>, info: &PathInfo, dir: &StoreDir) {
    output::number(output, MAGIC);
    write_optional_path(output, dir, Some(&info.path));
    write_paths(output, dir, &info.references);
    write_optional_path(output, dir, info.deriver.as_ref());
    output::number(output, 0);
}

/// Appends the number after the last entry.
pub fn write_end(output: &mut Vec<u8>) {
    output::number(output, 0);
}

/// The number after a NAR: `NIXE`.
const MAGIC: u64 = 0x4558_494e;
