//! What runs have left that were killed.
//!
//! Whoever writes into a store holds a lock on a file of temporary roots, and its unfinished trees
//! bear the name of that file. A file that nobody holds locked belongs to a dead run:
//!
//! 1. its trees are removed, but for sealed ones of a path that its roots name: they become this
//!    run's, which may have a use for them, see `resume`;
//! 2. its roots are what it was about to add: each that lies at its place without a row, or has a
//!    lock that nobody holds, is removed under that lock;
//! 3. the file is removed at last, so that a clearing that is killed itself is taken up again.
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

use floe_format::StorePath;
use floe_format::store_path::{HASH_PART_LEN, is_hash_part};
use rustix::fs::FlockOperation;

use crate::database::Database;
use crate::error::{At, StoreError};
use crate::layout::Layout;
use crate::locks::{PathLock, try_lock};
use crate::resume::is_sealed;
use crate::temp_roots::is_our_name;
use crate::tree::write::remove_tree;

/// Moves a sealed tree of a dead run from the place given into the ownership of this run.
pub(crate) type Adopt<'a> = &'a dyn Fn(&StorePath, PathBuf) -> Result<(), StoreError>;

/// Clears up after the dead.
pub(crate) fn clear(layout: &Layout, database: &Database, adopt: Adopt<'_>) {
    let directory = layout.state.join("temproots");
    let Ok(entries) = fs::read_dir(directory) else {
        return;
    };
    let clearing = Clearing {
        layout,
        database,
        adopt,
    };
    for entry in entries.flatten() {
        if let Some(name) = entry.file_name().to_str().filter(|name| is_our_name(name)) {
            // A failure here must not fail the caller, whose own work does not depend on it.
            let _: Result<(), StoreError> = clearing.clear_one(name, &entry.path());
        }
    }
}

struct Clearing<'a> {
    layout: &'a Layout,
    database: &'a Database,
    adopt: Adopt<'a>,
}

impl Clearing<'_> {
    fn clear_one(&self, name: &str, file: &Path) -> Result<(), StoreError> {
        let opened = OpenOptions::new().read(true).write(true).open(file);
        let mut roots = opened.at("opening", file)?;
        let is_dead = try_lock(&roots, file, FlockOperation::NonBlockingLockExclusive)?;
        // Somebody else may have cleared up between the opening and the lock.
        if !is_dead || roots.metadata().at("examining", file)?.nlink() == 0 {
            return Ok(());
        }
        let paths = self.read_paths(&mut roots, file)?;
        let mut is_clear = self.clear_trees(name, &paths)?;
        for path in &paths {
            is_clear &= unless_obstructed(self.clear_path(path))?;
        }
        match is_clear {
            true => fs::remove_file(file).at("removing", file),
            false => Ok(()),
        }
    }

    /// Full paths, each ended by a NUL; the last one may have been cut off.
    fn read_paths(&self, roots: &mut File, file: &Path) -> Result<Vec<StorePath>, StoreError> {
        let mut text = Vec::new();
        roots.read_to_end(&mut text).at("reading", file)?;
        let dir = &self.layout.store_dir;
        let words = text.split(|byte| *byte == 0);
        let paths = words.filter_map(|word| dir.parse(str::from_utf8(word).ok()?).ok());
        Ok(paths.collect())
    }

    /// Whether none of them bears the name of the dead any more.
    fn clear_trees(&self, name: &str, paths: &[StorePath]) -> Result<bool, StoreError> {
        let by_hash_part: HashMap<&str, &StorePath> =
            paths.iter().map(|path| (path.hash_part(), path)).collect();
        let store = &self.layout.real_store;
        let mut is_clear = true;
        for entry in fs::read_dir(store).at("listing", store)? {
            let entry = entry.at("listing", store)?;
            let entry_name = entry.file_name();
            let Some(hash_part) = hash_part_of_tree(name, entry_name.as_bytes()) else {
                continue;
            };
            let is_adopted = match by_hash_part.get(hash_part) {
                Some(path) if is_whole_name(&entry_name) && is_sealed(&entry.path()) => {
                    (self.adopt)(path, entry.path()).is_ok()
                }
                _ => false,
            };
            if !is_adopted {
                is_clear &= unless_obstructed(remove_tree(&entry.path()))?;
            }
        }
        Ok(is_clear)
    }

    /// Removes what lies at the place of a path that is not valid, unless somebody is at it.
    fn clear_path(&self, path: &StorePath) -> Result<(), StoreError> {
        let layout = self.layout;
        let place = layout.real_path(path);
        let lock = layout.real_store.join(format!("{path}.lock"));
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
fn unless_obstructed(done: Result<(), StoreError>) -> Result<bool, StoreError> {
    match done {
        Ok(()) => Ok(true),
        Err(error) if error.is_of_one_file() => Ok(false),
        Err(error) => Err(error),
    }
}

/// `<hash part>-<name>-<number>`, perhaps with more behind it.
fn hash_part_of_tree<'a>(name: &str, entry: &'a [u8]) -> Option<&'a str> {
    let (hash_part, rest) = entry.split_at_checked(HASH_PART_LEN)?;
    let number = rest.strip_prefix(b"-")?.strip_prefix(name.as_bytes())?;
    let hash_part = str::from_utf8(hash_part).ok()?;
    (is_hash_part(hash_part) && number.starts_with(b"-")).then_some(hash_part)
}

/// Whether it is a tree's name, and not that of a link which was to replace one of its files.
fn is_whole_name(entry: &OsStr) -> bool {
    entry.as_bytes().last().is_some_and(u8::is_ascii_digit)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;

    use floe_format::StoreDir;
    use rustix::fs::{IFlags, ioctl_setflags};

    use super::*;
    use crate::temp_roots::RootsFile;
    use crate::writer::StoreWriter;

    const HASH: &str = "00000000000000000000000000000000";

    #[test]
    fn trees_locks_and_roots_of_the_dead_are_cleared_and_those_of_the_living_stay() {
        let root = tempfile::tempdir().unwrap();
        let layout = Layout::in_root(root.path(), StoreDir::default());
        let living = StoreWriter::open(layout.clone()).unwrap();
        let contents = tempfile::tempdir().unwrap();
        let tree = living
            .import(contents.path(), "valid", Default::default())
            .unwrap();
        let (store, roots) = (&layout.real_store, layout.state.join("temproots"));
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
    fn an_obstacle_among_the_leftovers_of_the_dead_does_not_save_the_rest() {
        let root = tempfile::tempdir().unwrap();
        let layout = Layout::in_root(root.path(), StoreDir::default());
        drop(StoreWriter::open(layout.clone()).unwrap());
        let (store, roots) = (&layout.real_store, layout.state.join("temproots/77-floe-0"));
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
    fn who_begins_while_another_clears_up_has_a_file_that_collectors_see() {
        let root = tempfile::tempdir().unwrap();
        let layout = Layout::in_root(root.path(), StoreDir::default());
        let writer = StoreWriter::open(layout.clone()).unwrap();
        let is_over = AtomicBool::new(false);
        let unseen = thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::SeqCst) {
                    writer.recover();
                }
            });
            let is_unseen = |_: &usize| {
                let roots = RootsFile::create(&layout).unwrap();
                !layout.state.join("temproots").join(roots.name()).exists()
            };
            let unseen = (0..BEGINNINGS).filter(is_unseen).count();
            is_over.store(true, Ordering::SeqCst);
            unseen
        });
        assert_eq!(unseen, 0, "of {BEGINNINGS}");
    }

    /// So many that some meet the clearing between the making of a file and its lock.
    const BEGINNINGS: usize = 3000;

    #[test]
    fn only_names_of_that_run_are_its_trees() {
        let is_tree = |entry: &str| hash_part_of_tree("7-floe-1", entry.as_bytes()).is_some();
        assert!(is_tree(&format!("{HASH}-7-floe-1-0")));
        assert!(is_tree(&format!("{HASH}-7-floe-1-12-3")));
        for entry in [
            format!("{HASH}-7-floe-1"),
            format!("{HASH}-7-floe-10-0"),
            format!("{HASH}-17-floe-1-0"),
            format!("{HASH}7-floe-1-0"),
            "short".to_owned(),
            format!("{}-7-floe-1-0", "e".repeat(HASH_PART_LEN)),
        ] {
            assert!(!is_tree(&entry), "{entry}");
        }
    }
}
