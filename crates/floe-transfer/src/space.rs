//! The space that a copy needs, compared with the free space of the target's file system.
//!
//! The plan is enough for an estimate, so the copy checks the space before the first download. It
//! refuses only what must fail, and warns of what may fail. The exact need is not known before the
//! NARs are unpacked: a narinfo has the size of the NAR and not the number of its files, and a file
//! system rounds the size of each file up.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use floe_format::{Compression, NarInfo};
use floe_store::FileSystem;

use crate::disk_space::{Resource, Shortage};
use crate::error::Error;
use crate::planned_path::PlannedPath;

/// The space that a copy needs, and the free space.
#[derive(Clone, Debug)]
pub struct Space {
    /// The directory that the copy writes to: that of a store's paths, or of a cache's NARs.
    pub directory: PathBuf,
    /// The file system of that directory, with its free space.
    pub file_system: FileSystem,
    /// The number of paths that the copy writes.
    pub paths: u64,
    /// The estimated space for their contents, in bytes.
    pub write_bytes: u64,
    /// The number of new files, directories and links. An estimate for a store.
    pub write_inodes: u64,
    /// A lower bound in bytes, unless the file system compresses.
    min_bytes: u64,
    /// Whether files may be shared with existing ones, which takes no space. Then no shortage is
    /// certain.
    pub may_share_files: bool,
}

impl Space {
    /// Estimates the needs of paths in a directory, and looks up the free space of its file system.
    /// A directory that does not exist yet counts as its nearest parent.
    pub fn estimate(
        directory: &Path,
        planned_paths: &[Arc<PlannedPath>],
        needs: impl Fn(&NarInfo) -> Needs,
    ) -> Result<Space, Error> {
        // A recovered tree already has its space.
        let written = || planned_paths.iter().filter(|planned| !planned.is_recovered);
        let sum = sum(written().map(|planned| needs(&planned.narinfo)));
        Ok(Space {
            file_system: FileSystem::of(directory)?,
            directory: directory.to_path_buf(),
            paths: written().count() as u64,
            write_bytes: sum.bytes,
            write_inodes: sum.inodes,
            min_bytes: sum.min_bytes,
            may_share_files: false,
        })
    }

    /// Whether the paths need at most half of the free space.
    pub fn is_ample(&self) -> bool {
        let is_ample = |wanted: u64, free: Option<u64>| free.is_none_or(|free| wanted <= free / 2);
        is_ample(self.write_bytes, self.file_system.free_bytes)
            && is_ample(self.write_inodes, self.file_system.free_inodes)
    }

    /// Returns the shortages, certain ones first.
    pub fn shortages(&self) -> Vec<Shortage> {
        let FileSystem {
            free_bytes,
            free_inodes,
            allocates_every_byte,
            ..
        } = self.file_system;
        let mut found = Vec::new();
        let own = !self.may_share_files;
        let bytes = [
            (self.min_bytes, allocates_every_byte && own),
            (self.write_bytes, false),
        ];
        // A path is at least one file.
        let inodes = [(self.paths, own), (self.write_inodes, false)];
        for (resource, free, needs) in [
            (Resource::Bytes, free_bytes, bytes),
            (Resource::Inodes, free_inodes, inodes),
        ] {
            let Some(free) = free else { continue };
            let short = needs.into_iter().find(|(wanted, _)| *wanted > free);
            found.extend(short.map(|(_, is_certain)| Shortage {
                directory: self.directory.clone(),
                mount_point: self.file_system.mount_point.clone(),
                kind: self.file_system.kind,
                resource,
                wanted: match (resource, is_certain) {
                    (Resource::Bytes, _) => self.write_bytes,
                    (Resource::Inodes, true) => self.paths,
                    (Resource::Inodes, false) => self.write_inodes,
                },
                free,
                is_certain,
            }));
        }
        found.sort_by_key(|shortage| !shortage.is_certain);
        found
    }
}

/// The space that one path needs, or several paths together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    bytes: u64,
    inodes: u64,
    min_bytes: u64,
}

fn sum(needs: impl Iterator<Item = Needs>) -> Needs {
    needs.fold(Needs::default(), |sum, one| Needs {
        bytes: sum.bytes.saturating_add(one.bytes),
        inodes: sum.inodes.saturating_add(one.inodes),
        min_bytes: sum.min_bytes.saturating_add(one.min_bytes),
    })
}

impl Needs {
    /// Estimates the needs of a path that is unpacked into a store.
    pub fn of_tree(narinfo: &NarInfo) -> Needs {
        let nar_size = plausible_size(narinfo.info.nar_size);
        let inodes = 1 + nar_size / NAR_BYTES_PER_INODE;
        Needs {
            bytes: nar_size + inodes * FILE_OVERHEAD,
            inodes,
            min_bytes: min_content_bytes(nar_size),
        }
    }

    /// Estimates the needs of a path in a binary cache: its compressed NAR and the other files, of
    /// which there are `inodes` together.
    pub fn of_nar_file(narinfo: &NarInfo, compression: Compression, inodes: u64) -> Needs {
        let nar_size = plausible_size(narinfo.info.nar_size);
        let (nar, min_bytes) = match compression {
            Compression::None => (nar_size, min_content_bytes(nar_size)),
            // The best guess is that the NAR compresses as well as it did in its source.
            _ => match (&narinfo.compression, narinfo.file_size) {
                (Compression::None, _) | (_, None) => (nar_size / COMPRESSION_RATIO, 0),
                (_, Some(size)) => (size.min(nar_size), 0),
            },
        };
        Needs {
            bytes: nar + inodes * FILE_OVERHEAD,
            inodes,
            min_bytes,
        }
    }
}

/// Returns a NAR size that may be true, or 0. A false size fails its own path later, and must not
/// fail the whole copy now.
fn plausible_size(nar_size: u64) -> u64 {
    if nar_size <= NAR_SIZE_MAX {
        nar_size
    } else {
        0
    }
}

/// Returns a lower bound for the contents of a NAR, without its framing. In the closures measured
/// below, 99 % of the NAR size are contents, and at least 83 % in each path above 1 MiB.
fn min_content_bytes(nar_size: u64) -> u64 {
    nar_size / 4 * 3
}

/// The NAR size for each file, directory and link in it. Measured in KiB: jq 37, curl 38, firefox
/// 33, kdenlive 25; 27 for all of them with 80 000 files. The estimate is therefore 0.8 to 1.2
/// times the real number for each of these closures.
const NAR_BYTES_PER_INODE: u64 = 32 * 1024;

/// The unused space at the end of a file: half a block of the common 4 KiB. For the same closures,
/// a disk with such blocks needs 1.05, 1.07, 1.09 and 1.10 times the NAR size; the estimate is
/// 1.06.
const FILE_OVERHEAD: u64 = 2 * 1024;

/// The compression ratio if nothing better is known. Measured on the same closures: zstd 2.4 to
/// 3.2, xz 3.1 to 4.5.
const COMPRESSION_RATIO: u64 = 3;

/// The largest plausible NAR size: 1 TiB.
const NAR_SIZE_MAX: u64 = 1 << 40;

#[cfg(test)]
mod tests;
