//! Names in an open directory.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, Stat, chmodat, fstat, linkat, openat, renameat, statat,
    symlinkat, unlinkat,
};
use rustix::io::Errno;
use rustix::process::geteuid;

use super::{Directory, descriptor_path, file_type, read_link_at};
use crate::disk::written_file::WrittenFile;
use crate::error::{IoContext as _, StoreError};

/// A name in an open directory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry<'a> {
    directory: &'a Directory,
    name: &'a OsStr,
}

impl<'a> Entry<'a> {
    pub(super) fn new(directory: &'a Directory, name: &'a OsStr) -> Entry<'a> {
        Entry { directory, name }
    }

    /// The path of the file, for messages.
    pub(crate) fn path(&self) -> PathBuf {
        self.directory.path.join(self.name)
    }

    /// Examines the file. A symbolic link is not followed.
    pub(crate) fn stat(&self) -> io::Result<Stat> {
        Ok(statat(
            &self.directory.descriptor,
            self.name,
            AtFlags::SYMLINK_NOFOLLOW,
        )?)
    }

    /// Whether there is a file or a link, even one that points to nothing.
    pub(crate) fn exists(&self) -> bool {
        self.stat().is_ok()
    }

    /// Reads the target of a symbolic link.
    ///
    /// Errors: those of the system; [`io::ErrorKind::InvalidInput`] for another kind of file.
    pub(crate) fn read_link(&self) -> io::Result<PathBuf> {
        read_link_at(self.directory.descriptor.as_fd(), self.name)
    }

    /// Removes a file or a link.
    pub(crate) fn remove(&self) -> io::Result<()> {
        let removed = unlinkat(&self.directory.descriptor, self.name, AtFlags::empty());
        Ok(removed?)
    }

    /// Removes an empty directory.
    pub(crate) fn remove_directory(&self) -> io::Result<()> {
        let removed = unlinkat(&self.directory.descriptor, self.name, AtFlags::REMOVEDIR);
        Ok(removed?)
    }

    /// Renames the file within its directory, and replaces another one of the new name.
    pub(crate) fn rename(&self, name: &OsStr) -> io::Result<()> {
        let directory = &self.directory.descriptor;
        Ok(renameat(directory, self.name, directory, name)?)
    }

    /// Renames the file to a name that no other live process uses.
    pub(crate) fn move_aside(&self) -> io::Result<MovedAside<'_>> {
        let aside = self.temporary_name();
        self.rename(&aside)?;
        Ok(MovedAside {
            entry: *self,
            aside,
        })
    }

    /// Creates a symbolic link.
    pub(crate) fn create_link(&self, target: &Path) -> io::Result<()> {
        Ok(symlinkat(target, &self.directory.descriptor, self.name)?)
    }

    /// Creates a symbolic link, and replaces an existing file atomically.
    ///
    /// Errors: those of the system.
    pub(crate) fn replace_link(&self, target: &Path) -> Result<(), StoreError> {
        let temporary = self.temporary_name();
        let new = self.directory.entry(&temporary);
        // A file of this name belongs to a dead process with the same number.
        let _: io::Result<()> = new.remove();
        let created = new.create_link(target);
        created.io_context("create the link", new.path())?;
        new.rename(self.name)
            .inspect_err(|_| {
                let _: io::Result<()> = new.remove();
            })
            .io_context("replace the link", self.path())
    }

    /// Writes a file that all users may read, and replaces an existing file atomically.
    pub(crate) fn replace_file(&self, contents: &[u8]) -> io::Result<()> {
        let temporary = self.temporary_name();
        let new = self.directory.entry(&temporary);
        // A file of this name belongs to a dead process with the same number.
        let _: io::Result<()> = new.remove();
        let mode = Mode::from_raw_mode(0o644);
        let file = WrittenFile::create_at(&self.directory.descriptor, &*temporary, mode)?;
        let written = file.complete(|file| {
            file.set_mode(0o644)?;
            file.write_all(contents)
        });
        let replaced = written.and_then(|()| new.rename(self.name));
        replaced.inspect_err(|_| {
            let _: io::Result<()> = new.remove();
        })
    }

    /// Creates a file for reading and writing that only its owner may open.
    ///
    /// Errors: those of the system; [`io::ErrorKind::AlreadyExists`] for a file or link of this
    /// name.
    pub(crate) fn create_file(&self) -> io::Result<File> {
        let flags = READ_WRITE | OFlags::CREATE | OFlags::EXCL;
        let mode = Mode::RUSR | Mode::WUSR;
        let created = openat(&self.directory.descriptor, self.name, flags, mode);
        Ok(created?.into())
    }

    /// Opens a regular file for reading and writing. Neither follows a symbolic link nor waits for
    /// the other end of a pipe.
    ///
    /// Errors: those of the system; [`io::ErrorKind::InvalidData`] for another kind of file.
    pub(crate) fn open_file(&self) -> io::Result<File> {
        self.open_regular(READ_WRITE)
    }

    /// Opens a regular file for reading as [`Entry::open_file`] does.
    pub(crate) fn open_to_read(&self) -> io::Result<File> {
        self.open_regular(OFlags::RDONLY | OFLAGS)
    }

    /// Opens a regular file as [`Entry::open_file`] does, and creates it if it does not exist.
    /// Returns also whether this call created it.
    pub(crate) fn open_or_create_file(&self) -> io::Result<(File, bool)> {
        for _ in 0..ATTEMPTS_MAX {
            match self.create_file() {
                Ok(created) => return Ok((created, true)),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
            match self.open_file() {
                // Another process has removed it meanwhile.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                opened => return Ok((opened?, false)),
            }
        }
        Err(Errno::AGAIN.into())
    }

    /// Creates a socket that all users may connect to, and moves it to this name. A client of an
    /// old Nix fails if it finds no socket there, so the name is never missing once it exists.
    pub(crate) fn bind_shared_socket(&self) -> io::Result<UnixListener> {
        let temporary = self.temporary_name();
        let new = self.directory.entry(&temporary);
        let _: io::Result<()> = new.remove();
        let place = self.directory.place_by_descriptor(&temporary);
        let listener = match UnixListener::bind(place) {
            // There is no `/proc`.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                UnixListener::bind(new.path())?
            }
            listener => listener?,
        };
        let bound = new.share_socket().and_then(|()| new.rename(self.name));
        bound.inspect_err(|_| {
            let _: io::Result<()> = new.remove();
        })?;
        Ok(listener)
    }

    /// Lets all users connect to a socket that this process has created.
    fn share_socket(&self) -> io::Result<()> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let socket = openat(&self.directory.descriptor, self.name, flags, Mode::empty())?;
        let found = fstat(&socket)?;
        // Another process may have exchanged the file.
        if file_type(&found) != FileType::Socket || found.st_uid != geteuid().as_raw() {
            return Err(invalid("it is not the socket of this process"));
        }
        let mode = Mode::from_raw_mode(0o666);
        match chmodat(CWD, descriptor_path(&socket), mode, AtFlags::empty()) {
            // There is no `/proc`.
            Err(Errno::NOENT) => {
                let directory = &self.directory.descriptor;
                Ok(chmodat(directory, self.name, mode, AtFlags::empty())?)
            }
            changed => Ok(changed?),
        }
    }

    /// Adds a name of the file in another directory.
    pub(crate) fn hard_link(&self, new: &Entry<'_>) -> io::Result<()> {
        let (old_directory, new_directory) = (self.directory, new.directory);
        Ok(linkat(
            &old_directory.descriptor,
            self.name,
            &new_directory.descriptor,
            new.name,
            AtFlags::empty(),
        )?)
    }

    /// Removes the name of a file that this process has open and locked, and marks the file as
    /// stale for a process that has opened it and waits for the lock: Nix takes a lock file or a
    /// file of temporary roots with contents for a stale one. A file that has another name stays
    /// as it is. Another process may have removed the name already.
    pub(crate) fn retire(&self, file: &File) -> io::Result<()> {
        match self.remove() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            removed => removed?,
        }
        let found = fstat(file)?;
        if found.st_nlink == 0 && found.st_size == 0 {
            rustix::io::write(file, b"d")?;
        }
        Ok(())
    }

    fn open_regular(&self, flags: OFlags) -> io::Result<File> {
        let opened = openat(&self.directory.descriptor, self.name, flags, Mode::empty());
        let file = match opened {
            Err(Errno::LOOP) => return Err(invalid(SYMBOLIC_LINK)),
            Err(Errno::NXIO | Errno::ISDIR) => return Err(invalid(NOT_REGULAR)),
            opened => opened?,
        };
        match file_type(&fstat(&file)?) {
            FileType::RegularFile => Ok(file.into()),
            _ => Err(invalid(NOT_REGULAR)),
        }
    }

    /// A name beside this one that no other live process uses.
    fn temporary_name(&self) -> OsString {
        let number = SERIAL.fetch_add(1, Ordering::Relaxed);
        let mut name = self.name.to_owned();
        name.push(format!(".tmp-{}-{number}", std::process::id()));
        name
    }
}

/// A file that [`Entry::move_aside`] has renamed.
pub(crate) struct MovedAside<'a> {
    /// The earlier name.
    entry: Entry<'a>,
    aside: OsString,
}

impl MovedAside<'_> {
    /// Removes the file.
    pub(crate) fn remove(self) -> io::Result<()> {
        self.entry.directory.entry(&self.aside).remove()
    }

    /// Gives the file its earlier name, and replaces a newer file of this name.
    pub(crate) fn move_back(self) -> io::Result<()> {
        let aside = self.entry.directory.entry(&self.aside);
        aside.rename(self.entry.name)
    }
}

fn invalid(reason: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, reason)
}

/// The reason in the error about a file that is a symbolic link.
const SYMBOLIC_LINK: &str = "the file is a symbolic link, which floe does not follow";

/// The reason in the error about another kind of file.
const NOT_REGULAR: &str = "it is not a regular file";

/// Flags of each open: neither follows a link nor waits for a device or a pipe.
const OFLAGS: OFlags = OFlags::NOFOLLOW
    .union(OFlags::NONBLOCK)
    .union(OFlags::CLOEXEC);

const READ_WRITE: OFlags = OFlags::RDWR.union(OFLAGS);

/// How often a file may appear and vanish between two system calls.
const ATTEMPTS_MAX: usize = 100;

/// Distinguishes the temporary names of one process.
static SERIAL: AtomicU64 = AtomicU64::new(0);
