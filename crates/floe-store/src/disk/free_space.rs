//! The free space of the file system of a directory.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{StatVfs, statfs, statvfs};

use crate::error::{IoContext as _, StoreError};

/// A file system, and the free space for this user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileSystem {
    /// The mount point: the highest parent of the directory on the same device.
    pub mount_point: PathBuf,
    /// The name of the file system type, if floe knows it.
    pub kind: Option<&'static str>,
    /// Bytes that this user may still write; `None` if the file system does not count.
    pub free_bytes: Option<u64>,
    /// The number of files, directories and links that this user may still create. `None` if the
    /// file system does not limit them, such as btrfs.
    pub free_inodes: Option<u64>,
    /// Whether each written byte occupies a byte of free space. False for unknown file systems:
    /// they may compress, share equal blocks, or store their files on a file system that does.
    pub allocates_every_byte: bool,
}

impl FileSystem {
    /// Returns the file system of a directory. If the directory does not exist, returns the file
    /// system on which it would be created.
    ///
    /// Errors: those of the system.
    pub fn of(directory: &Path) -> Result<FileSystem, StoreError> {
        let existing = lowest_existing(directory)?;
        let counts = statvfs(&existing).io_context("get the free space of", &existing)?;
        let magic = statfs(&existing).io_context("get the file system of", &existing)?;
        // The type of this field differs between machines. The value has 32 bits on all of them.
        let (kind, allocates_every_byte) = file_system_kind(magic.f_type as u32);
        let (free_bytes, free_inodes) = free(&counts, rustix::process::geteuid().is_root());
        Ok(FileSystem {
            mount_point: mount_point(&existing)?,
            kind,
            free_bytes,
            free_inodes,
            allocates_every_byte,
        })
    }
}

/// The bytes that this user may still write in an existing directory; `None` if the file system
/// does not count.
pub(crate) fn free_bytes(directory: &Path) -> Option<u64> {
    let counts = statvfs(directory).ok()?;
    free(&counts, rustix::process::geteuid().is_root()).0
}

/// The canonical path of the directory or of its lowest existing parent.
fn lowest_existing(directory: &Path) -> Result<PathBuf, StoreError> {
    let absolute = std::path::absolute(directory).io_context("resolve", directory)?;
    let there = absolute.ancestors().find(|path| path.exists());
    let there = there.unwrap_or(Path::new("/"));
    fs::canonicalize(there).io_context("resolve", there)
}

/// The highest parent on the same device.
fn mount_point(existing: &Path) -> Result<PathBuf, StoreError> {
    let device = |path: &Path| fs::metadata(path).map(|metadata| metadata.dev());
    let own = device(existing).io_context("examine", existing)?;
    let same = existing
        .ancestors()
        .take_while(|path| device(path).is_ok_and(|other| other == own));
    Ok(same.last().unwrap_or(existing).to_path_buf())
}

/// Returns the free bytes and inodes. Most file systems reserve space for root. A total of zero
/// means that the file system does not count.
fn free(counts: &StatVfs, is_root: bool) -> (Option<u64>, Option<u64>) {
    let (blocks, inodes) = if is_root {
        (counts.f_bfree, counts.f_ffree)
    } else {
        (counts.f_bavail, counts.f_favail)
    };
    let bytes = blocks.saturating_mul(counts.f_frsize);
    let bytes = (counts.f_blocks > 0).then_some(bytes);
    (bytes, (counts.f_files > 0).then_some(inodes))
}

/// Returns the name of a file system type, and whether each written byte occupies a byte.
fn file_system_kind(magic: u32) -> (Option<&'static str>, bool) {
    let found = FILE_SYSTEMS.iter().find(|(number, ..)| *number == magic);
    found.map_or((None, false), |(_, name, keeps)| (Some(*name), *keeps))
}

/// The numbers are from Linux's `magic.h`; those of zfs, xfs and ntfs3 are from their sources.
const FILE_SYSTEMS: [(u32, &str, bool); 14] = [
    (0xef53, "ext4", true),
    (0x5846_5342, "xfs", true),
    (0x0102_1994, "tmpfs", true),
    (0x4d44, "vfat", true),
    (0x2011_bab0, "exfat", true),
    (0x9123_683e, "btrfs", false),
    (0x2fc1_2fc1, "zfs", false),
    (0xca45_1a4e, "bcachefs", false),
    (0xf2f5_2010, "f2fs", false),
    (0x7366_746e, "ntfs3", false),
    (0x794c_7630, "overlay", false),
    (0x6969, "nfs", false),
    (0x0102_1997, "9p", false),
    (0x6573_5546, "fuse", false),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn counts() -> StatVfs {
        let mut counts = statvfs("/").unwrap();
        counts.f_frsize = 4096;
        (counts.f_blocks, counts.f_bfree, counts.f_bavail) = (100, 20, 15);
        (counts.f_files, counts.f_ffree, counts.f_favail) = (50, 7, 6);
        counts
    }

    #[test]
    fn reserved_blocks_are_free_only_for_root() {
        let found = |is_root| free(&counts(), is_root);
        assert_eq!(found(false), (Some(15 * 4096), Some(6)));
        assert_eq!(found(true), (Some(20 * 4096), Some(7)));
    }

    #[test]
    fn zero_totals_mean_not_counted() {
        let mut counts = counts();
        (counts.f_files, counts.f_ffree, counts.f_favail) = (0, 0, 0);
        assert_eq!(free(&counts, true).1, None);
        assert!(free(&counts, true).0.is_some());
        (counts.f_blocks, counts.f_bfree, counts.f_bavail) = (0, 0, 0);
        assert_eq!(free(&counts, true).0, None);
    }

    #[test]
    fn full_file_system_reports_zero_free() {
        let mut full = counts();
        (full.f_bavail, full.f_favail) = (0, 0);
        assert_eq!(free(&full, false), (Some(0), Some(0)));
    }

    #[test]
    fn missing_directory_uses_file_system_of_its_parent() {
        let scratch = tempfile::tempdir().unwrap();
        let found = FileSystem::of(scratch.path()).unwrap();
        let later = FileSystem::of(&scratch.path().join("not/there/yet")).unwrap();
        assert_eq!(
            (&later.mount_point, later.kind),
            (&found.mount_point, found.kind)
        );
        assert!(
            scratch
                .path()
                .canonicalize()
                .unwrap()
                .starts_with(&found.mount_point)
        );
    }

    #[test]
    fn tmpfs_is_reported_with_its_mount_point() {
        let shared = Path::new("/dev/shm");
        if shared.exists() {
            let found = FileSystem::of(&shared.join("nix/store")).unwrap();
            assert_eq!(
                (found.mount_point.as_path(), found.kind),
                (shared, Some("tmpfs"))
            );
            assert!(found.allocates_every_byte);
        }
    }
}
