//! Hard links between equal files through `.links`, as `nix-store --optimise` makes them.
//!
//! 1. While a file is written, a hasher computes the hash of the file's own NAR beside the hash of
//!    the whole NAR.
//! 2. A complete file with final mode and time is linked to `.links/HASH` if that name is free.
//! 3. If the name exists, floe compares both files byte by byte. If they are equal, the existing
//!    file replaces the new one.
//!
//! Nix trusts the name in step 3 and compares only sizes. A file that was damaged after it got its
//! name would then become part of a path whose NAR was never hashed with it. A comparison is cheap
//! beside hashing. If the files differ, the new file replaces the damaged link.
//!
//! A collector may remove links without other users at any time. The new file then becomes the link
//! again. Once a file is linked, its contents stay, because the file itself is a second name.
//!
//! Not guaranteed: that equal files are linked. If the file system refuses a link, the file stays
//! as it was written.

use std::ffi::{CStr, OsStr};
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use floe_format::Hash;
use floe_format::nar::write;
use floe_hash::Sha256;
use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Mode, OFlags, Stat, linkat, openat, readlinkat, renameat, statat,
    unlinkat,
};
use rustix::io::Errno;

use crate::error::{IoContext as _, StoreError};

/// The links that a tree added to `.links`, kept until the tree is registered.
#[derive(Debug)]
pub(crate) struct TreeLinks {
    /// The directory `.links` of the store.
    directory: Arc<OwnedFd>,
    /// The names of added links.
    made: Vec<String>,
    /// The names of damaged links that were replaced.
    pub(super) damaged: Vec<String>,
}

/// Computes the hash of a file's own NAR. The NAR contains the executable bit, so an executable
/// file is never linked to equal bytes that are not executable.
#[derive(Debug)]
pub(super) struct FileHasher {
    hasher: Sha256,
    size: u64,
    framing: Vec<u8>,
}

/// A file or symbolic link of a tree that is being written. The entry is complete, its directory is
/// not yet sealed.
#[derive(Clone, Copy)]
pub(super) struct LinkCandidate<'a> {
    /// The directory of the entry, which is still writable.
    pub(super) parent: BorrowedFd<'a>,
    pub(super) name: &'a [u8],
    /// The store directory, and a name in it that no other writer uses.
    pub(super) store: BorrowedFd<'a>,
    pub(super) temporary: &'a str,
}

/// The state of the name of a hash in `.links`.
enum LinkState {
    /// Link and file both stay. The link is the file itself, which happens for a file of another
    /// store that was hard-linked into this one. Or the link has another mode, owner or time, or is
    /// not readable.
    Unusable,
    /// The link has the same contents and metadata, so it can replace the file.
    EqualContents,
    Damaged,
    /// A collector has removed the link.
    Gone,
}

/// Opens `.links`, which exists in every store.
pub(crate) fn open_links(directory: &Path) -> Result<Arc<OwnedFd>, StoreError> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = openat(CWD, directory, flags, Mode::empty());
    Ok(Arc::new(opened.io_context("open", directory)?))
}

impl TreeLinks {
    pub(crate) fn new(directory: Arc<OwnedFd>) -> TreeLinks {
        TreeLinks {
            directory,
            made: Vec::new(),
            damaged: Vec::new(),
        }
    }

    /// Replaces an entry by the link with the same hash, or makes the entry that link.
    pub(super) fn optimise(&mut self, entry: LinkCandidate<'_>, hash: &str) -> Result<(), Errno> {
        for _ in 0..ATTEMPTS_MAX {
            if self.create_link(entry, hash)? {
                return Ok(());
            }
            match self.inspect_link(entry, hash)? {
                LinkState::Unusable => return Ok(()),
                LinkState::Gone => {}
                LinkState::Damaged => {
                    self.damaged.push(hash.to_owned());
                    ignore_not_found(unlinkat(&self.directory, hash, AtFlags::empty()))?;
                }
                LinkState::EqualContents => match self.replace_with_link(entry, hash) {
                    Err(Errno::NOENT) => {}
                    result => return result,
                },
            }
        }
        // Another process removes the link after each attempt, so the file stays as it is.
        Ok(())
    }

    /// Links the entry to its name in `.links`. Returns `false` if the name exists.
    fn create_link(&mut self, entry: LinkCandidate<'_>, hash: &str) -> Result<bool, Errno> {
        let flags = AtFlags::empty();
        match linkat(entry.parent, entry.name, &self.directory, hash, flags) {
            Ok(()) => {
                self.made.push(hash.to_owned());
                Ok(true)
            }
            Err(Errno::EXIST) => Ok(false),
            Err(error) if cannot_link(error) => Ok(true),
            Err(error) => Err(error),
        }
    }

    /// Replaces the entry by the link.
    fn replace_with_link(&self, entry: LinkCandidate<'_>, hash: &str) -> Result<(), Errno> {
        let (store, temporary) = (entry.store, entry.temporary);
        match linkat(&self.directory, hash, store, temporary, AtFlags::empty()) {
            // The temporary name belongs to a process of another PID namespace, or to a dead one.
            Err(Errno::EXIST) => return Ok(()),
            Err(error) if cannot_link(error) => return Ok(()),
            linked => linked?,
        }
        let renamed = renameat(store, temporary, entry.parent, entry.name);
        // The rename does nothing if both names already belong to the same file. Another process
        // may have made the link from this very file, so the temporary name is removed here.
        ignore_not_found(unlinkat(store, temporary, AtFlags::empty()))?;
        match renamed {
            Err(error) if !cannot_link(error) => Err(error),
            _ => Ok(()),
        }
    }

    fn inspect_link(&self, entry: LinkCandidate<'_>, hash: &str) -> Result<LinkState, Errno> {
        let flags = AtFlags::SYMLINK_NOFOLLOW;
        let link = match statat(&self.directory, hash, flags) {
            Err(Errno::NOENT) => return Ok(LinkState::Gone),
            link => link?,
        };
        let own = statat(entry.parent, entry.name, flags)?;
        let kind = |stat: &Stat| FileType::from_raw_mode(stat.st_mode);
        let is_same_inode = (link.st_dev, link.st_ino) == (own.st_dev, own.st_ino);
        if is_same_inode || kind(&link) == FileType::Directory {
            return Ok(LinkState::Unusable);
        }
        if kind(&link) != kind(&own) || link.st_size != own.st_size {
            return Ok(LinkState::Damaged);
        }
        if comparable_metadata(&link) != comparable_metadata(&own) {
            return Ok(LinkState::Unusable);
        }
        let same = match kind(&own) {
            FileType::Symlink => same_target(entry, self.directory.as_fd(), hash),
            _ => same_contents(entry, self.directory.as_fd(), hash),
        };
        match same {
            Ok(true) => Ok(LinkState::EqualContents),
            Ok(false) => Ok(LinkState::Damaged),
            Err(Errno::NOENT) => Ok(LinkState::Gone),
            // A link that cannot be read cannot be used. This does not make the tree invalid.
            Err(_) => Ok(LinkState::Unusable),
        }
    }

    /// Removes the added links that no other file uses, after the removal of the tree.
    pub(super) fn remove_unused(&mut self) {
        for name in self.made.drain(..) {
            let stat = statat(&self.directory, &name, AtFlags::SYMLINK_NOFOLLOW);
            if stat.is_ok_and(|stat| stat.st_nlink == 1) {
                // After a failure, the next collection removes the link.
                let _: Result<(), Errno> = unlinkat(&self.directory, &name, AtFlags::empty());
            }
        }
    }
}

/// The result of [`remove_unused_links`].
#[derive(Debug, Default)]
pub(crate) struct UnusedLinks {
    /// The number of links that were removed.
    pub(crate) removed: u64,
    /// How many bytes the other links save.
    pub(crate) bytes_saved: u64,
    /// The links that could not be removed.
    pub(crate) failures: Vec<(PathBuf, io::Error)>,
}

/// Removes the links that no path uses, as a garbage collection does. Another process may take a
/// link just before its removal; its file then stays as it is.
///
/// Errors: the directory cannot be listed, or is a symbolic link.
pub(crate) fn remove_unused_links(path: &Path) -> Result<UnusedLinks, StoreError> {
    let mut links = UnusedLinks::default();
    let directory = match open_links(path) {
        Err(StoreError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
            return Ok(links);
        }
        directory => directory?,
    };
    for entry in Dir::read_from(&directory).io_context("list", path)? {
        let name = entry.io_context("list", path)?.file_name().to_owned();
        if let Err(error) = links.examine(&directory, &name) {
            let link = path.join(OsStr::from_bytes(name.to_bytes()));
            links.failures.push((link, error.into()));
        }
    }
    Ok(links)
}

impl UnusedLinks {
    fn examine(&mut self, directory: &OwnedFd, name: &CStr) -> Result<(), Errno> {
        let stat = match statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => return Ok(()),
            stat => stat?,
        };
        if FileType::from_raw_mode(stat.st_mode).is_dir() {
            return Ok(());
        }
        if stat.st_nlink > 1 {
            // One of the names is the link itself, and one file would exist without it.
            let others = i64::try_from(stat.st_nlink).unwrap_or(0) - 2;
            let saved = u64::try_from(others.saturating_mul(stat.st_size)).unwrap_or(0);
            self.bytes_saved = self.bytes_saved.saturating_add(saved);
            return Ok(());
        }
        match unlinkat(directory, name, AtFlags::empty()) {
            Err(Errno::NOENT) => {}
            removed => {
                removed?;
                self.removed += 1;
            }
        }
        Ok(())
    }
}

impl FileHasher {
    pub(super) fn new(executable: bool, size: u64) -> FileHasher {
        let mut framing = Vec::with_capacity(FRAMING_LEN);
        write::begin(&mut framing);
        write::begin_file(&mut framing, executable, size);
        let mut hasher = Sha256::new();
        hasher.update(&framing);
        FileHasher {
            hasher,
            size,
            framing,
        }
    }

    pub(super) fn update(&mut self, contents: &[u8]) {
        self.hasher.update(contents);
    }

    /// Returns the name of the file in `.links`.
    pub(super) fn finish(mut self) -> String {
        self.framing.clear();
        write::end_file(&mut self.framing, self.size);
        self.hasher.update(&self.framing);
        Hash::sha256(self.hasher.finish()).digest_nix32()
    }
}

/// Returns the name of a symbolic link in `.links`.
pub(super) fn symlink_hash(target: &[u8]) -> String {
    let mut nar = Vec::new();
    write::begin(&mut nar);
    write::symlink(&mut nar, target);
    Hash::sha256(floe_hash::sha256(&nar)).digest_nix32()
}

/// The metadata that would change if one file replaced the other.
fn comparable_metadata(stat: &Stat) -> impl PartialEq + use<> {
    let time = (stat.st_mtime, stat.st_mtime_nsec);
    (stat.st_mode, stat.st_uid, stat.st_gid, time)
}

fn same_target(entry: LinkCandidate<'_>, links: BorrowedFd<'_>, hash: &str) -> Result<bool, Errno> {
    let own = readlinkat(entry.parent, entry.name, Vec::new())?;
    Ok(own == readlinkat(links, hash, Vec::new())?)
}

fn same_contents(
    entry: LinkCandidate<'_>,
    links: BorrowedFd<'_>,
    hash: &str,
) -> Result<bool, Errno> {
    // Without `NONBLOCK`, opening a named pipe would wait for a writer.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let own = openat(entry.parent, entry.name, flags, Mode::empty())?;
    let link = openat(links, hash, flags, Mode::empty())?;
    let (mut ours, mut theirs) = (vec![0; PIECE_LEN], vec![0; PIECE_LEN]);
    loop {
        let len = read_full(&own, &mut ours)?;
        if read_full(&link, &mut theirs)? != len || ours[..len] != theirs[..len] {
            return Ok(false);
        }
        if len < PIECE_LEN {
            return Ok(true);
        }
    }
}

/// Reads until the buffer is full or the file has ended.
fn read_full(file: &OwnedFd, buffer: &mut [u8]) -> Result<usize, Errno> {
    let mut len = 0;
    while len < buffer.len() {
        match rustix::io::read(file, &mut buffer[len..]) {
            Ok(0) => break,
            Ok(read) => len += read,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(len)
}

/// Whether the file system or this user's rights allow no further link. ext4 reports a full
/// directory index as `NOSPC`. If the disk is really full, the next file fails.
fn cannot_link(error: Errno) -> bool {
    matches!(
        error,
        Errno::MLINK | Errno::NOSPC | Errno::DQUOT | Errno::PERM | Errno::XDEV | Errno::OPNOTSUPP
    )
}

fn ignore_not_found(result: Result<(), Errno>) -> Result<(), Errno> {
    match result {
        Err(Errno::NOENT) => Ok(()),
        result => result,
    }
}

/// A collector removes a link once in a collection. More removals are not chance.
const ATTEMPTS_MAX: usize = 8;

/// Two pieces fit into the second-level cache.
const PIECE_LEN: usize = 64 * 1024;

/// The longest framing before contents: that of an executable file.
const FRAMING_LEN: usize = 144;
