//! The temporary roots of other processes.

use std::ffi::OsString;
use std::io::{self, Read as _};

use floe_format::StoreDir;
use rustix::fs::{FileType, FlockOperation, flock};

use super::root_place::{Candidate, RootPlace};
use super::unreadable::Unreadable;
use crate::disk::{Directory, Entry, StoreLayout};
use crate::error::{IoContext, StoreError};
use crate::locks::try_lock;

/// Returns the temporary roots of live processes. The files of others are not locked.
///
/// Errors: the directory cannot be listed.
pub(super) fn roots(
    layout: &StoreLayout,
    unreadable: &mut Vec<Unreadable>,
) -> Result<Vec<Candidate>, StoreError> {
    let files = match Files::list(layout) {
        Err(StoreError::Io { path, source, .. })
            if source.kind() == io::ErrorKind::PermissionDenied =>
        {
            unreadable.push(Unreadable::Link(path));
            return Ok(Vec::new());
        }
        files => files?,
    };
    let mut candidates = Vec::new();
    let mut closed = Vec::new();
    for (process, file) in files.entries() {
        match read_if_locked(&file) {
            Ok(text) => candidates.extend(parse(&text, process, &layout.store_dir)),
            // The process has ended.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(_) => closed.push(file.path()),
        }
    }
    // A machine may have hundreds of them, of builders.
    unreadable.extend(match &*closed {
        [] => None,
        [file] => Some(Unreadable::Link(file.clone())),
        [first, ..] => Some(Unreadable::TemporaryRoots {
            files: closed.len(),
            first: first.clone(),
        }),
    });
    Ok(candidates)
}

/// Returns the temporary roots of live processes, and removes the files of dead ones, as Nix's
/// collector does.
///
/// Errors: those of the system. A file that cannot be read may keep paths.
pub(super) fn take(layout: &StoreLayout) -> Result<Vec<Candidate>, StoreError> {
    let mut candidates = Vec::new();
    for (process, entry) in Files::list(layout)?.entries() {
        let path = entry.path();
        let mut file = match entry.open_file() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            opened => opened.io_context("open the temporary roots file", &path)?,
        };
        if try_lock(&file, &path, FlockOperation::NonBlockingLockExclusive)? {
            // A process that has just created the file finds the mark, and creates another file.
            let removed = entry.retire(&file);
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

/// The files of temporary roots with the numbers of their processes.
struct Files {
    /// `None` if the directory does not exist.
    directory: Option<Directory>,
    names: Vec<(u32, OsString)>,
}

impl Files {
    fn list(layout: &StoreLayout) -> Result<Files, StoreError> {
        let Some(directory) = Directory::open_if_exists(&layout.temp_roots_dir())? else {
            return Ok(Files {
                directory: None,
                names: Vec::new(),
            });
        };
        let files = directory.list().io_context("list", directory.path())?;
        // Other kinds of files are not files of temporary roots.
        let files = files
            .into_iter()
            .filter(|(_, file_type)| *file_type == FileType::RegularFile);
        let names = files.filter_map(|(name, _)| Some((process(name.to_str()?)?, name)));
        Ok(Files {
            names: names.collect(),
            directory: Some(directory),
        })
    }

    fn entries(&self) -> impl Iterator<Item = (u32, Entry<'_>)> {
        let directory = self.directory.iter();
        directory.flat_map(|directory| {
            let names = self.names.iter();
            names.map(|(process, name)| (*process, directory.entry(name)))
        })
    }
}

/// Reads the process number at the beginning of a name.
fn process(name: &str) -> Option<u32> {
    let digits = name.find(|c: char| !c.is_ascii_digit());
    name[..digits.unwrap_or(name.len())].parse().ok()
}

/// Returns the contents of a file that a process has locked, else nothing.
fn read_if_locked(file: &Entry<'_>) -> io::Result<Vec<u8>> {
    let mut file = file.open_to_read()?;
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
