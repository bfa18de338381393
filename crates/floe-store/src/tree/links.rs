//! Equal files that are one: hard links through `.links`, as `nix-store --optimise` makes them.
//!
//! 1. while a file is written, the hash of its own NAR is computed beside that of the whole;
//! 2. when it is complete and stamped, it becomes `.links/HASH`, if nothing has that name;
//! 3. else what has it takes the file's place, after a comparison byte by byte.
//!
//! Nix trusts the name in step 3 and looks at sizes alone. A file that was damaged after it had
//! got its name would then become part of a path whose NAR was never hashed with it. To compare is
//! cheap beside hashing, and what differs is replaced by the good file.
//!
//! A collector takes away links that nothing else uses, at any moment: then the file becomes the
//! link again. What has just been linked to it cannot take away, since the file itself stays.
//!
//! Not guaranteed: that equal files are one. What the file system refuses stays as it was written.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use floe_format::Hash;
use floe_format::nar::write;
use floe_hash::Sha256;
use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, Stat, linkat, openat, readlinkat, renameat, statat,
    unlinkat,
};
use rustix::io::Errno;

/// The directory `.links` of a store.
#[derive(Clone, Debug)]
pub(crate) struct LinksDir(Arc<OwnedFd>);

/// The links that one tree has brought, for as long as it may still be given up.
#[derive(Debug)]
pub(crate) struct TreeLinks {
    links: LinksDir,
    /// Their names.
    made: Vec<String>,
    /// The names of those that were damaged, and were replaced.
    damaged: Vec<String>,
}

/// The hash of a file's own NAR, of which its mode is a part: so a program is never linked to the
/// same bytes that are none.
#[derive(Debug)]
pub(super) struct FileHasher {
    hasher: Sha256,
    size: u64,
    framing: Vec<u8>,
}

/// A file or symbolic link in a tree that is being written, complete but for its directory.
#[derive(Clone, Copy)]
pub(super) struct LinkCandidate<'a> {
    /// The directory that it is in, which is still writable.
    pub(super) parent: BorrowedFd<'a>,
    pub(super) name: &'a [u8],
    /// The directory of the store, and a name there that nobody else uses.
    pub(super) store: BorrowedFd<'a>,
    pub(super) temporary: &'a str,
}

/// What lies in `.links` under the name of a hash.
enum LinkState {
    /// The file itself, which came with a name there: one of another store, linked into this one.
    SameInode,
    /// The same as the file, so that it can take its place.
    EqualContents,
    /// Equal or not, it has another mode, owner or time: it stays, and so does the file.
    Incompatible,
    Damaged,
    /// A collector was faster.
    Gone,
}

impl LinksDir {
    /// Opens `.links`, which is there in every store.
    pub(crate) fn open(directory: &Path) -> Result<LinksDir, Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let directory = openat(CWD, directory, flags, Mode::empty())?;
        Ok(LinksDir(Arc::new(directory)))
    }
}

impl TreeLinks {
    pub(crate) fn new(links: LinksDir) -> TreeLinks {
        TreeLinks {
            links,
            made: Vec::new(),
            damaged: Vec::new(),
        }
    }

    /// The names of links that were not what they say, and were replaced.
    pub(super) fn damaged(&self) -> &[String] {
        &self.damaged
    }

    /// Makes an entry one with what has the same hash already, or the first that has it.
    pub(super) fn optimise(&mut self, entry: LinkCandidate<'_>, hash: &str) -> Result<(), Errno> {
        for _ in 0..ATTEMPTS_MAX {
            if self.create_link(entry, hash)? {
                return Ok(());
            }
            match self.inspect_link(entry, hash)? {
                LinkState::SameInode | LinkState::Incompatible => return Ok(()),
                LinkState::Gone => {}
                LinkState::Damaged => {
                    self.damaged.push(hash.to_owned());
                    ignore_not_found(unlinkat(&self.links.0, hash, AtFlags::empty()))?;
                }
                LinkState::EqualContents => match self.replace_with_link(entry, hash) {
                    Err(Errno::NOENT) => {}
                    result => return result,
                },
            }
        }
        // Somebody removes the link as often as it is made: the file stays as it is.
        Ok(())
    }

    /// Lets the entry be the link; `false` if there is one already.
    fn create_link(&mut self, entry: LinkCandidate<'_>, hash: &str) -> Result<bool, Errno> {
        let linked = linkat(
            entry.parent,
            entry.name,
            &self.links.0,
            hash,
            AtFlags::empty(),
        );
        match linked {
            Ok(()) => {
                self.made.push(hash.to_owned());
                Ok(true)
            }
            Err(Errno::EXIST) => Ok(false),
            Err(error) if cannot_link(error) => Ok(true),
            Err(error) => Err(error),
        }
    }

    /// Puts the link into the place of the entry.
    fn replace_with_link(&self, entry: LinkCandidate<'_>, hash: &str) -> Result<(), Errno> {
        let (store, temporary) = (entry.store, entry.temporary);
        match linkat(&self.links.0, hash, store, temporary, AtFlags::empty()) {
            // The name is that of somebody in another process namespace, or of one who died there.
            Err(Errno::EXIST) => return Ok(()),
            Err(error) if cannot_link(error) => return Ok(()),
            linked => linked?,
        }
        let renamed = renameat(store, temporary, entry.parent, entry.name);
        // A success may leave the name too: of two names of one file none is moved, and another
        // process may just have made the link from this very file.
        ignore_not_found(unlinkat(store, temporary, AtFlags::empty()))?;
        match renamed {
            Err(error) if !cannot_link(error) => Err(error),
            _ => Ok(()),
        }
    }

    fn inspect_link(&self, entry: LinkCandidate<'_>, hash: &str) -> Result<LinkState, Errno> {
        let flags = AtFlags::SYMLINK_NOFOLLOW;
        let link = match statat(&self.links.0, hash, flags) {
            Err(Errno::NOENT) => return Ok(LinkState::Gone),
            link => link?,
        };
        let own = statat(entry.parent, entry.name, flags)?;
        if (link.st_dev, link.st_ino) == (own.st_dev, own.st_ino) {
            return Ok(LinkState::SameInode);
        }
        let kind = |stat: &Stat| FileType::from_raw_mode(stat.st_mode);
        if kind(&link) == FileType::Directory {
            return Ok(LinkState::Incompatible);
        }
        if kind(&link) != kind(&own) || link.st_size != own.st_size {
            return Ok(LinkState::Damaged);
        }
        if comparable_metadata(&link) != comparable_metadata(&own) {
            return Ok(LinkState::Incompatible);
        }
        let same = match kind(&own) {
            FileType::Symlink => same_target(entry, self.links.0.as_fd(), hash),
            _ => same_contents(entry, self.links.0.as_fd(), hash),
        };
        match same {
            Ok(true) => Ok(LinkState::EqualContents),
            Ok(false) => Ok(LinkState::Damaged),
            Err(Errno::NOENT) => Ok(LinkState::Gone),
            // A link that cannot be read is a reason not to use it, and none to fail.
            Err(_) => Ok(LinkState::Incompatible),
        }
    }

    /// Removes the links that nobody else has come to use, of a tree that was removed.
    pub(super) fn remove_unused(&mut self) {
        for name in self.made.drain(..) {
            let stat = statat(&self.links.0, &name, AtFlags::SYMLINK_NOFOLLOW);
            if stat.is_ok_and(|stat| stat.st_nlink == 1) {
                // What is left here the next collection takes, which does the same.
                let _: Result<(), Errno> = unlinkat(&self.links.0, &name, AtFlags::empty());
            }
        }
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

    /// The name that the file has in `.links`.
    pub(super) fn finish(mut self) -> String {
        self.framing.clear();
        write::end_file(&mut self.framing, self.size);
        self.hasher.update(&self.framing);
        Hash::sha256(self.hasher.finish()).digest_nix32()
    }
}

/// The name that a symbolic link has in `.links`.
pub(super) fn symlink_hash(target: &[u8]) -> String {
    let mut nar = Vec::new();
    write::begin(&mut nar);
    write::symlink(&mut nar, target);
    Hash::sha256(floe_hash::sha256(&nar)).digest_nix32()
}

/// All that would change with the file that takes another's place.
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
    // Not to wait for the other end of what has turned into a pipe.
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

/// Whether the file system, or the user's rights in it, allow no (further) link. A full directory
/// index is `NOSPC` on ext4; a disk that is really full is found out by the next file.
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

/// A collector removes a link once in a collection; more often is not chance.
const ATTEMPTS_MAX: usize = 8;

/// Both pieces stay in the second-level cache.
const PIECE_LEN: usize = 64 * 1024;

/// The longest framing in front of contents, that of a program.
const FRAMING_LEN: usize = 144;
