//! The temporary roots of other processes.

use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

use floe_format::StoreDir;
use rustix::fs::{FlockOperation, flock};

use super::processes::Unreadable;
use super::root_place::{Candidate, RootPlace};
use crate::error::{IoContext, StoreError, is_not_found};
use crate::layout::StoreLayout;
use crate::locks::try_lock;

/// Returns the temporary roots of live processes. The files of others are not locked.
///
/// Errors: the directory cannot be listed.
pub(super) fn roots(
    layout: &StoreLayout,
    unreadable: &mut Vec<Unreadable>,
) -> Result<Vec<Candidate>, StoreError> {
    let files = match files(layout) {
        Err(StoreError::Io { path, source, .. })
            if source.kind() == io::ErrorKind::PermissionDenied =>
        {
            unreadable.push(Unreadable::Link(path));
            return Ok(Vec::new());
        }
        files => files?,
    };
    let mut candidates = Vec::new();
    for (process, path) in files {
        match read_if_locked(&path) {
            Ok(text) => candidates.extend(parse(&text, process, &layout.store_dir)),
            // The process has ended.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(_) => unreadable.push(Unreadable::Link(path)),
        }
    }
    Ok(candidates)
}

/// Returns the temporary roots of live processes, and removes the files of dead ones, as Nix's
/// collector does.
///
/// Errors: those of the system. A file that cannot be read may keep paths.
pub(super) fn take(layout: &StoreLayout) -> Result<Vec<Candidate>, StoreError> {
    let mut candidates = Vec::new();
    for (process, path) in files(layout)? {
        let opened = File::options().read(true).write(true).open(&path);
        if is_not_found(&opened) {
            continue;
        }
        let mut file = opened.io_context("open the temporary roots file", &path)?;
        if try_lock(&file, &path, FlockOperation::NonBlockingLockExclusive)? {
            // A process that has just created the file finds the mark, and creates another file.
            let removed = fs::remove_file(&path).and_then(|()| file.write_all(b"d"));
            removed.io_context("remove the temporary roots file", &path)?;
            continue;
        }
        let mut text = Vec::new();
        let read = file.read_to_end(&mut text);
        read.io_context("read the temporary roots file", &path)?;
        candidates.extend(parse(&text, process, &layout.store_dir));
    }
    Ok(candidates)
}

/// Lists the files of temporary roots with the numbers of their processes.
fn files(layout: &StoreLayout) -> Result<Vec<(u32, PathBuf)>, StoreError> {
    let directory = layout.temp_roots_dir();
    let entries = fs::read_dir(&directory);
    if is_not_found(&entries) {
        return Ok(Vec::new());
    }
    let mut files = Vec::new();
    for entry in entries.io_context("list", &directory)? {
        let entry = entry.io_context("list", &directory)?;
        let Some(process) = entry.file_name().to_str().and_then(process) else {
            continue;
        };
        // Opening a pipe would wait for its other end.
        if entry.file_type().is_ok_and(|file_type| file_type.is_file()) {
            files.push((process, entry.path()));
        }
    }
    Ok(files)
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
    // An old Nix holds its lock shared.
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
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
