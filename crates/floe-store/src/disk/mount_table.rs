//! The mounts that this process sees, and the mount that a directory is on.

use std::ffi::{CString, OsString};
use std::fs;
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, openat};

use super::mount_id::{MountId, examine};

/// The mounts that this process sees.
#[derive(Debug, Default)]
pub(crate) struct MountTable(Vec<Mount>);

#[derive(Debug)]
struct Mount {
    number: u64,
    point: PathBuf,
    /// Whether this is the place of a file system that the system mounts at the first access.
    is_autofs: bool,
}

impl MountTable {
    /// Reads the table of the system. Without `/proc` it is empty.
    pub(crate) fn read() -> MountTable {
        MountTable::parse(&fs::read("/proc/self/mountinfo").unwrap_or_default())
    }

    /// Parses the table in the format of proc_pid_mountinfo(5). Skips lines that do not parse.
    fn parse(table: &[u8]) -> MountTable {
        let lines = table.split(|byte| *byte == b'\n');
        MountTable(lines.filter_map(Mount::parse).collect())
    }

    /// Returns the directory of a mount.
    pub(crate) fn mount_point(&self, number: u64) -> Option<&Path> {
        self.find(number).map(|mount| &*mount.point)
    }

    /// Whether a file system with this number is mounted at a directory. An autofs mount does
    /// not count, because its own file system is not mounted yet.
    pub(crate) fn is_mounted(&self, number: u64, point: &Path) -> bool {
        let mount = self.find(number);
        mount.is_some_and(|mount| mount.point == point && !mount.is_autofs)
    }

    fn find(&self, number: u64) -> Option<&Mount> {
        self.0.iter().find(|mount| mount.number == number)
    }
}

impl Mount {
    fn parse(line: &[u8]) -> Option<Mount> {
        let mut fields = line.split(|byte| *byte == b' ');
        let number = str::from_utf8(fields.next()?).ok()?.parse().ok()?;
        let point = unescape(fields.nth(3)?)?;
        // A lone dash ends the optional fields. The type of the file system follows.
        fields.find(|field| *field == b"-")?;
        Some(Mount {
            number,
            point: OsString::from_vec(point).into(),
            is_autofs: fields.next()? == b"autofs",
        })
    }
}

/// Returns the number of the mount that a directory is on.
///
/// Errors: those of the system.
pub(crate) fn mount_number(directory: &Path) -> io::Result<u64> {
    // The name after the directory follows a symbolic link in its place.
    let inside = CString::new(directory.join(".").into_os_string().into_vec())?;
    match examine(CWD, &inside)?.mount {
        Some(MountId::Mount(number)) => Ok(number),
        _ => mount_number_of_descriptor(directory),
    }
}

/// The way of systems whose `statx` tells no number of a mount.
fn mount_number_of_descriptor(directory: &Path) -> io::Result<u64> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let opened = openat(CWD, directory, flags, Mode::empty())?;
    let text = fs::read_to_string(format!("/proc/self/fdinfo/{}", opened.as_raw_fd()))?;
    let mut lines = text.lines();
    let number = lines.find_map(|line| line.strip_prefix("mnt_id:")?.trim().parse().ok());
    number.ok_or_else(|| io::ErrorKind::Unsupported.into())
}

/// Returns a path as one word of a line, as in proc_pid_mountinfo(5): white space and `\` are
/// written as `\` and three octal digits.
pub(crate) fn escape(path: &Path) -> Vec<u8> {
    let mut escaped = Vec::new();
    for byte in path.as_os_str().as_bytes() {
        match byte {
            b' ' | b'\t' | b'\n' | b'\\' => escaped.extend(format!("\\{byte:03o}").bytes()),
            byte => escaped.push(*byte),
        }
    }
    escaped
}

/// Reverses [`escape`]. Returns `None` for a `\` without three octal digits.
pub(crate) fn unescape(word: &[u8]) -> Option<Vec<u8>> {
    let mut plain = Vec::new();
    let mut rest = word.iter();
    while let Some(byte) = rest.next() {
        if *byte != b'\\' {
            plain.push(*byte);
            continue;
        }
        let mut value = 0_u32;
        for _ in 0..3 {
            value = value * 8 + char::from(*rest.next()?).to_digit(8)?;
        }
        plain.push(u8::try_from(value).ok()?);
    }
    Some(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &[u8] = b"\
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw,discard\n\
no line of the table\n\
2 22 0:20 / /proc rw - proc proc rw\n\
30 22 0:25 / /mnt/a\\040b\\134 rw shared:7 master:1 - xfs /dev/vdb rw\n\
31 22 0:26 / /home rw - autofs systemd-1 rw\n";

    #[test]
    fn table_gives_mount_points_by_whole_numbers() {
        let table = MountTable::parse(TABLE);
        let point = |number| table.mount_point(number);
        assert_eq!(point(22), Some(Path::new("/")));
        assert_eq!(point(2), Some(Path::new("/proc")));
        assert_eq!(point(30), Some(Path::new("/mnt/a b\\")));
        assert_eq!(point(3), None);
        assert!(table.is_mounted(22, Path::new("/")));
        assert!(!table.is_mounted(31, Path::new("/home")));
    }

    #[test]
    fn mounts_of_the_system_are_found() {
        let table = MountTable::read();
        let proc = mount_number(Path::new("/proc")).unwrap();
        assert!(table.is_mounted(proc, Path::new("/proc")));
        assert!(!table.is_mounted(proc, Path::new("/")));
        assert!(!MountTable::default().is_mounted(proc, Path::new("/proc")));
        for directory in ["/", "/proc", "/proc/self"] {
            let directory = Path::new(directory);
            let number = mount_number(directory).unwrap();
            assert_eq!(mount_number_of_descriptor(directory).unwrap(), number);
        }
    }

    #[test]
    fn malformed_escapes_are_refused() {
        for word in ["\\", "\\04", "\\08x", "\\+12", "\\400"] {
            assert_eq!(unescape(word.as_bytes()), None, "{word}");
        }
    }
}
