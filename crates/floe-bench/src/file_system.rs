//! The file system of a directory, and whether a benchmark on it is representative.
//!
//! On ext4 without a journal, creating files after a deletion costs several times as much as with
//! one: the search for a free inode skips all inodes freed in the last minutes. Users have
//! journals, and benchmarks delete trees between runs.

use std::fs;
use std::os::fd::AsRawFd as _;
use std::path::Path;

use rustix::fs::{Mode, OFlags};

use crate::error::{BenchError, IoContext as _};
use crate::machine::field;

/// A mounted file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileSystem {
    /// The kernel's name of its type, such as "ext4".
    pub kind: String,
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
        let opened = rustix::fs::open(directory, OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
        let opened = opened.at("find", directory)?;
        let info = format!("/proc/self/fdinfo/{}", opened.as_raw_fd());
        let id = field(&info, "mnt_id", ':').unwrap_or_default();
        let table = Path::new("/proc/self/mountinfo");
        let text = fs::read(table).at("read", table)?;
        let (kind, source) = mount(&String::from_utf8_lossy(&text), &id).unwrap_or_default();
        let durability = durability(&kind, || has_ext4_journal(&source));
        Ok(FileSystem { kind, durability })
    }

    /// Describes the file system in a few words.
    pub fn describe(&self) -> String {
        let kind = &self.kind;
        match self.durability {
            Durability::Journal if kind == "ext4" => format!("{kind} with a journal"),
            Durability::Memory | Durability::Journal => kind.clone(),
            Durability::Plain => format!("{kind} without a journal"),
            Durability::Unknown => format!("{kind}, an unknown file system"),
        }
    }
}

/// Writes all cached data of a directory's file system to its disk, so that a run does not pay for
/// the writes of an earlier one.
///
/// Errors: the directory cannot be opened, or the disk failed.
pub(crate) fn sync(directory: &Path) -> Result<(), BenchError> {
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

/// Type and source of a mount. The format of the table is that of proc_pid_mountinfo(5).
fn mount(table: &str, id: &str) -> Option<(String, String)> {
    let is_wanted = |line: &&str| line.split(' ').next() == Some(id);
    let line = table.lines().find(is_wanted)?;
    // A lone dash ends the optional fields.
    let (_, described) = line.split_once(" - ")?;
    let mut fields = described.split(' ');
    Some((fields.next()?.into(), fields.next()?.into()))
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
    let name = device.file_name().unwrap_or_default().to_string_lossy();
    let prefix = format!("{name}-");
    let mut entries = fs::read_dir("/proc/fs/jbd2")
        .into_iter()
        .flatten()
        .flatten();
    entries.any(|entry| entry.file_name().to_string_lossy().starts_with(&prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw,discard\n\
2 22 0:20 / /proc rw - proc proc rw\n\
30 22 0:25 / /mnt/a\\040b rw shared:7 master:1 - xfs /dev/vdb rw\n";

    #[test]
    fn mount_is_found_by_its_whole_number() {
        let kind = |id: &str| mount(TABLE, id).map(|(kind, _)| kind);
        assert_eq!(kind("22").as_deref(), Some("ext4"));
        assert_eq!(kind("2").as_deref(), Some("proc"));
        let mounted = mount(TABLE, "30").unwrap();
        assert_eq!(mounted, ("xfs".into(), "/dev/vdb".into()));
        assert_eq!(kind("3"), None);
        assert_eq!(mount("garbage\n\n22 \n", "22"), None);
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
