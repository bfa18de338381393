//! Files that floe writes. No error of their file system is lost.
//!
//! NFS, FUSE, CIFS and quotas may accept each write and report a failure only when the file is
//! closed. The standard library ignores this error, and the file is then empty or incomplete. A
//! [`WrittenFile`] therefore ends with [`WrittenFile::close`], which reports the error. This needs
//! no further system call, because each file is closed once anyway.
//!
//! This type stands in the lowest crate that writes files. The caches, the server and the command
//! line use it too, and `cargo xtask check` forbids other ways to create files.

use std::fs::{File, Permissions};
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::thread;

use nix::errno::Errno;
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::path::Arg;
use tempfile::TempPath;

/// An open file that this process creates and writes.
///
/// Each value ends with [`close`](Self::close) or, if its contents are not needed any more, with
/// [`discard`](Self::discard). A debug build panics if a value is dropped before, except after an
/// error of a write.
#[derive(Debug)]
#[must_use = "a file that is not closed loses the errors of its file system"]
pub struct WrittenFile {
    file: File,
    check: EndCheck,
}

/// Finds files that are dropped without an end, in debug builds.
#[derive(Debug, Default)]
struct EndCheck {
    /// Whether the file was ended, or its contents are known to be incomplete.
    may_drop: bool,
}

impl WrittenFile {
    /// Creates a file in a directory, with this mode less the umask.
    ///
    /// Errors: the name exists, also as a symbolic link; those of the system.
    pub fn create_at(directory: impl AsFd, name: impl Arg, mode: Mode) -> io::Result<WrittenFile> {
        // Clones and links are read again through the same descriptor.
        let flags =
            OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(WrittenFile::new(
            openat(directory, name, flags, mode)?.into(),
        ))
    }

    /// Creates a file, with this mode less the umask.
    ///
    /// Errors: as those of [`create_at`](Self::create_at).
    pub fn create(path: &Path, mode: Mode) -> io::Result<WrittenFile> {
        WrittenFile::create_at(CWD, path, mode)
    }

    /// Creates a file at a place that the user has named, or empties the file there. Follows
    /// symbolic links.
    ///
    /// Errors: those of the system.
    pub fn create_or_truncate(path: &Path) -> io::Result<WrittenFile> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::CLOEXEC;
        let opened = openat(CWD, path, flags, Mode::from_raw_mode(0o666))?;
        Ok(WrittenFile::new(opened.into()))
    }

    /// Creates a file with a new name that begins and ends with these texts. Only its owner may
    /// read it. Dropping the path removes the file.
    ///
    /// Errors: those of the system.
    pub fn create_temporary(
        directory: &Path,
        prefix: &str,
        suffix: &str,
    ) -> io::Result<(WrittenFile, TempPath)> {
        let mut builder = tempfile::Builder::new();
        let created = builder.prefix(prefix).suffix(suffix).tempfile_in(directory);
        let (file, path) = created?.into_parts();
        Ok((WrittenFile::new(file), path))
    }

    fn new(file: File) -> WrittenFile {
        let check = EndCheck::default();
        WrittenFile { file, check }
    }

    /// The open file, for its metadata and for a sync.
    pub fn as_file(&self) -> &File {
        &self.file
    }

    /// Sets the mode, whatever the umask.
    ///
    /// Errors: those of the system.
    pub fn set_mode(&self, mode: u32) -> io::Result<()> {
        use std::os::unix::fs::PermissionsExt as _;
        self.file.set_permissions(Permissions::from_mode(mode))
    }

    /// Writes the contents with `write` and closes the file. After an error of `write`, the file is
    /// discarded.
    ///
    /// Errors: those of `write` and of [`close`](Self::close).
    pub fn complete<T>(
        mut self,
        write: impl FnOnce(&mut WrittenFile) -> io::Result<T>,
    ) -> io::Result<T> {
        match write(&mut self) {
            Ok(value) => self.close().map(|()| value),
            Err(error) => {
                self.discard();
                Err(error)
            }
        }
    }

    /// Closes the complete file.
    ///
    /// Errors: those of earlier writes that the file system reports only now. The caller must treat
    /// the contents as lost.
    pub fn close(self) -> io::Result<()> {
        let WrittenFile { file, mut check } = self;
        check.may_drop = true;
        match nix::unistd::close(file) {
            // Linux has closed the file, and has reported no error of a write.
            Ok(()) | Err(Errno::EINTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Closes a file whose contents are not needed, and ignores errors.
    pub fn discard(mut self) {
        self.check.may_drop = true;
    }
}

impl Write for WrittenFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes);
        if let Err(error) = &written
            && error.kind() != io::ErrorKind::Interrupted
        {
            self.check.may_drop = true;
        }
        written
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl AsFd for WrittenFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Drop for EndCheck {
    fn drop(&mut self) {
        debug_assert!(
            self.may_drop || thread::panicking(),
            "a written file is dropped without `close` or `discard`"
        );
    }
}

/// The place of a file that another value writes in several steps. If it is dropped with a file,
/// the file is discarded; its owner then removes the file.
#[derive(Debug, Default)]
pub struct UnfinishedFile(Option<WrittenFile>);

impl UnfinishedFile {
    /// Puts a file into the place.
    pub fn put(&mut self, file: WrittenFile) {
        if let Some(before) = self.0.replace(file) {
            before.discard();
        }
    }

    /// The file, if there is one.
    pub fn get_mut(&mut self) -> Option<&mut WrittenFile> {
        self.0.as_mut()
    }

    /// Takes the file out of its place, to close it.
    pub fn take(&mut self) -> Option<WrittenFile> {
        self.0.take()
    }
}

impl From<WrittenFile> for UnfinishedFile {
    fn from(file: WrittenFile) -> UnfinishedFile {
        UnfinishedFile(Some(file))
    }
}

impl Drop for UnfinishedFile {
    fn drop(&mut self) {
        if let Some(file) = self.take() {
            file.discard();
        }
    }
}

/// Writes a whole file at a place that the user has named. Replaces the contents of a file there.
///
/// Errors: those of the system.
pub fn write_file(path: &Path, contents: &[u8]) -> io::Result<()> {
    WrittenFile::create_or_truncate(path)?.complete(|file| file.write_all(contents))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    fn create(path: &Path) -> WrittenFile {
        WrittenFile::create(path, Mode::from_raw_mode(0o600)).unwrap()
    }

    #[test]
    fn written_file_without_end_panics_in_debug_builds() {
        let dir = tempfile::tempdir().unwrap();
        let panics = |name: &str, end: &dyn Fn(WrittenFile)| {
            let file = create(&dir.path().join(name));
            catch_unwind(AssertUnwindSafe(|| end(file))).is_err()
        };
        assert_eq!(
            panics("dropped", &|file| drop(file)),
            cfg!(debug_assertions)
        );
        assert!(!panics("closed", &|file| file.close().unwrap()));
        assert!(!panics("discarded", &|file| file.discard()));
        assert!(!panics("unfinished", &|file| drop(UnfinishedFile::from(
            file
        ))));
        assert!(!panics("failed", &|file| {
            let error = file.complete(|_| Err::<(), _>(io::ErrorKind::Other.into()));
            assert_eq!(error.unwrap_err().kind(), io::ErrorKind::Other);
        }));
    }

    #[test]
    fn file_after_error_of_write_may_be_dropped() {
        let mut full = WrittenFile::create_or_truncate(Path::new("/dev/full")).unwrap();
        let error = full.write_all(b"text").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        drop(full);
    }

    #[test]
    fn new_file_replaces_neither_file_nor_link() {
        let dir = tempfile::tempdir().unwrap();
        let (file, link) = (dir.path().join("file"), dir.path().join("link"));
        create(&file).close().unwrap();
        std::os::unix::fs::symlink("absent", &link).unwrap();
        for place in [&file, &link] {
            let error = WrittenFile::create(place, Mode::RUSR).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
        }
        write_file(&file, b"longer").unwrap();
        write_file(&link, b"new").unwrap();
        write_file(&file, b"text").unwrap();
        assert_eq!(fs::read(&file).unwrap(), b"text");
        assert_eq!(fs::read(dir.path().join("absent")).unwrap(), b"new");
    }
}
