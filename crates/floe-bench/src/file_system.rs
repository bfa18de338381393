//! On what file system a directory lies, and whether a benchmark there means anything.
//!
//! On ext4 without a journal, creating files after others were deleted costs several times as
//! much as on one that has it, since the search for a free inode passes over all that were freed
//! in the last minutes. Users have journals, and benchmarks delete trees between their runs.

use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use crate::error::{BenchError, IoContext as _};

/// A mounted file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileSystem {
    /// Its type, as the kernel calls it.
    pub kind: String,
    /// What is mounted, such as a device.
    pub source: String,
    /// How it keeps what is written.
    pub durability: Durability,
}

/// How a file system keeps what is written to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// In memory.
    Memory,
    /// On a disk, with a journal or without overwriting.
    Journal,
    /// On a disk, and nothing else.
    Plain,
    /// Nobody can say from here.
    Unknown,
}

impl FileSystem {
    /// The file system of an existing directory.
    ///
    /// Errors: the directory cannot be found, or the kernel does not list its mounts.
    pub fn of(directory: &Path) -> Result<FileSystem, BenchError> {
        let directory = fs::canonicalize(directory).at("looking for", directory)?;
        let table = Path::new("/proc/self/mountinfo");
        let text = fs::read(table).at("reading", table)?;
        let (kind, source) = mount_of(&text, &directory).unwrap_or_default();
        let durability = durability(&kind, || has_ext4_journal(&source));
        Ok(FileSystem {
            kind,
            source,
            durability,
        })
    }

    /// The file system in a few words.
    pub fn describe(&self) -> String {
        let kind = &self.kind;
        match self.durability {
            Durability::Memory => kind.clone(),
            Durability::Journal if kind == "ext4" => format!("{kind} with a journal"),
            Durability::Journal => kind.clone(),
            Durability::Plain => format!("{kind} without a journal"),
            Durability::Unknown => format!("{kind}, of which nothing is known"),
        }
    }
}

/// Waits until everything written so far to the file system of a directory is on its disk, so
/// that a run does not pay for what the one before has left.
///
/// Errors: the directory cannot be opened, or the disk has failed.
pub fn sync(directory: &Path) -> Result<(), BenchError> {
    let opened = fs::File::open(directory).at("opening", directory)?;
    rustix::fs::syncfs(&opened).at("synchronising", directory)
}

/// How many bytes an ordinary user may still write to the file system of a directory.
///
/// Errors: the directory is not there.
pub fn free_bytes(directory: &Path) -> Result<u64, BenchError> {
    let found = rustix::fs::statvfs(directory).at("examining", directory)?;
    Ok(found.f_bavail.saturating_mul(found.f_frsize))
}

/// Type and source of the mount that a path lies in: the last of those with the longest mount
/// point. The format is that of proc_pid_mountinfo(5).
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
    // Optional fields end with a lone dash.
    let dash = fields.iter().skip(6).position(|field| *field == b"-")? + 6;
    let text = |at: usize| Some(String::from_utf8_lossy(fields.get(at)?).into_owned());
    let point = PathBuf::from(std::ffi::OsStr::from_bytes(&point));
    Some((point, (text(dash + 1)?, text(dash + 2)?)))
}

/// The kernel writes spaces and their like as three octal digits.
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

/// Every journal of an ext4 has a directory under /proc, named after its device.
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
    fn a_path_lies_in_the_last_mount_of_its_longest_mount_point() {
        assert_eq!(kind("/home/x"), "ext4");
        assert_eq!(kind("/mnt/a b/c"), "xfs");
        assert_eq!(kind("/mnt/a"), "btrfs");
        assert_eq!(kind("/mntx"), "ext4");
        assert_eq!(mount_of(b"garbage\n\n", Path::new("/")), None);
    }

    #[test]
    fn only_an_ext4_with_a_journal_counts_as_one() {
        assert_eq!(durability("ext4", || true), Durability::Journal);
        assert_eq!(durability("ext4", || false), Durability::Plain);
        assert_eq!(durability("tmpfs", || false), Durability::Memory);
        assert_eq!(durability("overlay", || true), Durability::Unknown);
        assert!(!has_ext4_journal("/dev/no-such-disk"));
    }

    #[test]
    fn the_file_system_of_shared_memory_is_in_memory() {
        let shared = Path::new("/dev/shm");
        if shared.exists() {
            let found = FileSystem::of(shared).unwrap();
            assert_eq!(found.durability, Durability::Memory, "{found:?}");
        }
        assert!(FileSystem::of(Path::new("/nonexistent/floe")).is_err());
    }
}
