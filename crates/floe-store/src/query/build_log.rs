//! The logs of builds, which Nix keeps beside a store.
//!
//! Nix writes the log of the derivation `XYREST` to `drvs/XY/REST` in its log directory, plain or
//! as `.bz2`. Logs stay when the derivation is deleted.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use floe_format::{HashPart, StorePath};
use rustix::fs::Dir;
use rustix::io::Errno;

use crate::disk::open_beneath;

/// The open file of the log of a build.
#[derive(Debug)]
pub enum BuildLog {
    /// The text itself.
    Plain(File),
    /// The text, compressed by bzip2.
    Bzip2(File),
}

impl BuildLog {
    /// Opens the log of a derivation, in the place of newer and then in that of older Nix versions.
    /// `None` if there is none, or something else than a regular file. Follows no symbolic link
    /// below `log_dir`.
    ///
    /// Errors: those of the system.
    pub fn open(log_dir: &Path, derivation: &StorePath) -> io::Result<Option<BuildLog>> {
        let name = derivation.as_str();
        let (first, rest) = name.split_at_checked(FANOUT_LEN).unwrap_or((name, ""));
        let drvs = Path::new("drvs");
        for path in [drvs.join(first).join(rest), drvs.join(name)] {
            if let Some(file) = open(log_dir, &path)? {
                return Ok(Some(BuildLog::Plain(file)));
            }
            let mut compressed = path.into_os_string();
            compressed.push(".bz2");
            if let Some(file) = open(log_dir, &PathBuf::from(compressed))? {
                return Ok(Some(BuildLog::Bzip2(file)));
            }
        }
        Ok(None)
    }
}

/// Finds the derivation with a hash part that has a log, although it may be no longer valid.
pub fn find_logged_derivation(log_dir: &Path, hash: HashPart) -> Option<StorePath> {
    let (first, rest) = hash.as_str().split_at_checked(FANOUT_LEN)?;
    let directory = open_beneath(log_dir, &Path::new("drvs").join(first)).ok()?;
    let mut entries = Dir::new(directory).ok()?;
    entries.by_ref().flatten().find_map(|entry| {
        let name = entry.file_name().to_str().ok()?;
        let name = name.strip_suffix(".bz2").unwrap_or(name);
        let path = StorePath::parse(&format!("{first}{name}")).ok()?;
        (name.starts_with(rest) && path.is_derivation()).then_some(path)
    })
}

/// Opens a log. `None` if there is none, or something else than a regular file.
fn open(log_dir: &Path, relative: &Path) -> io::Result<Option<File>> {
    match open_beneath(log_dir, relative) {
        Ok(file) => {
            let file = File::from(file);
            Ok(file.metadata()?.is_file().then_some(file))
        }
        // NOTDIR and LOOP stand for a symbolic link, NXIO for a socket.
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::NXIO) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Nix splits the directory of logs by the first characters of the name.
const FANOUT_LEN: usize = 2;
