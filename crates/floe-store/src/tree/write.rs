//! A NAR → a tree on disk, as Nix would have left it.
//!
//! 1. bytes go through the strict NAR reader, which refuses what Nix refuses;
//! 2. each file is created with its final mode, written, stamped and closed;
//! 3. where equal files are to be one, it becomes one with those that are there, see `links`;
//! 4. a directory is sealed when its last entry is in;
//! 5. the whole lies beside its place, under a name that no collector takes for garbage,
//!    until [`crate::StoreWriter::register`] renames it.
//!
//! Not guaranteed: that anything has reached the disk. Like Nix in its default settings, floe
//! leaves that to the system.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use floe_format::StorePath;
use floe_format::nar::read::{Event, Reader};
use rustix::fs::{
    AtFlags, Mode, OFlags, Stat, Timespec, Timestamps, UTIME_OMIT, fchmod, fremovexattr, fstat,
    futimens, linkat, mkdirat, openat, statat, symlinkat, utimensat,
};

use super::links::{Entry, FileHasher, Links, TreeLinks, symlink_hash};
use crate::error::{At, StoreError};

pub use super::remove::remove_tree;
pub use super::temporary::TemporaryTree;

/// Writes one path's tree under a temporary name. What it has made is removed unless
/// [`TreeWriter::finish`] is reached.
#[derive(Debug)]
pub struct TreeWriter {
    reader: Reader,
    tree: TemporaryTree,
    open: Open,
}

impl TreeWriter {
    pub(crate) fn new(
        store: Arc<OwnedFd>,
        store_path: &Path,
        path: &StorePath,
        owner: &str,
        n: u64,
    ) -> Self {
        // The hash part in front makes every collector that knows the temporary root of the
        // path spare this name too. It is itself a valid base name, as they require. The file of
        // temporary roots behind it says whether its writer still lives.
        let name = format!("{}-{owner}-{n}", path.hash_part());
        let location = store_path.join(&name);
        let tree = TemporaryTree {
            location,
            path: path.clone(),
            name,
            made: false,
            links: None,
        };
        let open = Open {
            store,
            directories: Vec::new(),
            file: None,
            hasher: None,
            entry: Vec::new(),
        };
        TreeWriter {
            reader: Reader::new(),
            tree,
            open,
        }
    }

    /// Lets the files of the tree be one with equal files of the store.
    pub(crate) fn share_files(mut self, links: Links) -> TreeWriter {
        self.tree.links = Some(TreeLinks::new(links));
        self
    }

    /// The name of a tree, with nothing of that name yet.
    pub(crate) fn into_tree(self) -> TemporaryTree {
        self.tree
    }

    /// For a tree that is made from something else than a NAR.
    pub(super) fn into_parts(self) -> (Open, TemporaryTree) {
        (self.open, self.tree)
    }

    /// Takes the next bytes of the NAR.
    ///
    /// Errors: [`StoreError::Nar`] for bytes that Nix would refuse, or what the system says.
    pub fn write(&mut self, mut bytes: &[u8]) -> Result<(), StoreError> {
        let TreeWriter { reader, tree, open } = self;
        loop {
            match reader.next(&mut bytes) {
                Ok(Some(event)) => open.apply(event, tree)?,
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

    /// To be called after the last byte: the finished, sealed tree.
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

/// What is open while a tree is being written.
#[derive(Debug)]
pub(super) struct Open {
    store: Arc<OwnedFd>,
    /// The directories from the root of the tree to where the writing is.
    directories: Vec<OwnedFd>,
    file: Option<OwnedFd>,
    /// Of the open file, where equal files are to be one.
    hasher: Option<FileHasher>,
    /// The name of the entry whose node comes next.
    entry: Vec<u8>,
}

impl Open {
    pub(super) fn apply(
        &mut self,
        event: Event<'_>,
        tree: &mut TemporaryTree,
    ) -> Result<(), StoreError> {
        if !tree.made {
            tree.take_free_name();
        }
        self.follow(event, tree)?;
        tree.made = true;
        Ok(())
    }

    fn follow(&mut self, event: Event<'_>, tree: &mut TemporaryTree) -> Result<(), StoreError> {
        match event {
            Event::Data(bytes) => self.write(bytes, tree),
            Event::Entry { name } => {
                self.entry.clear();
                self.entry.extend_from_slice(name);
                Ok(())
            }
            Event::File { executable, size } => {
                self.hasher = (tree.links.as_ref()).map(|_| FileHasher::new(executable, size));
                self.create_file(executable, tree)
            }
            Event::EndFile => {
                if let Some(file) = self.file.take() {
                    stamp(&file).at("setting the time of a file in", &tree.location)?;
                }
                match self.hasher.take() {
                    Some(hasher) => self.share(&hasher.finish(), tree),
                    None => Ok(()),
                }
            }
            Event::Directory => self.create_directory(tree),
            Event::EndDirectory => match self.directories.pop() {
                Some(directory) => seal_directory(&directory, &tree.location),
                None => Ok(()),
            },
            Event::Symlink { target } => {
                self.create_symlink(target, tree)?;
                match tree.links {
                    Some(_) => self.share(&symlink_hash(target), tree),
                    None => Ok(()),
                }
            }
            Event::End => Ok(()),
        }
    }

    /// Lets the next node be a file that is elsewhere, under one more name.
    pub(super) fn link(
        &self,
        parent: BorrowedFd<'_>,
        name: &[u8],
        tree: &mut TemporaryTree,
    ) -> Result<(), rustix::io::Errno> {
        if !tree.made {
            tree.take_free_name();
        }
        let (to, to_name) = self.place(tree);
        linkat(parent, name, to, to_name, AtFlags::empty())?;
        tree.made = true;
        Ok(())
    }

    /// What the node is that was made last.
    pub(super) fn stat(&self, tree: &TemporaryTree) -> Result<Stat, rustix::io::Errno> {
        let (parent, name) = self.place(tree);
        statat(parent, name, AtFlags::SYMLINK_NOFOLLOW)
    }

    /// The file that is being written, to be put back.
    pub(super) fn take_file(&mut self) -> Option<OwnedFd> {
        self.file.take()
    }

    pub(super) fn put_file(&mut self, file: OwnedFd) {
        self.file = Some(file);
    }

    /// Hashes contents that came into the file by another way than through here.
    pub(super) fn hash(&mut self, contents: &[u8]) {
        if let Some(hasher) = &mut self.hasher {
            hasher.update(contents);
        }
    }

    /// The directory that the next node belongs into, and its name there.
    fn place<'a>(&'a self, tree: &'a TemporaryTree) -> (BorrowedFd<'a>, &'a [u8]) {
        match self.directories.last() {
            Some(directory) => (directory.as_fd(), &self.entry),
            None => (self.store.as_fd(), tree.name.as_bytes()),
        }
    }

    /// Where the next node belongs, for the words of an error.
    fn location(&self, tree: &TemporaryTree) -> PathBuf {
        use std::os::unix::ffi::OsStrExt as _;
        match self.directories.len() {
            0 => tree.location.clone(),
            1 => tree.location.join(std::ffi::OsStr::from_bytes(&self.entry)),
            // The names between are not kept: an error this deep says the tree and the name.
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
        let (parent, name) = self.place(tree);
        let file = openat(parent, name, flags, mode).at("creating", self.location(tree))?;
        if self.directories.is_empty() {
            strip_acls(&file);
        }
        // The process's umask and an ACL of the parent may have taken bits away. A library
        // must not touch the umask, which all threads share.
        let got = fstat(&file).at("examining", self.location(tree))?.st_mode & 0o7777;
        if got != mode.as_raw_mode() {
            fchmod(&file, mode).at("setting the mode of", self.location(tree))?;
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
                Err(error) => return Err(error).at("writing", self.location(tree)),
            }
        }
        Ok(())
    }

    /// Makes the file or symbolic link that was just completed one with its equals.
    pub(super) fn share(&mut self, hash: &str, tree: &mut TemporaryTree) -> Result<(), StoreError> {
        let temporary = format!("{}-link", tree.name);
        let Some(mut links) = tree.links.take() else {
            return Ok(());
        };
        let (parent, name) = self.place(tree);
        let entry = Entry {
            parent,
            name,
            store: self.store.as_fd(),
            temporary: &temporary,
        };
        let shared = links.share(entry, hash).at("linking", self.location(tree));
        tree.links = Some(links);
        shared
    }

    fn create_directory(&mut self, tree: &TemporaryTree) -> Result<(), StoreError> {
        let (parent, name) = self.place(tree);
        let open = || {
            mkdirat(parent, name, Mode::from_raw_mode(0o755))?;
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            openat(parent, name, flags, Mode::empty())
        };
        let directory = open().at("creating the directory", self.location(tree))?;
        if self.directories.is_empty() {
            // Whatever a default ACL of the store directory would hand down ends here.
            strip_acls(&directory);
        }
        // A umask such as 0277 would forbid what is to come.
        let got = fstat(&directory)
            .at("examining", self.location(tree))?
            .st_mode
            & 0o700;
        if got != 0o700 {
            let mode = Mode::from_raw_mode(0o755);
            fchmod(&directory, mode).at("setting the mode of", self.location(tree))?;
        }
        self.directories.push(directory);
        Ok(())
    }

    fn create_symlink(&mut self, target: &[u8], tree: &TemporaryTree) -> Result<(), StoreError> {
        let (parent, name) = self.place(tree);
        let make = || {
            symlinkat(target, parent, name)?;
            utimensat(parent, name, &STAMP, AtFlags::SYMLINK_NOFOLLOW)
        };
        make().at("creating the symbolic link", self.location(tree))
    }
}

/// Gives a finished directory its final mode and time.
fn seal_directory(directory: &OwnedFd, tree: &Path) -> Result<(), StoreError> {
    let seal = || {
        fchmod(directory, Mode::from_raw_mode(0o555))?;
        stamp(directory)
    };
    seal().at("sealing a directory in", tree)
}

fn stamp(file: &OwnedFd) -> Result<(), rustix::io::Errno> {
    futimens(file, &STAMP)
}

/// Removes the ACLs that a new file takes over from its directory. A file system without ACLs
/// has none to remove.
fn strip_acls(file: &OwnedFd) {
    for name in ["system.posix_acl_default", "system.posix_acl_access"] {
        let _: Result<(), rustix::io::Errno> = fremovexattr(file, name);
    }
}

/// Nix sets every modification time to one second after the epoch and leaves access times.
const STAMP: Timestamps = Timestamps {
    last_access: Timespec {
        tv_sec: 0,
        tv_nsec: UTIME_OMIT,
    },
    last_modification: Timespec {
        tv_sec: 1,
        tv_nsec: 0,
    },
};
