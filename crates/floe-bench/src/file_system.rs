//! The file system of a directory, and whether a benchmark on it is representative.
//!
//! On ext4 without a journal, creating files after a deletion costs several times as much as with
//! one: the search for a free inode skips all inodes freed in the last minutes. Users have
//! journals, and benchmarks delete trees between runs.

use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use crate::error::{BenchError, IoContext as _};

/// A mounted file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileSystem {
    /// The kernel's name of its type, such as "ext4".
    pub kind: String,
    /// The mounted device or another source.
    pub source: String,
    /// How it stores data.
    pub durability: Durability,
}

/// How a file system stores data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// In memory.
    Memory,
    /// On a disk, with a journal or copy-on-write.
    Journal,
    /// On a disk without either.
    Plain,
    /// An unknown type of file system.
    Unknown,
}

impl FileSystem {
    /// Returns the file system of an existing directory.
    ///
    /// Errors: the directory does not exist, or /proc is not mounted.
    pub fn of(directory: &Path) -> Result<FileSystem, BenchError> {
        let directory = fs::canonicalize(directory).at("find", directory)?;
        let table = Path::new("/proc/self/mountinfo");
        let text = fs::read(table).at("read", table)?;
        let (kind, source) = mount_of(&text, &directory).unwrap_or_default();
        let durability = durability(&kind, || has_ext4_journal(&source));
        Ok(FileSystem {
            kind,
            source,
            durability,
        })
    }

    /// Describes the file system in a few words.
    pub fn describe(&self) -> String {
        let kind = &self.kind;
        match self.durability {
            Durability::Memory => kind.clone(),
            Durability::Journal if kind == "ext4" => format!("{kind} with a journal"),
            Durability::Journal => kind.clone(),
            Durability::Plain => format!("{kind} without a journal"),
            Durability::Unknown => format!("{kind}, an unknown file system"),
        }
    }
}

/// Writes all cached data of a directory's file system to its disk, so that a run does not pay for
/// the writes of an earlier one.
///
/// Errors: the directory cannot be opened, or the disk failed.
pub fn sync(directory: &Path) -> Result<(), BenchError> {
    let opened = fs::File::open(directory).at("open", directory)?;
    rustix::fs::syncfs(&opened).at("synchronise", directory)
}

/// Returns the bytes that an ordinary user may still write to a directory's file system.
///
/// Errors: the directory does not exist.
pub fn free_bytes(directory: &Path) -> Result<u64, BenchError> {
    let found = rustix::fs::statvfs(directory).at("examine", directory)?;
    Ok(found.f_bavail.saturating_mul(found.f_frsize))
}

/// Type and source of the mount that contains a path: the last one with the longest mount point.
/// The format of the table is that of proc_pid_mountinfo(5).
fn mount_of(table: &[u8], path: &Path) -> Option<(String, String)> {
    let mut best: Option<(usize, (String, String))> = None;
    for line in table.split(|byte| *byte == b'\n') {
        let Some((point, found)) = mount(line) else {
            continue;
        };
        let len = point.as_os_str().len();
        if path.starts_with(&point) && best.as_ref().is_none_or(|(longest, _)| len >= *longest) {
            best = Some((len, found));
        }
    }
    best.map(|(_, found)| found)
}

fn mount(line: &[u8]) -> Option<(PathBuf, (String, String))> {
    let fields: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
    let point = unescape(fields.get(4)?);
    // A lone dash ends the optional fields.
    let dash = fields.iter().skip(6).position(|field| *field == b"-")? + 6;
    let text = |at: usize| Some(String::from_utf8_lossy(fields.get(at)?).into_owned());
    let point = PathBuf::from(std::ffi::OsStr::from_bytes(&point));
    Some((point, (text(dash + 1)?, text(dash + 2)?)))
}

/// Replaces the kernel's octal escapes of white space and backslashes.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rest = field;
    while let Some((first, after)) = rest.split_first() {
        let octal = after
            .get(..3)
            .filter(|_| *first == b'\\')
            .and_then(|digits| {
                let text = std::str::from_utf8(digits).ok()?;
                u8::from_str_radix(text, 8).ok()
            });
        match octal {
            Some(byte) => {
                out.push(byte);
                rest = &after[3..];
            }
            None => {
                out.push(*first);
                rest = after;
            }
        }
    }
    out
}

fn durability(kind: &str, has_ext4_journal: impl Fn() -> bool) -> Durability {
    match kind {
        "tmpfs" | "ramfs" => Durability::Memory,
        "ext4" if !has_ext4_journal() => Durability::Plain,
        "ext3" | "ext4" | "xfs" | "jfs" | "ntfs3" => Durability::Journal,
        "btrfs" | "zfs" | "bcachefs" | "f2fs" | "nilfs2" => Durability::Journal,
        "ext2" | "vfat" | "exfat" | "msdos" | "minix" => Durability::Plain,
        _ => Durability::Unknown,
    }
}

/// Looks for the journal's directory under /proc, which is named after the device.
fn has_ext4_journal(source: &str) -> bool {
    let device = fs::canonicalize(source).unwrap_or_else(|_| source.into());
    let Some(name) = device.file_name() else {
        return false;
    };
    let prefix = format!("{}-", name.to_string_lossy());
    let entries = fs::read_dir("/proc/fs/jbd2")
        .into_iter()
        .flatten()
        .flatten();
    entries
        .into_iter()
        .any(|entry| entry.file_name().to_string_lossy().starts_with(&prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &[u8] = b"\
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw,discard\n\
23 22 0:20 / /proc rw - proc proc rw\n\
30 22 0:25 / /mnt/a\\040b rw shared:7 master:1 - xfs /dev/vdb rw\n\
31 22 0:26 / /mnt rw - tmpfs none rw\n\
32 22 0:27 / /mnt rw - btrfs /dev/vdc rw\n";

    fn kind(path: &str) -> String {
        mount_of(TABLE, Path::new(path)).unwrap().0
    }

    #[test]
    fn mount_is_the_last_with_the_longest_mount_point() {
        assert_eq!(kind("/home/x"), "ext4");
        assert_eq!(kind("/mnt/a b/c"), "xfs");
        assert_eq!(kind("/mnt/a"), "btrfs");
        assert_eq!(kind("/mntx"), "ext4");
        assert_eq!(mount_of(b"garbage\n\n", Path::new("/")), None);
    }

    #[test]
    fn ext4_without_journal_is_plain() {
        assert_eq!(durability("ext4", || true), Durability::Journal);
        assert_eq!(durability("ext4", || false), Durability::Plain);
        assert_eq!(durability("tmpfs", || false), Durability::Memory);
        assert_eq!(durability("overlay", || true), Durability::Unknown);
        assert!(!has_ext4_journal("/dev/no-such-disk"));
    }

    #[test]
    fn shared_memory_is_a_memory_file_system() {
        let shared = Path::new("/dev/shm");
        if shared.exists() {
            let found = FileSystem::of(shared).unwrap();
            assert_eq!(found.durability, Durability::Memory, "{found:?}");
        }
        assert!(FileSystem::of(Path::new("/nonexistent/floe")).is_err());
    }
}
