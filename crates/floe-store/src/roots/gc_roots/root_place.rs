//! The places of roots.

use std::fmt;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use floe_format::{StoreDir, StorePath};

/// The place of a root. Its text is that of `nix-store --gc --print-roots`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RootPlace {
    /// A symbolic link, or a file in `gcroots` that is named like a store path.
    Link(PathBuf),
    /// A file of a process, such as `/proc/1/exe`.
    Process(PathBuf),
    /// A temporary root of a process.
    Temporary(u32),
}

impl fmt::Display for RootPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RootPlace::Link(path) | RootPlace::Process(path) => path.display().fmt(f),
            RootPlace::Temporary(process) => write!(f, "{{temp:{process}}}"),
        }
    }
}

/// A root whose path may not be valid.
pub(crate) struct Candidate {
    pub(crate) place: RootPlace,
    pub(crate) path: StorePath,
}

/// Returns the first name below the store directory, as the text of a path has it. The rest of the
/// path may be no text.
pub(super) fn name_in_store<'a>(dir: &StoreDir, path: &'a Path) -> Option<&'a [u8]> {
    let bytes = path.as_os_str().as_bytes();
    let inside = bytes.strip_prefix(dir.as_str().as_bytes())?;
    inside
        .strip_prefix(b"/")?
        .split(|byte| *byte == b'/')
        .next()
}

/// Returns the store path that the target of a link names, if its text leads into the store.
pub(super) fn store_path_of_target(dir: &StoreDir, target: &Path) -> Option<StorePath> {
    store_path_of_name(name_in_store(dir, target)?)
}

/// Parses the name of a file of the store directory.
pub(super) fn store_path_of_name(name: &[u8]) -> Option<StorePath> {
    StorePath::parse(str::from_utf8(name).ok()?).ok()
}
