//! Unpacks a NAR into a tree on disk, as Nix would do it.
//!
//! 1. The strict NAR reader refuses each NAR that Nix refuses.
//! 2. Each file is created with its final mode, written, given its final time and closed.
//! 3. With `--optimise`, each file is linked with an equal file of the store, see `links`.
//! 4. A directory is sealed after its last entry.
//! 5. The tree stays beside its final place, under a name that collectors spare, until
//!    [`crate::StoreWriter::register`] renames it.
//!
//! Not guaranteed: that the data is on the disk. Like Nix in its default settings, floe does not
//! sync.

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use floe_format::StorePath;
use floe_format::nar::read::{NarError, NarEvent, NarReader};
use rustix::fs::{
    AtFlags, Dir, Mode, OFlags, Stat, Timespec, Timestamps, UTIME_OMIT, fchmod, fremovexattr,
    fstat, futimens, linkat, mkdirat, openat, statat, symlinkat, utimensat,
};
use rustix::io::Errno;

use super::dump::as_path;
use super::links::{FileHasher, LinkCandidate, TreeLinks, symlink_hash};
use super::temporary_tree::TemporaryTree;
use crate::disk::{UnfinishedFile, WrittenFile};
use crate::error::{IoContext, StoreError};

/// Writes the tree of one path under a temporary name. The tree is removed unless
/// [`TreeWriter::finish`] succeeds.
#[derive(Debug)]
pub struct TreeWriter {
    reader: NarReader,
    pub(super) builder: TreeBuilder,
}

impl TreeWriter {
    pub(crate) fn new(
        store: Arc<OwnedFd>,
        store_path: &Path,
        path: &StorePath,
        owner: &str,
        n: u64,
    ) -> Self {
        // The name begins with the hash part, so a collector that knows the temporary root of the
        // path spares it. It is also a valid base name, which collectors require. The name of the
        // roots file shows whether the writer is alive.
        let name = format!("{}-{owner}-{n}", path.hash_part());
        let tree = TemporaryTree {
            location: store_path.join(&name),
            path: path.clone(),
            name,
            exists: false,
            links: None,
        };
        let builder = TreeBuilder {
            tree,
            store,
            directories: Vec::new(),
            file: UnfinishedFile::default(),
            hasher: None,
            entry: Vec::new(),
            metadata: Metadata::Canonical,
        };
        TreeWriter {
            reader: NarReader::new(),
            builder,
        }
    }

    /// Links equal files of the tree and of the store.
    pub(crate) fn with_optimise(mut self, links: TreeLinks) -> TreeWriter {
        self.builder.tree.links = Some(links);
        self
    }

    /// Returns the name for a tree of which nothing exists yet.
    pub(crate) fn into_empty_tree(self) -> TemporaryTree {
        self.builder.tree
    }

    /// Writes the next bytes of the NAR.
    ///
    /// Errors: [`StoreError::Nar`] for bytes that Nix would refuse, and those of the system.
    pub fn write(&mut self, mut bytes: &[u8]) -> Result<(), StoreError> {
        loop {
            match self.reader.next(&mut bytes) {
                Ok(Some(event)) => self.builder.apply(event)?,
                Ok(None) => return Ok(()),
                Err(source) => return Err(nar_error(&self.builder.tree, source)),
            }
        }
    }

    /// Returns the complete, sealed tree. Call it after the last byte.
    ///
    /// Errors: [`StoreError::Nar`] if the NAR is not complete.
    pub fn finish(self) -> Result<TemporaryTree, StoreError> {
        match self.reader.finish() {
            Ok(()) => Ok(self.builder.tree),
            Err(source) => Err(nar_error(&self.builder.tree, source)),
        }
    }
}

fn nar_error(tree: &TemporaryTree, source: NarError) -> StoreError {
    StoreError::Nar {
        path: tree.path.clone(),
        source,
    }
}

/// The modes and times of the files of a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Metadata {
    /// Those of store paths.
    Canonical,
    /// Those of the files that this user creates.
    OfUser,
}

/// A tree that is being written, with its open files and directories.
#[derive(Debug)]
pub(super) struct TreeBuilder {
    store: Arc<OwnedFd>,
    /// The directories from the root of the tree to the current position.
    directories: Vec<OwnedFd>,
    pub(super) file: UnfinishedFile,
    /// The hasher of the open file, if equal files are linked.
    pub(super) hasher: Option<FileHasher>,
    /// The name of the next entry.
    entry: Vec<u8>,
    metadata: Metadata,
    /// The last field, because an unfinished tree is removed after its file and its directories
    /// are closed: NFS and FUSE rename an open file instead of removing it.
    pub(super) tree: TemporaryTree,
}

impl TreeBuilder {
    /// Makes a builder for a tree in an open directory outside of the store. The user may change
    /// the files of the tree.
    pub(super) fn outside_store(directory: OwnedFd, tree: TemporaryTree) -> TreeBuilder {
        TreeBuilder {
            tree,
            store: Arc::new(directory),
            directories: Vec::new(),
            file: UnfinishedFile::default(),
            hasher: None,
            entry: Vec::new(),
            metadata: Metadata::OfUser,
        }
    }

    pub(super) fn apply(&mut self, event: NarEvent<'_>) -> Result<(), StoreError> {
        self.choose_name();
        match event {
            NarEvent::Data(bytes) => self.write(bytes)?,
            NarEvent::Entry { name } => {
                self.entry.clear();
                self.entry.extend_from_slice(name);
            }
            NarEvent::File { executable, size } => {
                let links = self.tree.links.as_ref();
                self.hasher = links.map(|_| FileHasher::new(executable, size));
                self.create_file(executable)?;
            }
            NarEvent::EndFile => {
                if let Some(file) = self.file.take() {
                    self.end_file(file)?;
                }
                if let Some(hasher) = self.hasher.take() {
                    self.optimise_entry(&hasher.finish())?;
                }
            }
            NarEvent::Directory => self.create_directory()?,
            NarEvent::EndDirectory => {
                if let Some(directory) = self.directories.pop()
                    && self.is_canonical()
                {
                    seal_directory(&directory)
                        .io_context("seal a directory in", &self.tree.location)?;
                }
            }
            NarEvent::Symlink { target } => {
                self.create_symlink(target)?;
                if self.tree.links.is_some() {
                    self.optimise_entry(&symlink_hash(target))?;
                }
            }
            NarEvent::End => {}
        }
        self.tree.exists = true;
        Ok(())
    }

    fn is_canonical(&self) -> bool {
        self.metadata == Metadata::Canonical
    }

    fn choose_name(&mut self) {
        if !self.tree.exists {
            self.tree.location = self.tree.free_location();
        }
    }

    /// Creates the next node as a hard link to an existing file.
    pub(super) fn link_existing(
        &mut self,
        parent: BorrowedFd<'_>,
        name: &[u8],
    ) -> Result<(), Errno> {
        self.choose_name();
        let (to, to_name) = self.parent_and_name();
        linkat(parent, name, to, to_name, AtFlags::empty())?;
        self.tree.exists = true;
        Ok(())
    }

    /// Returns the metadata of the last node.
    pub(super) fn stat_last(&self) -> Result<Stat, Errno> {
        let (parent, name) = self.parent_and_name();
        statat(parent, name, AtFlags::SYMLINK_NOFOLLOW)
    }

    /// Returns the directory of the next node, and the name of the node.
    fn parent_and_name(&self) -> (BorrowedFd<'_>, &[u8]) {
        match self.directories.last() {
            Some(directory) => (directory.as_fd(), &self.entry),
            None => (self.store.as_fd(), self.tree.name.as_bytes()),
        }
    }

    /// The place of the next node, for error messages.
    fn location(&self) -> PathBuf {
        let (tree, entry) = (&self.tree.location, as_path(&self.entry));
        match self.directories.len() {
            0 => tree.clone(),
            1 => tree.join(entry),
            // The names of the inner directories are not stored, so the error names only tree and
            // entry.
            _ => tree.join("…").join(entry),
        }
    }

    fn create_file(&mut self, executable: bool) -> Result<(), StoreError> {
        let mode = Mode::from_raw_mode(match (self.metadata, executable) {
            (Metadata::Canonical, true) => 0o555,
            (Metadata::Canonical, false) => 0o444,
            (Metadata::OfUser, true) => 0o777,
            (Metadata::OfUser, false) => 0o666,
        });
        let (parent, name) = self.parent_and_name();
        let file = WrittenFile::create_at(parent, name, mode);
        let file = file.map_err(|error| self.explain(error));
        let file = file.io_context("create", self.location())?;
        let corrected = self.correct_mode(&file, mode, Mode::from_raw_mode(0o7777));
        self.file.put(file);
        corrected
    }

    /// Gives a complete file its time and closes it, before any name of a store refers to it.
    fn end_file(&self, file: WrittenFile) -> Result<(), StoreError> {
        let ended = file.complete(|file| {
            if self.is_canonical() {
                set_canonical_times(file)?;
            }
            Ok(())
        });
        ended.io_context("write", self.location())
    }

    /// Adds the reason to the error about an entry that exists. A NAR has each name once, but some
    /// file systems take different names for the same one.
    fn explain(&self, error: io::Error) -> io::Error {
        let (parent, name) = self.parent_and_name();
        let is_inside = !self.directories.is_empty();
        if is_inside
            && error.kind() == io::ErrorKind::AlreadyExists
            && let Ok(Some(other)) = other_name(parent, name)
        {
            return io::Error::new(error.kind(), FoldedName(other));
        }
        error
    }

    fn create_directory(&mut self) -> Result<(), StoreError> {
        let (parent, name) = self.parent_and_name();
        let mode = Mode::from_raw_mode(if self.is_canonical() { 0o755 } else { 0o777 });
        let open = || {
            mkdirat(parent, name, mode)?;
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            openat(parent, name, flags, Mode::empty())
        };
        let directory = open().map_err(|error| self.explain(error.into()));
        let directory = directory.io_context("create the directory", self.location())?;
        // With a umask such as 0277, this process could not create entries in the directory.
        self.correct_mode(&directory, mode, Mode::RWXU)?;
        self.directories.push(directory);
        Ok(())
    }

    /// Sets the mode of a new node if some of `bits` differ. The umask or an ACL of the parent may
    /// have cleared them. A library must not change the umask, because it belongs to all threads.
    fn correct_mode(&self, node: &impl AsFd, mode: Mode, bits: Mode) -> Result<(), StoreError> {
        if !self.is_canonical() {
            // The user's umask and ACLs decide.
            return Ok(());
        }
        if self.directories.is_empty() {
            // The tree must not inherit a default ACL of the store directory.
            strip_acls(node);
        }
        let stat = fstat(node).io_context("examine", self.location())?;
        if (Mode::from_raw_mode(stat.st_mode) ^ mode).intersects(bits) {
            fchmod(node, mode).io_context("set the mode of", self.location())?;
        }
        Ok(())
    }

    fn create_symlink(&mut self, target: &[u8]) -> Result<(), StoreError> {
        let (parent, name) = self.parent_and_name();
        let make = || {
            symlinkat(target, parent, name)?;
            if !self.is_canonical() {
                return Ok(());
            }
            utimensat(parent, name, &CANONICAL_TIMES, AtFlags::SYMLINK_NOFOLLOW)
        };
        let made = make().map_err(|error| self.explain(error.into()));
        made.io_context("create the symbolic link", self.location())
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        let Some(file) = self.file.get_mut() else {
            return Ok(());
        };
        if let Some(hasher) = &mut self.hasher {
            hasher.update(bytes);
        }
        let written = file.write_all(bytes);
        written.io_context("write", self.location())
    }

    /// Links the last file or symbolic link with an equal one of the store.
    pub(super) fn optimise_entry(&mut self, hash: &str) -> Result<(), StoreError> {
        let Some(mut links) = self.tree.links.take() else {
            return Ok(());
        };
        let (parent, name) = self.parent_and_name();
        let entry = LinkCandidate {
            parent,
            name,
            store: self.store.as_fd(),
            temporary: &format!("{}-link", self.tree.name),
        };
        let optimised = links.optimise(entry, hash);
        let optimised = optimised.io_context("link", self.location());
        self.tree.links = Some(links);
        optimised
    }
}

/// Returns another name of the file in the same directory.
fn other_name(directory: BorrowedFd<'_>, name: &[u8]) -> Result<Option<OsString>, Errno> {
    let file_id = |name: &[u8]| {
        let found = statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)?;
        Ok((found.st_dev, found.st_ino))
    };
    let wanted = file_id(name)?;
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        let other = entry.file_name().to_bytes();
        if other != name && file_id(other) == Ok(wanted) {
            return Ok(Some(OsString::from_vec(other.to_vec())));
        }
    }
    Ok(None)
}

/// The reason why a file system does not create an entry.
#[derive(Debug, thiserror::Error)]
#[error(
    "the file system takes the name for that of {0:?} in the same directory, because it ignores \
     case or folds characters; try a store on another file system"
)]
struct FoldedName(OsString);

/// Whether a directory has its final mode and time.
pub(super) fn is_sealed_directory(stat: &Stat) -> bool {
    let mode = Mode::from_raw_mode(stat.st_mode);
    mode == Mode::from_raw_mode(0o555) && stat.st_mtime == CANONICAL_TIMES.last_modification.tv_sec
}

/// Gives a complete directory its final mode and time.
pub(super) fn seal_directory(directory: &OwnedFd) -> Result<(), Errno> {
    fchmod(directory, Mode::from_raw_mode(0o555))?;
    set_canonical_times(directory)
}

pub(super) fn set_canonical_times(file: &impl AsFd) -> Result<(), Errno> {
    futimens(file, &CANONICAL_TIMES)
}

/// Removes the ACLs that a new file inherits from its directory. Fails without harm on file systems
/// without ACLs.
fn strip_acls(file: &impl AsFd) {
    for name in ["system.posix_acl_default", "system.posix_acl_access"] {
        let _: Result<(), Errno> = fremovexattr(file, name);
    }
}

/// The times of store files: Nix sets each modification time to one second after the epoch and
/// leaves access times unchanged.
pub(super) const CANONICAL_TIMES: Timestamps = Timestamps {
    last_access: Timespec {
        tv_sec: 0,
        tv_nsec: UTIME_OMIT,
    },
    last_modification: Timespec {
        tv_sec: 1,
        tv_nsec: 0,
    },
};

#[cfg(test)]
mod tests {
    use std::fs;

    use rustix::fs::CWD;

    use super::*;

    #[test]
    fn other_name_of_a_file_is_found() {
        let directory = tempfile::tempdir().unwrap();
        let place = |name: &str| directory.path().join(name);
        fs::write(place("README"), "").unwrap();
        fs::write(place("other"), "").unwrap();
        let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = openat(CWD, directory.path(), flags, Mode::empty()).unwrap();
        let found = |name: &str| other_name(opened.as_fd(), name.as_bytes());
        assert_eq!(found("README"), Ok(None));
        // A file system that folds names finds the file under both.
        fs::hard_link(place("README"), place("Readme")).unwrap();
        assert_eq!(found("Readme"), Ok(Some("README".into())));
        assert_eq!(found("absent"), Err(Errno::NOENT));
    }
}
