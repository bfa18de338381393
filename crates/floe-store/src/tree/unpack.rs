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

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use floe_format::StorePath;
use floe_format::nar::read::{NarEvent, NarReader};
use rustix::fs::{
    AtFlags, Mode, OFlags, Stat, Timespec, Timestamps, UTIME_OMIT, fchmod, fremovexattr, fstat,
    futimens, linkat, mkdirat, openat, statat, symlinkat, utimensat,
};

use super::links::{FileHasher, LinkCandidate, LinksDir, TreeLinks, symlink_hash};
use super::temporary_tree::TemporaryTree;
use crate::error::{IoContext, StoreError};

/// Writes the tree of one path under a temporary name. The tree is removed unless
/// [`TreeWriter::finish`] succeeds.
#[derive(Debug)]
pub struct TreeWriter {
    reader: NarReader,
    tree: TemporaryTree,
    state: UnpackState,
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
        let location = store_path.join(&name);
        let tree = TemporaryTree {
            location,
            path: path.clone(),
            name,
            exists: false,
            links: None,
        };
        let state = UnpackState {
            store,
            directories: Vec::new(),
            file: None,
            hasher: None,
            entry: Vec::new(),
        };
        TreeWriter {
            reader: NarReader::new(),
            tree,
            state,
        }
    }

    /// Links equal files of the tree and of the store.
    pub(crate) fn with_optimise(mut self, links: LinksDir) -> TreeWriter {
        self.tree.links = Some(TreeLinks::new(links));
        self
    }

    /// Returns the name for a tree of which nothing exists yet.
    pub(crate) fn into_empty_tree(self) -> TemporaryTree {
        self.tree
    }

    /// Returns the parts for a tree that is not made from a NAR.
    pub(super) fn into_parts(self) -> (UnpackState, TemporaryTree) {
        (self.state, self.tree)
    }

    /// Writes the next bytes of the NAR.
    ///
    /// Errors: [`StoreError::Nar`] for bytes that Nix would refuse, and those of the system.
    pub fn write(&mut self, mut bytes: &[u8]) -> Result<(), StoreError> {
        let TreeWriter {
            reader,
            tree,
            state,
        } = self;
        loop {
            match reader.next(&mut bytes) {
                Ok(Some(event)) => state.apply(event, tree)?,
                Ok(None) => return Ok(()),
                Err(source) => {
                    return Err(StoreError::Nar {
                        path: tree.path.clone(),
                        source,
                    });
                }
            }
        }
    }

    /// Returns the complete, sealed tree. Call it after the last byte.
    ///
    /// Errors: [`StoreError::Nar`] if the NAR is not complete.
    pub fn finish(self) -> Result<TemporaryTree, StoreError> {
        match self.reader.finish() {
            Ok(()) => Ok(self.tree),
            Err(source) => Err(StoreError::Nar {
                path: self.tree.path.clone(),
                source,
            }),
        }
    }
}

/// The open files and directories of a tree that is being written.
#[derive(Debug)]
pub(super) struct UnpackState {
    store: Arc<OwnedFd>,
    /// The directories from the root of the tree to the current position.
    directories: Vec<OwnedFd>,
    file: Option<OwnedFd>,
    /// The hasher of the open file, if equal files are linked.
    hasher: Option<FileHasher>,
    /// The name of the next entry.
    entry: Vec<u8>,
}

impl UnpackState {
    pub(super) fn apply(
        &mut self,
        event: NarEvent<'_>,
        tree: &mut TemporaryTree,
    ) -> Result<(), StoreError> {
        if !tree.exists {
            tree.choose_free_name();
        }
        self.apply_event(event, tree)?;
        tree.exists = true;
        Ok(())
    }

    fn apply_event(
        &mut self,
        event: NarEvent<'_>,
        tree: &mut TemporaryTree,
    ) -> Result<(), StoreError> {
        match event {
            NarEvent::Data(bytes) => self.write(bytes, tree),
            NarEvent::Entry { name } => {
                self.entry.clear();
                self.entry.extend_from_slice(name);
                Ok(())
            }
            NarEvent::File { executable, size } => {
                self.hasher = (tree.links.as_ref()).map(|_| FileHasher::new(executable, size));
                self.create_file(executable, tree)
            }
            NarEvent::EndFile => {
                if let Some(file) = self.file.take() {
                    set_canonical_times(&file)
                        .io_context("setting the time of a file in", &tree.location)?;
                }
                match self.hasher.take() {
                    Some(hasher) => self.optimise_entry(&hasher.finish(), tree),
                    None => Ok(()),
                }
            }
            NarEvent::Directory => self.create_directory(tree),
            NarEvent::EndDirectory => match self.directories.pop() {
                Some(directory) => seal_directory(&directory, &tree.location),
                None => Ok(()),
            },
            NarEvent::Symlink { target } => {
                self.create_symlink(target, tree)?;
                match tree.links {
                    Some(_) => self.optimise_entry(&symlink_hash(target), tree),
                    None => Ok(()),
                }
            }
            NarEvent::End => Ok(()),
        }
    }

    /// Creates the next node as a hard link to an existing file.
    pub(super) fn link_existing(
        &self,
        parent: BorrowedFd<'_>,
        name: &[u8],
        tree: &mut TemporaryTree,
    ) -> Result<(), rustix::io::Errno> {
        if !tree.exists {
            tree.choose_free_name();
        }
        let (to, to_name) = self.parent_and_name(tree);
        linkat(parent, name, to, to_name, AtFlags::empty())?;
        tree.exists = true;
        Ok(())
    }

    /// Returns the metadata of the last node.
    pub(super) fn stat_last(&self, tree: &TemporaryTree) -> Result<Stat, rustix::io::Errno> {
        let (parent, name) = self.parent_and_name(tree);
        statat(parent, name, AtFlags::SYMLINK_NOFOLLOW)
    }

    /// Removes and returns the open file. The caller puts it back.
    pub(super) fn take_file(&mut self) -> Option<OwnedFd> {
        self.file.take()
    }

    pub(super) fn put_file(&mut self, file: OwnedFd) {
        self.file = Some(file);
    }

    /// Hashes contents that were cloned into the file instead of written.
    pub(super) fn hash_contents(&mut self, contents: &[u8]) {
        if let Some(hasher) = &mut self.hasher {
            hasher.update(contents);
        }
    }

    /// Returns the directory of the next node, and the name of the node.
    fn parent_and_name<'a>(&'a self, tree: &'a TemporaryTree) -> (BorrowedFd<'a>, &'a [u8]) {
        match self.directories.last() {
            Some(directory) => (directory.as_fd(), &self.entry),
            None => (self.store.as_fd(), tree.name.as_bytes()),
        }
    }

    /// The place of the next node, for error messages.
    fn location(&self, tree: &TemporaryTree) -> PathBuf {
        use std::os::unix::ffi::OsStrExt as _;
        match self.directories.len() {
            0 => tree.location.clone(),
            1 => tree.location.join(std::ffi::OsStr::from_bytes(&self.entry)),
            // The names of the inner directories are not stored, so the error names only tree and
            // entry.
            _ => tree
                .location
                .join("…")
                .join(std::ffi::OsStr::from_bytes(&self.entry)),
        }
    }

    fn create_file(&mut self, executable: bool, tree: &TemporaryTree) -> Result<(), StoreError> {
        let mode = Mode::from_raw_mode(if executable { 0o555 } else { 0o444 });
        let flags =
            OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let (parent, name) = self.parent_and_name(tree);
        let file = openat(parent, name, flags, mode).io_context("creating", self.location(tree))?;
        if self.directories.is_empty() {
            strip_acls(&file);
        }
        // The umask or an ACL of the parent may have cleared bits. A library must not change the
        // umask, because it belongs to all threads.
        let got = fstat(&file)
            .io_context("examining", self.location(tree))?
            .st_mode
            & 0o7777;
        if got != mode.as_raw_mode() {
            fchmod(&file, mode).io_context("setting the mode of", self.location(tree))?;
        }
        self.file = Some(file);
        Ok(())
    }

    fn write(&mut self, mut bytes: &[u8], tree: &TemporaryTree) -> Result<(), StoreError> {
        let Some(file) = &self.file else {
            return Ok(());
        };
        if let Some(hasher) = &mut self.hasher {
            hasher.update(bytes);
        }
        while !bytes.is_empty() {
            match rustix::io::write(file, bytes) {
                Ok(written) => bytes = &bytes[written..],
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error).io_context("writing", self.location(tree)),
            }
        }
        Ok(())
    }

    /// Links the last file or symbolic link with an equal one of the store.
    pub(super) fn optimise_entry(
        &mut self,
        hash: &str,
        tree: &mut TemporaryTree,
    ) -> Result<(), StoreError> {
        let temporary = format!("{}-link", tree.name);
        let Some(mut links) = tree.links.take() else {
            return Ok(());
        };
        let (parent, name) = self.parent_and_name(tree);
        let entry = LinkCandidate {
            parent,
            name,
            store: self.store.as_fd(),
            temporary: &temporary,
        };
        let optimised = links
            .optimise(entry, hash)
            .io_context("linking", self.location(tree));
        tree.links = Some(links);
        optimised
    }

    fn create_directory(&mut self, tree: &TemporaryTree) -> Result<(), StoreError> {
        let (parent, name) = self.parent_and_name(tree);
        let open = || {
            mkdirat(parent, name, Mode::from_raw_mode(0o755))?;
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            openat(parent, name, flags, Mode::empty())
        };
        let directory = open().io_context("creating the directory", self.location(tree))?;
        if self.directories.is_empty() {
            // The directory must not pass on a default ACL of the store directory.
            strip_acls(&directory);
        }
        // With a umask such as 0277, this process could not create entries in the directory.
        let got = fstat(&directory)
            .io_context("examining", self.location(tree))?
            .st_mode
            & 0o700;
        if got != 0o700 {
            let mode = Mode::from_raw_mode(0o755);
            fchmod(&directory, mode).io_context("setting the mode of", self.location(tree))?;
        }
        self.directories.push(directory);
        Ok(())
    }

    fn create_symlink(&mut self, target: &[u8], tree: &TemporaryTree) -> Result<(), StoreError> {
        let (parent, name) = self.parent_and_name(tree);
        let make = || {
            symlinkat(target, parent, name)?;
            utimensat(parent, name, &CANONICAL_TIMES, AtFlags::SYMLINK_NOFOLLOW)
        };
        make().io_context("creating the symbolic link", self.location(tree))
    }
}

/// Gives a complete directory its final mode and time.
fn seal_directory(directory: &OwnedFd, tree: &Path) -> Result<(), StoreError> {
    let seal = || {
        fchmod(directory, Mode::from_raw_mode(0o555))?;
        set_canonical_times(directory)
    };
    seal().io_context("sealing a directory in", tree)
}

fn set_canonical_times(file: &OwnedFd) -> Result<(), rustix::io::Errno> {
    futimens(file, &CANONICAL_TIMES)
}

/// Removes the ACLs that a new file inherits from its directory. Fails without harm on file systems
/// without ACLs.
fn strip_acls(file: &OwnedFd) {
    for name in ["system.posix_acl_default", "system.posix_acl_access"] {
        let _: Result<(), rustix::io::Errno> = fremovexattr(file, name);
    }
}

/// The times of store files: Nix sets each modification time to one second after the epoch and
/// leaves access times unchanged.
const CANONICAL_TIMES: Timestamps = Timestamps {
    last_access: Timespec {
        tv_sec: 0,
        tv_nsec: UTIME_OMIT,
    },
    last_modification: Timespec {
        tv_sec: 1,
        tv_nsec: 0,
    },
};
