//! What runs have left that were killed.
//!
//! Whoever writes into a store holds a lock on a file of temporary roots, and its unfinished trees
//! bear the name of that file. A file that nobody holds locked belongs to a dead run:
//!
//! 1. its trees are removed, but for sealed ones of a path that its roots name: they become this
//!    run's, which may have a use for them, see `recovered_trees`;
//! 2. its roots are what it was about to add: each that lies at its place without a row, or has a
//!    lock that nobody holds, is removed under that lock;
//! 3. the file is removed at last, so that a recovery that is killed itself is taken up again.
//!
//! What cannot be removed, such as another user's, does not save the rest. The file stays with it:
//! nothing else says what the run was at, and somebody with more rights may be the next to look.
//! That each start looks again costs one listing of the store.
//!
//! Not guaranteed: that anything is cleared. What stays is taken by the next collection of garbage,
//! and so is the file.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use floe_format::HashPart;
use floe_format::StorePath;
use rustix::fs::FlockOperation;

use crate::db::Database;
use crate::error::{IoContext, StoreError};
use crate::layout::StoreLayout;
use crate::locks::{PathLock, try_lock};
use crate::recovered_trees::is_sealed;
use crate::temp_roots::is_floe_roots_file;
use crate::tree::remove_tree;

/// Moves a sealed tree of a dead run from the place given into the ownership of this run.
pub(crate) type ClaimTree<'a> = &'a dyn Fn(&StorePath, PathBuf) -> Result<(), StoreError>;

/// Clears up after the dead.
pub(crate) fn recover(layout: &StoreLayout, database: &Database, claim: ClaimTree<'_>) {
    let directory = layout.state_dir.join("temproots");
    let Ok(entries) = fs::read_dir(directory) else {
        return;
    };
    let recovery = Recovery {
        layout,
        database,
        claim,
    };
    for entry in entries.flatten() {
        if let Some(name) = entry
            .file_name()
            .to_str()
            .filter(|name| is_floe_roots_file(name))
        {
            // A failure here must not fail the caller, whose own work does not depend on it.
            let _: Result<(), StoreError> = recovery.recover_run(name, &entry.path());
        }
    }
}

struct Recovery<'a> {
    layout: &'a StoreLayout,
    database: &'a Database,
    claim: ClaimTree<'a>,
}

impl Recovery<'_> {
    fn recover_run(&self, name: &str, file: &Path) -> Result<(), StoreError> {
        let opened = OpenOptions::new().read(true).write(true).open(file);
        let mut roots = opened.io_context("opening", file)?;
        let is_dead = try_lock(&roots, file, FlockOperation::NonBlockingLockExclusive)?;
        // Somebody else may have cleared up between the opening and the lock.
        if !is_dead || roots.metadata().io_context("examining", file)?.nlink() == 0 {
            return Ok(());
        }
        let paths = self.read_roots(&mut roots, file)?;
        let mut is_complete = self.remove_trees(name, &paths)?;
        for path in &paths {
            is_complete &= tolerate_file_error(self.remove_unregistered(path))?;
        }
        match is_complete {
            true => fs::remove_file(file).io_context("removing", file),
            false => Ok(()),
        }
    }

    /// Full paths, each ended by a NUL; the last one may have been cut off.
    fn read_roots(&self, roots: &mut File, file: &Path) -> Result<Vec<StorePath>, StoreError> {
        let mut text = Vec::new();
        roots.read_to_end(&mut text).io_context("reading", file)?;
        let dir = &self.layout.store_dir;
        let words = text.split(|byte| *byte == 0);
        let paths = words.filter_map(|word| dir.parse(str::from_utf8(word).ok()?).ok());
        Ok(paths.collect())
    }

    /// Whether none of them bears the name of the dead any more.
    fn remove_trees(&self, name: &str, paths: &[StorePath]) -> Result<bool, StoreError> {
        let by_hash_part: HashMap<&str, &StorePath> =
            paths.iter().map(|path| (path.hash_part(), path)).collect();
        let store = &self.layout.real_store_dir;
        let mut is_complete = true;
        for entry in fs::read_dir(store).io_context("listing", store)? {
            let entry = entry.io_context("listing", store)?;
            let entry_name = entry.file_name();
            let Some(hash_part) = hash_part_of_tree(name, entry_name.as_bytes()) else {
                continue;
            };
            let is_claimed = match by_hash_part.get(hash_part) {
                Some(path) if is_tree_name(&entry_name) && is_sealed(&entry.path()) => {
                    (self.claim)(path, entry.path()).is_ok()
                }
                _ => false,
            };
            if !is_claimed {
                is_complete &= tolerate_file_error(remove_tree(&entry.path()))?;
            }
        }
        Ok(is_complete)
    }

    /// Removes what lies at the place of a path that is not valid, unless somebody is at it.
    fn remove_unregistered(&self, path: &StorePath) -> Result<(), StoreError> {
        let layout = self.layout;
        let place = layout.real_path(path);
        let lock = layout.real_store_dir.join(format!("{path}.lock"));
        let is_there = |path: &Path| fs::symlink_metadata(path).is_ok();
        let is_valid = || self.database.is_valid(path);
        if !is_there(&lock) && (!is_there(&place) || is_valid()?) {
            return Ok(());
        }
        // Letting go of the lock removes its file.
        let Some(_lock) = PathLock::try_acquire(layout, path)? else {
            return Ok(());
        };
        match is_valid()? {
            true => Ok(()),
            false => remove_tree(&place),
        }
    }
}

/// Whether it is done. An error that all others would meet too, such as a locked database, which is
/// waited for each time, stays one.
fn tolerate_file_error(done: Result<(), StoreError>) -> Result<bool, StoreError> {
    match done {
        Ok(()) => Ok(true),
        Err(error) if error.is_file_specific() => Ok(false),
        Err(error) => Err(error),
    }
}

/// `<hash part>-<name>-<number>`, perhaps with more behind it.
fn hash_part_of_tree<'a>(name: &str, entry: &'a [u8]) -> Option<&'a str> {
    let (hash_part, rest) = entry.split_at_checked(HashPart::LEN)?;
    let number = rest.strip_prefix(b"-")?.strip_prefix(name.as_bytes())?;
    let hash_part = str::from_utf8(hash_part).ok()?;
    (HashPart::parse(hash_part).is_some() && number.starts_with(b"-")).then_some(hash_part)
}

/// Whether it is a tree's name, and not that of a link which was to replace one of its files.
fn is_tree_name(entry: &OsStr) -> bool {
    entry.as_bytes().last().is_some_and(u8::is_ascii_digit)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;

    use floe_format::StoreDir;
    use rustix::fs::{IFlags, ioctl_setflags};

    use super::*;
    use crate::temp_roots::TempRootsFile;
    use crate::writer::StoreWriter;

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
        let (store, roots) = (&layout.real_store_dir, layout.state_dir.join("temproots"));
        let touch = |name: &str| fs::write(store.join(name), "").unwrap();
        let (dead, theirs) = (format!("{HASH}-dead"), format!("{HASH}-theirs"));
        // Of a run that is dead: a sealed tree, one without a row, a lock; and a valid path.
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
        // Of others: a tree of a run that lives, a path that somebody is adding, roots of Nix.
        let own = fs::read_dir(&roots).unwrap().flatten();
        let own = own.map(|entry| entry.file_name().into_string().unwrap());
        let mut own = own.filter(|name| name != "77-floe-0");
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
        assert!(there(tree.path.as_str()));
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
        fs::write(&obstacle, "somebody's").unwrap();
        let trees: Vec<_> = (0..8)
            .map(|n| store.join(format!("{HASH}-77-floe-0-{n}")))
            .collect();
        let create = |tree| File::create(tree).unwrap();
        let files: Vec<File> = trees.iter().map(create).collect();
        let immutable = &files[7];
        // Where the file system knows no such files this one goes with the others.
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
        assert_eq!(fs::read(&obstacle).unwrap(), b"somebody's");
        // Who comes when the obstacles are gone clears the rest.
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
                let roots = TempRootsFile::create(&layout).unwrap();
                !layout
                    .state_dir
                    .join("temproots")
                    .join(roots.name())
                    .exists()
            };
            let unseen = (0..BEGINNINGS).filter(is_unseen).count();
            is_over.store(true, Ordering::SeqCst);
            unseen
        });
        assert_eq!(unseen, 0, "of {BEGINNINGS}");
    }

    /// So many that some meet the recovery between the making of a file and its lock.
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
