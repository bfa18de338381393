//! Finds out what `optimise` would save. Hashes only files for which there is another of the same
//! size.

use std::collections::{HashMap, HashSet};
use std::ffi::CString;
use std::fs::{self, File, Metadata};
use std::io;
use std::num::NonZeroUsize;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use floe_format::Hash;
use floe_hash::hash_pool::{Stream, Worker};
use parking_lot::Mutex;
use rustix::fs::CWD;

use super::{OptimiseResults, hash_paths, inodes};
use crate::disk::list_directory;
use crate::disk::mount_id::{MountId, examine, mounted_error};
use crate::error::{IoContext as _, StoreError, is_not_found};
use crate::progress::Progress;
use crate::query::StoreReader;
use crate::tree::hash_tree;

/// The properties that two equal files have in common before they are read.
#[derive(Clone, Copy, PartialEq, Eq, std::hash::Hash)]
struct Shape {
    size: u64,
    is_executable: bool,
    is_symlink: bool,
}

impl StoreReader {
    /// Finds out what [`StoreWriter::optimise`](crate::StoreWriter::optimise) would link. Changes
    /// nothing.
    ///
    /// Errors: those of the database and of `.links`, and [`StoreError::Interrupted`].
    pub fn find_equal_files(
        &self,
        jobs: Option<NonZeroUsize>,
        progress: &dyn Progress,
    ) -> Result<OptimiseResults, StoreError> {
        let paths = self.database().paths_with_nar_sizes()?;
        let links = self.layout().links_dir();
        let mut shapes: HashMap<Shape, bool> = HashMap::new();
        let mut count = |found: Found<'_>| {
            if let Found::File(_, metadata) = found {
                let is_repeated = shapes.contains_key(&Shape::of(metadata));
                shapes.insert(Shape::of(metadata), is_repeated);
            }
        };
        for_each_file(&links, &mut count);
        for (path, _) in &paths {
            if !progress.should_continue() {
                return Err(StoreError::Interrupted);
            }
            for_each_file(&self.real_path(path), &mut count);
        }
        let search = Search {
            linked: self.linked_inodes()?,
            links,
            shapes,
            known: Mutex::default(),
            results: Mutex::default(),
        };
        hash_paths(paths, jobs, progress, &|path, worker| {
            for_each_file(&self.real_path(path), &mut |found| match found {
                Found::File(file, metadata) => search.examine(file, metadata, worker),
                Found::Mounted(place) => search.fail(mounted_error(place), place),
            });
        })?;
        Ok(OptimiseResults {
            damaged_rows: self.skipped_rows(),
            ..search.results.into_inner()
        })
    }

    fn linked_inodes(&self) -> Result<HashSet<u64>, StoreError> {
        let links = self.layout().links_dir();
        let opened = File::open(&links);
        if is_not_found(&opened) {
            return Ok(HashSet::new());
        }
        let opened = opened.io_context("open", &links)?;
        inodes(&opened.into()).io_context("list", &links)
    }
}

/// The search for files with equal contents.
struct Search {
    linked: HashSet<u64>,
    links: PathBuf,
    /// The shapes of all files, and whether several files have the shape.
    shapes: HashMap<Shape, bool>,
    /// The file to which the files with a hash would be linked.
    known: Mutex<HashMap<Hash, KnownFile>>,
    results: Mutex<OptimiseResults>,
}

/// The parts of the metadata that decide whether a file can be replaced by another.
#[derive(Clone, Copy, PartialEq, Eq)]
struct KnownFile {
    inode: u64,
    /// Mode, owner, group, and seconds of the time.
    replaceable: (u32, u32, u32, i64),
}

impl Search {
    fn fail(&self, source: io::Error, place: &Path) {
        let error = StoreError::Io {
            action: "link the files of",
            path: place.to_path_buf(),
            source,
        };
        self.results.lock().failures.push(error);
    }

    fn examine(&self, file: &Path, metadata: &Metadata, worker: &Worker) {
        if self.linked.contains(&metadata.ino()) {
            return;
        }
        if metadata.is_file() && metadata.mode() & 0o200 != 0 {
            self.results.lock().writable.push(file.to_path_buf());
            return;
        }
        if self.shapes.get(&Shape::of(metadata)) == Some(&false) {
            return;
        }
        let hash = match hash_tree(file, worker.stream(metadata.len())) {
            Ok((hash, _)) => hash,
            Err(error) => return self.results.lock().failures.push(error),
        };
        let own = KnownFile::of(metadata);
        let mut known = self.known.lock();
        let target = *known
            .entry(hash)
            .or_insert_with(|| self.existing_link(&hash).unwrap_or(own));
        drop(known);
        if target.inode != own.inode && target.replaceable == own.replaceable {
            let mut results = self.results.lock();
            results.files_linked += 1;
            results.bytes_freed += metadata.len();
        }
    }

    /// Returns the file in `.links` for a hash, unless it is damaged.
    fn existing_link(&self, hash: &Hash) -> Option<KnownFile> {
        let link = self.links.join(hash.digest_nix32());
        let metadata = fs::symlink_metadata(&link).ok()?;
        let found = hash_tree(&link, Stream::default());
        if found.is_ok_and(|(found, _)| found == *hash) {
            return Some(KnownFile::of(&metadata));
        }
        self.results.lock().damaged_links += 1;
        None
    }
}

impl KnownFile {
    fn of(metadata: &Metadata) -> KnownFile {
        KnownFile {
            inode: metadata.ino(),
            replaceable: (
                metadata.mode(),
                metadata.uid(),
                metadata.gid(),
                metadata.mtime(),
            ),
        }
    }
}

impl Shape {
    fn of(metadata: &Metadata) -> Shape {
        Shape {
            size: metadata.len(),
            is_executable: metadata.mode() & 0o100 != 0,
            is_symlink: metadata.is_symlink(),
        }
    }
}

/// An entry of a tree that is neither a directory nor special.
enum Found<'a> {
    /// A file or symbolic link.
    File(&'a Path, &'a Metadata),
    /// The place where another file system is mounted.
    Mounted(&'a Path),
}

/// Visits the files and symbolic links of a tree, and the other file systems that are mounted in
/// it, whose files do not belong to the store. Files that cannot be examined are left out.
fn for_each_file(path: &Path, visit: &mut dyn FnMut(Found<'_>)) {
    let mount = path.parent().and_then(mount_of);
    visit_tree(path, mount, visit);
}

fn visit_tree(path: &Path, mount: Option<MountId>, visit: &mut dyn FnMut(Found<'_>)) {
    let Ok(metadata) = fs::symlink_metadata(path) else {
        return;
    };
    if mount.is_some() && mount_of(path).is_some_and(|own| Some(own) != mount) {
        visit(Found::Mounted(path));
    } else if metadata.is_dir() {
        for entry in list_directory(path).into_iter().flatten().flatten() {
            visit_tree(entry.path(), mount, visit);
        }
    } else if metadata.is_file() || metadata.is_symlink() {
        visit(Found::File(path, &metadata));
    }
}

fn mount_of(path: &Path) -> Option<MountId> {
    let path = CString::new(path.as_os_str().as_bytes()).ok()?;
    examine(CWD, &path).ok()?.mount
}
