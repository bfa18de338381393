//! The temporary roots of other processes.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::Path;

use floe_format::StoreDir;
use rustix::fs::{FlockOperation, flock};

use super::found::{Candidate, RootPlace};
use super::processes::Unreadable;
use crate::error::{IoContext, StoreError};
use crate::layout::StoreLayout;

/// Returns the temporary roots of live processes. The files of others are not locked.
///
/// Errors: the directory cannot be listed.
pub(super) fn roots(
    layout: &StoreLayout,
    unreadable: &mut Vec<Unreadable>,
) -> Result<Vec<Candidate>, StoreError> {
    let directory = layout.temp_roots_dir();
    let entries = match fs::read_dir(&directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            unreadable.push(Unreadable::Link(directory));
            return Ok(Vec::new());
        }
        entries => entries.io_context("list", &directory)?,
    };
    let mut candidates = Vec::new();
    for entry in entries {
        let entry = entry.io_context("list", &directory)?;
        let Some(process) = entry.file_name().to_str().and_then(process) else {
            continue;
        };
        // Opening a pipe would wait for its other end.
        if !entry.file_type().is_ok_and(|file_type| file_type.is_file()) {
            continue;
        }
        match read_if_locked(&entry.path()) {
            Ok(text) => candidates.extend(parse(&text, process, &layout.store_dir)),
            // The process has ended.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(_) => unreadable.push(Unreadable::Link(entry.path())),
        }
    }
    Ok(candidates)
}

/// Reads the process number at the begin of a name.
fn process(name: &str) -> Option<u32> {
    let digits = name.find(|c: char| !c.is_ascii_digit());
    name[..digits.unwrap_or(name.len())].parse().ok()
}

/// Returns the contents of a file that a process has locked, else nothing.
fn read_if_locked(path: &Path) -> io::Result<Vec<u8>> {
    let mut file = File::open(path)?;
    let mut text = Vec::new();
    match flock(&file, FlockOperation::NonBlockingLockShared) {
        // No process has locked it. The lock ends with the file.
        Ok(()) => return Ok(text),
        Err(rustix::io::Errno::WOULDBLOCK) => {}
        Err(error) => return Err(error.into()),
    }
    file.read_to_end(&mut text)?;
    Ok(text)
}

/// Parses full paths, each with a zero byte after it.
fn parse(text: &[u8], process: u32, dir: &StoreDir) -> Vec<Candidate> {
    let paths = text.split(|byte| *byte == 0);
    let paths = paths.filter_map(|path| dir.parse(str::from_utf8(path).ok()?).ok());
    let place = RootPlace::Temporary(process);
    paths
        .map(|path| Candidate {
            place: place.clone(),
            path,
        })
        .collect()
}
