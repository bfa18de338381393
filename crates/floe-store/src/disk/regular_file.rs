//! Opens files that must be regular files. A named pipe, a device or a directory in their place
//! causes an error and never blocks.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, OFlags, fstat, openat};
use rustix::io::Errno;

/// Opens a regular file for reading. Follows symbolic links.
///
/// Errors: those of the system, and [`io::ErrorKind::InvalidData`] for another kind of file.
pub fn open_regular_file(path: &Path) -> io::Result<File> {
    open(path, OFlags::empty())
}

/// Reads a regular file of at most `len_max` bytes. Follows symbolic links.
///
/// Errors: those of [`open_regular_file`], and [`io::ErrorKind::FileTooLarge`].
pub fn read_regular_file(path: &Path, len_max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open_regular_file(path)?
        .take(len_max.saturating_add(1))
        .read_to_end(&mut bytes)?;
    if bytes.len() as u64 > len_max {
        Err(io::ErrorKind::FileTooLarge.into())
    } else {
        Ok(bytes)
    }
}

/// Opens a regular file of an untrusted tree for reading. A symbolic link counts as another kind of
/// file.
pub(crate) fn open_regular_file_nofollow(path: &Path) -> io::Result<File> {
    open(path, OFlags::NOFOLLOW)
}

fn open(path: &Path, extra: OFlags) -> io::Result<File> {
    let not_regular = || io::Error::new(io::ErrorKind::InvalidData, NOT_REGULAR);
    // Without `NONBLOCK`, opening a named pipe would wait for a writer.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | extra;
    let file = match openat(CWD, path, flags, Mode::empty()) {
        // A socket, or a device without a driver.
        Err(Errno::NXIO) => return Err(not_regular()),
        // The system reports a symbolic link in this way because of `NOFOLLOW`.
        Err(Errno::LOOP) if extra.contains(OFlags::NOFOLLOW) => return Err(not_regular()),
        opened => opened?,
    };
    if FileType::from_raw_mode(fstat(&file)?.st_mode) != FileType::RegularFile {
        return Err(not_regular());
    }
    Ok(file.into())
}

/// The reason in the error about another kind of file.
const NOT_REGULAR: &str = "it is not a regular file";

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn only_regular_files_are_opened_and_none_blocks() {
        let directory = tempfile::tempdir().unwrap();
        let place = |name: &str| directory.path().join(name);
        rustix::fs::mkfifoat(CWD, place("pipe"), Mode::RWXU).unwrap();
        let _socket = UnixListener::bind(place("socket")).unwrap();
        symlink("pipe", place("link-to-pipe")).unwrap();
        symlink("/dev/zero", place("link-to-device")).unwrap();
        for name in ["pipe", "socket", "link-to-pipe", "link-to-device", "."] {
            let error = open_regular_file(&place(name)).unwrap_err();
            assert_eq!(error.to_string(), NOT_REGULAR, "{name}");
        }
        let absent = open_regular_file(&place("absent")).unwrap_err();
        assert_eq!(absent.kind(), io::ErrorKind::NotFound);

        fs::write(place("file"), "contents").unwrap();
        symlink("file", place("link")).unwrap();
        for name in ["file", "link"] {
            let mut text = String::new();
            let mut file = open_regular_file(&place(name)).unwrap();
            file.read_to_string(&mut text).unwrap();
            assert_eq!(text, "contents", "{name}");
        }
        assert!(open_regular_file_nofollow(&place("file")).is_ok());
        let error = open_regular_file_nofollow(&place("link")).unwrap_err();
        assert_eq!(error.to_string(), NOT_REGULAR);
    }

    #[test]
    fn file_is_read_up_to_the_limit_and_no_further() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("file");
        fs::write(&file, "12345").unwrap();
        assert_eq!(read_regular_file(&file, 5).unwrap(), b"12345");
        let error = read_regular_file(&file, 4).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
        let error = read_regular_file(Path::new("/dev/zero"), 4).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    }
}
