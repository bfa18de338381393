//! Recovery after runs that were killed.
//!
//! Each writer of a store holds a lock on its file of temporary roots. Its unfinished trees have
//! the name of that file in their own names. A collector may have removed the file, but not its
//! second name, the run record (see `temp_roots`). If neither is locked, the run is dead:
//!
//! 1. Recovery removes the trees of the dead run. It claims a tree instead if the tree is sealed
//!    and belongs to a path in the roots file: this run may reuse it, see `recovered_trees`.
//! 2. The roots are the paths that the run was about to add. Recovery removes each one that is on
//!    disk without a row, and each lock file that no process holds. It holds the path lock
//!    meanwhile.
//! 3. The roots file and the record are removed last, so that a later run continues a recovery that
//!    was killed itself.
//!
//! If a file cannot be removed, for example because another user owns it, recovery continues with
//! the rest and keeps the roots file. No other record names the paths of the run, and the next run
//! may have more rights. The price is one listing of the store for each dead run, and none if there
//! is not a dead run.
//!
//! Not guaranteed: that everything is removed. The next garbage collection deletes the rest.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use floe_format::{HashPart, StorePath};
use rustix::fs::{FlockOperation, Stat};

use crate::db::Database;
use crate::disk::mount_id::check_no_mounts;
use crate::disk::{Directory, DirectoryEntry, Entry, StoreLayout, list_directory};
use crate::error::{IoContext, StoreError};
use crate::locks::{PathLock, try_lock};
use crate::roots::is_floe_roots_file;
use crate::tree::remove_tree;

/// The recovery of one store.
pub(crate) struct Recovery<'a> {
    pub(crate) layout: &'a StoreLayout,
    pub(crate) database: &'a Database,
    /// Moves a sealed tree of a dead run into the ownership of this run.
    pub(crate) claim: &'a dyn Fn(&StorePath, &Path) -> Result<(), StoreError>,
}

impl Recovery<'_> {
    /// Recovers from all dead runs. Returns whether there were any.
    pub(crate) fn recover_all(&self) -> bool {
        let mut has_dead_runs = false;
        // The records come first. A new run that meets a record with its name creates a roots file
        // without contents for a moment, and recovery by that file would remove the trees.
        for directory in [self.layout.database_dir(), self.layout.temp_roots_dir()] {
            let Ok(directory) = Directory::open(&directory) else {
                continue;
            };
            for (name, _) in directory.list().unwrap_or_default() {
                if let Some(text) = name.to_str()
                    && is_floe_roots_file(text)
                {
                    let file = directory.entry(&name);
                    // A failure must not fail the caller, whose own work does not depend on it.
                    has_dead_runs |= self.recover_run(text, &file).unwrap_or(true);
                }
            }
        }
        has_dead_runs
    }

    /// Recovers from a run. Returns whether it is dead.
    fn recover_run(&self, name: &str, file: &Entry<'_>) -> Result<bool, StoreError> {
        let opened = file.open_file();
        let file = &file.path();
        let mut roots = opened.io_context("open", file)?;
        let is_dead = try_lock(&roots, file, FlockOperation::NonBlockingLockExclusive)?;
        // Another process may have finished the recovery between the opening and the lock.
        if !is_dead || roots.metadata().io_context("examine", file)?.nlink() == 0 {
            return Ok(false);
        }
        let paths = self.read_roots(&mut roots, file)?;
        let mut is_complete = self.remove_trees(name, &paths)?;
        for path in &paths {
            is_complete &= tolerate_file_error(self.remove_unregistered(path))?;
        }
        if is_complete {
            self.remove_roots_file(name, &roots)?;
        }
        Ok(true)
    }

    /// Removes the names of a locked roots file. The name that collectors know goes first: as long
    /// as the record exists, no new run uses the name.
    fn remove_roots_file(&self, name: &str, roots: &File) -> Result<(), StoreError> {
        for directory in [self.layout.temp_roots_dir(), self.layout.database_dir()] {
            let directory = Directory::open(&directory)?;
            let entry = directory.entry(name.as_ref());
            let own = roots.metadata().io_context("examine", entry.path())?;
            let is_own = |found: Stat| (found.st_dev, found.st_ino) == (own.dev(), own.ino());
            if entry.stat().is_ok_and(is_own) {
                entry.remove().io_context("remove", entry.path())?;
            }
        }
        Ok(())
    }

    /// Reads the full paths, each of which ends with a NUL. The last one may be incomplete.
    fn read_roots(&self, roots: &mut File, file: &Path) -> Result<Vec<StorePath>, StoreError> {
        let mut text = Vec::new();
        roots.read_to_end(&mut text).io_context("read", file)?;
        // A collector that removes the file of a dead run overwrites the first byte.
        if let Some(first) = text.first_mut().filter(|first| **first == COLLECTOR_MARK) {
            *first = b'/';
        }
        let dir = &self.layout.store_dir;
        let words = text.split(|byte| *byte == 0);
        let paths = words.filter_map(|word| dir.parse(str::from_utf8(word).ok()?).ok());
        Ok(paths.collect())
    }

    /// Removes or claims the trees of a dead run. Returns whether none of them remains.
    fn remove_trees(&self, name: &str, paths: &[StorePath]) -> Result<bool, StoreError> {
        let by_hash_part: HashMap<HashPart, &StorePath> =
            paths.iter().map(|path| (path.hash_part(), path)).collect();
        let store = &self.layout.real_store_dir;
        let mut is_complete = true;
        for entry in list_directory(store).io_context("list", store)? {
            let entry = entry.io_context("list", store)?;
            let entry_name = entry.file_name();
            let Some(hash_part) = hash_part_of_tree(name, entry_name.as_bytes()) else {
                continue;
            };
            let claimed = by_hash_part.get(&hash_part).copied();
            let claimed = claimed.filter(|_| is_tree_name(entry_name));
            is_complete &= tolerate_file_error(self.remove_tree_unless_path(&entry, claimed))?;
        }
        Ok(is_complete)
    }

    /// Removes a tree of a dead run, or claims it for a path if it is sealed. A store path may have
    /// such a name as well: a valid path, and one that another process is adding, stays.
    fn remove_tree_unless_path(
        &self,
        entry: &DirectoryEntry,
        claimed: Option<&StorePath>,
    ) -> Result<(), StoreError> {
        let name = entry.file_name();
        let mut lock = None;
        if let Some(path) = name.to_str().and_then(|name| StorePath::parse(name).ok()) {
            lock = PathLock::try_acquire(self.layout, &path)?;
            if lock.is_none() || self.database.is_valid(&path)? {
                return Ok(());
            }
        }
        let tree = entry.path();
        let is_claimed = match claimed {
            Some(path) if is_sealed(tree) && check_no_mounts(tree).is_ok() => {
                (self.claim)(path, tree).is_ok()
            }
            _ => false,
        };
        let removed = if is_claimed {
            Ok(())
        } else {
            remove_tree(tree)
        };
        drop(lock);
        removed
    }

    /// Removes the files of a path that is not valid, unless another process holds its lock.
    fn remove_unregistered(&self, path: &StorePath) -> Result<(), StoreError> {
        let layout = self.layout;
        let place = layout.real_path(path);
        let lock = layout.real_store_dir.join(format!("{path}.lock"));
        let is_there = |path: &Path| fs::symlink_metadata(path).is_ok();
        let is_valid = || self.database.is_valid(path);
        if !is_there(&lock) && (!is_there(&place) || is_valid()?) {
            return Ok(());
        }
        // Dropping the lock removes its file.
        let Some(_lock) = PathLock::try_acquire(layout, path)? else {
            return Ok(());
        };
        if !is_valid()? {
            remove_tree(&place)?;
        }
        Ok(())
    }
}

/// Returns `false` for an error that concerns one file only. Other errors, such as a locked
/// database, would occur for every path again, each time after a wait, so they end the recovery.
fn tolerate_file_error(done: Result<(), StoreError>) -> Result<bool, StoreError> {
    match done {
        Ok(()) => Ok(true),
        Err(error) if error.is_file_specific() => Ok(false),
        Err(error) => Err(error),
    }
}

/// Returns the hash part if the entry has the name `<hash part>-<name>-<number>`, perhaps with a
/// suffix.
fn hash_part_of_tree(name: &str, entry: &[u8]) -> Option<HashPart> {
    let (hash_part, rest) = entry.split_at_checked(HashPart::LEN)?;
    let number = rest.strip_prefix(b"-")?.strip_prefix(name.as_bytes())?;
    let hash_part = HashPart::parse(str::from_utf8(hash_part).ok()?)?;
    number.starts_with(b"-").then_some(hash_part)
}

/// Whether a path has the name of an unfinished tree of any process of floe:
/// `<process>-floe-<number>-<number>`, perhaps with a suffix.
pub(super) fn is_unfinished_name(path: &StorePath) -> bool {
    let is_number = |part: Option<&str>| {
        part.is_some_and(|part| !part.is_empty() && part.bytes().all(|it| it.is_ascii_digit()))
    };
    let mut parts = path.name().split('-');
    is_number(parts.next())
        && parts.next() == Some("floe")
        && is_number(parts.next())
        && is_number(parts.next())
}

/// Whether the name is that of a tree. A temporary name for a link has a suffix.
fn is_tree_name(entry: &OsStr) -> bool {
    entry.as_bytes().last().is_some_and(u8::is_ascii_digit)
}

/// The byte that Nix's collector writes into a roots file before it removes the file.
const COLLECTOR_MARK: u8 = b'd';

/// Whether a tree looks complete: the root is sealed last. A root that is a file has its final mode
/// from the start, so only its time shows whether it is complete.
fn is_sealed(tree: &Path) -> bool {
    let Ok(found) = fs::symlink_metadata(tree) else {
        return false;
    };
    let has_final_mode = !found.is_dir() || found.mode() & 0o7777 == 0o555;
    has_final_mode && (found.mtime(), found.mtime_nsec()) == (1, 0)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;

    use floe_format::StoreDir;
    use rustix::fs::{IFlags, ioctl_setflags};

    use super::super::writer::StoreWriter;
    use super::*;
    use crate::roots::TempRoots;

    const HASH: &str = "00000000000000000000000000000000";

    #[test]
    fn recovery_removes_only_files_of_dead_runs() {
        let root = tempfile::tempdir().unwrap();
        let layout = StoreLayout::in_root(root.path(), StoreDir::default());
        let living = StoreWriter::open(layout.clone()).unwrap();
        let contents = tempfile::tempdir().unwrap();
        let tree = living
            .add_to_store(contents.path(), "valid", Default::default())
            .unwrap();
        // A valid path with the name of a tree of the dead run.
        let like_a_tree = living
            .add_to_store(contents.path(), "77-floe-0-3", Default::default())
            .unwrap();
        let (store, roots) = (&layout.real_store_dir, layout.state_dir.join("temproots"));
        let touch = |name: &str| fs::write(store.join(name), "").unwrap();
        let (dead, theirs) = (format!("{HASH}-dead"), format!("{HASH}-theirs"));
        // Files of a dead run: a sealed tree, a path without a row, a lock; and a valid path.
        let sealed = store.join(format!("{HASH}-77-floe-0-3"));
        fs::create_dir_all(sealed.join("deep")).unwrap();
        fs::set_permissions(&sealed, std::os::unix::fs::PermissionsExt::from_mode(0o555)).unwrap();
        touch(&dead);
        touch(&format!("{dead}.lock"));
        let mut text = String::new();
        for path in [&*dead, &*theirs, tree.path.as_str(), "cut of"] {
            text.push_str(&format!("/nix/store/{path}\0"));
        }
        fs::write(roots.join("77-floe-0"), text).unwrap();
        // Files of others: a tree of a live run, a path that another process is adding, roots of
        // Nix.
        let own = fs::read_dir(&roots).unwrap().flatten();
        let mut own = own
            .map(|entry| entry.file_name().into_string().unwrap())
            .filter(|name| name != "77-floe-0");
        let own = own.next().unwrap();
        let kept = [
            format!("{HASH}-{own}-9"),
            theirs.clone(),
            format!("{HASH}-77-floe-01-3"),
        ];
        kept.iter().for_each(|name| touch(name));
        fs::write(roots.join("78"), "/nix/store/x\0").unwrap();
        let held = StorePath::parse(&theirs).unwrap();
        let held = PathLock::try_acquire(&layout, &held).unwrap().unwrap();

        let second = StoreWriter::open(layout.clone()).unwrap();
        let there = |name: &str| store.join(name).exists();
        assert!(!sealed.exists() && !there(&dead) && !there(&format!("{dead}.lock")));
        assert!(there(tree.path.as_str()) && there(like_a_tree.path.as_str()));
        for name in &kept {
            assert!(there(name), "{name}");
        }
        assert!(!roots.join("77-floe-0").exists() && roots.join("78").exists());
        assert!(roots.join(&own).exists());
        drop((held, second, living));
    }

    #[test]
    fn recovery_skips_obstacles_and_removes_the_rest() {
        let root = tempfile::tempdir().unwrap();
        let layout = StoreLayout::in_root(root.path(), StoreDir::default());
        drop(StoreWriter::open(layout.clone()).unwrap());
        let (store, roots) = (
            &layout.real_store_dir,
            layout.state_dir.join("temproots/77-floe-0"),
        );
        let (first, second) = (format!("{HASH}-first"), format!("{HASH}-second"));
        fs::write(&roots, format!("/nix/store/{first}\0/nix/store/{second}\0")).unwrap();
        // Two obstacles: a lock with contents, and a tree that not even root may remove.
        let obstacle = store.join(format!("{first}.lock"));
        fs::write(&obstacle, "contents").unwrap();
        let trees: Vec<_> = (0..8)
            .map(|n| store.join(format!("{HASH}-77-floe-0-{n}")))
            .collect();
        let create = |tree| File::create(tree).unwrap();
        let files: Vec<File> = trees.iter().map(create).collect();
        let immutable = &files[7];
        // On a file system without immutable files, this file is removed with the others.
        let _: Result<(), _> = ioctl_setflags(immutable, IFlags::IMMUTABLE);
        fs::create_dir(store.join(&second)).unwrap();
        fs::write(store.join(format!("{second}.lock")), "").unwrap();

        drop(StoreWriter::open(layout.clone()).unwrap());
        let _: Result<(), _> = ioctl_setflags(immutable, IFlags::empty());
        let there = |path: &Path| fs::symlink_metadata(path).is_ok();
        for gone in trees[..7].iter().chain([&store.join(&second)]) {
            assert!(!there(gone), "{}", gone.display());
        }
        assert!(!there(&store.join(format!("{second}.lock"))));
        assert_eq!(fs::read(&obstacle).unwrap(), b"contents");
        // Without the obstacles, the next run removes the rest.
        assert!(there(&roots));
        fs::remove_file(&obstacle).unwrap();
        fs::write(store.join(&first), "").unwrap();
        drop(StoreWriter::open(layout.clone()).unwrap());
        assert!(!there(&trees[7]) && !there(&store.join(&first)) && !there(&roots));
    }

    #[test]
    fn roots_file_created_during_recovery_is_visible() {
        let root = tempfile::tempdir().unwrap();
        let layout = StoreLayout::in_root(root.path(), StoreDir::default());
        let writer = StoreWriter::open(layout.clone()).unwrap();
        let is_over = AtomicBool::new(false);
        let unseen = thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::SeqCst) {
                    writer.recover_crashed_runs();
                }
            });
            let is_unseen = |_: &usize| {
                let roots = TempRoots::default().open(&layout).unwrap();
                !layout
                    .state_dir
                    .join("temproots")
                    .join(roots.file.lock().name())
                    .exists()
            };
            let unseen = (0..BEGINNINGS).filter(is_unseen).count();
            is_over.store(true, Ordering::SeqCst);
            unseen
        });
        assert_eq!(unseen, 0, "of {BEGINNINGS}");
    }

    /// High enough that some creations meet the recovery between `create` and `lock`.
    const BEGINNINGS: usize = 3000;

    #[test]
    fn tree_names_match_only_their_own_run() {
        let is_tree = |entry: &str| hash_part_of_tree("7-floe-1", entry.as_bytes()).is_some();
        assert!(is_tree(&format!("{HASH}-7-floe-1-0")));
        assert!(is_tree(&format!("{HASH}-7-floe-1-12-3")));
        for entry in [
            format!("{HASH}-7-floe-1"),
            format!("{HASH}-7-floe-10-0"),
            format!("{HASH}-17-floe-1-0"),
            format!("{HASH}7-floe-1-0"),
            "short".to_owned(),
            format!("{}-7-floe-1-0", "e".repeat(HashPart::LEN)),
        ] {
            assert!(!is_tree(&entry), "{entry}");
        }
    }
}
