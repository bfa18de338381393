//! Registers paths whose trees are in the store directory already, as `nix-store --load-db` and
//! `--register-validity` do.
//!
//! 1. Hash all trees. Nothing is registered unless each has the stated contents.
//! 2. In the order of their references, acquire the locks of some paths, and check that no other
//!    process has replaced a tree meanwhile.
//! 3. Write the rows, and release the locks.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;

use floe_format::{Hash, PathInfo, StorePath, ValidityRegistration};
use parking_lot::Mutex;

use super::writer::StoreWriter;
use crate::db::Registration;
use crate::error::{IoContext as _, StoreError};
use crate::locks::PathLock;
use crate::progress::hash_all;
use crate::query::references_first;
use crate::tree::hash_tree;

/// Which paths are registered, and how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExistingTrees {
    /// Valid paths get new rows too.
    pub reregister: bool,
    /// Copies with the modes and times of store paths replace the trees of paths that are not
    /// valid.
    pub canonicalise: bool,
}

/// A tree that was hashed.
struct HashedTree {
    info: PathInfo,
    /// Whether the path was valid before.
    is_valid: bool,
    identity: Identity,
}

/// Tells a tree from one that another process has renamed to its place.
type Identity = (u64, u64, i64, i64);

impl StoreWriter {
    /// Registers paths whose trees are in the store directory. Each reference must be valid or
    /// among the paths. A path that is valid already keeps its deriver, and gains references, as
    /// from Nix. It keeps its signatures and its content address only with the same contents.
    ///
    /// Differences from Nix: each tree must be there, and must have the stated hash and size.
    ///
    /// Errors: [`StoreError::OtherContents`], [`StoreError::MissingReferences`],
    /// [`StoreError::FileChanged`], and those of the system and the database. Before the rows are
    /// written, errors leave the store unchanged.
    pub fn register_existing(
        &self,
        registrations: Vec<ValidityRegistration>,
        trees: ExistingTrees,
    ) -> Result<(), StoreError> {
        let registrations: BTreeMap<StorePath, ValidityRegistration> = registrations
            .into_iter()
            .map(|it| (it.path.clone(), it))
            .collect();
        self.add_temp_roots(registrations.keys())?;
        self.wait_for_gc()?;
        let mut hashed = self.hash_trees(registrations, trees.reregister)?;
        let references = hashed
            .iter()
            .map(|(path, tree)| (path.clone(), tree.info.references.clone()));
        let order = references_first(&references.collect());
        self.check_references(&hashed)?;
        let ordered = order.iter().filter_map(|path| hashed.remove(path));
        if trees.canonicalise {
            let (valid, new): (Vec<_>, Vec<_>) = ordered.partition(|tree| tree.is_valid);
            for HashedTree { info, .. } in &new {
                self.write_tree(&self.layout().real_path(&info.path), info)?;
            }
            return self.write_rows(&valid);
        }
        let ordered: Vec<HashedTree> = ordered.collect();
        ordered
            .chunks(LOCKS_MAX)
            .try_for_each(|chunk| self.write_rows(chunk))
    }

    /// Returns the paths to register with their contents.
    fn hash_trees(
        &self,
        registrations: BTreeMap<StorePath, ValidityRegistration>,
        reregister: bool,
    ) -> Result<BTreeMap<StorePath, HashedTree>, StoreError> {
        let mut wanted = Vec::new();
        for registration in registrations.into_values() {
            let old = self.path_info(&registration.path)?;
            if old.is_none() || reregister {
                let identity = self.identity(&registration.path)?;
                wanted.push((registration, old, identity));
            }
        }
        let hashes = Mutex::new(BTreeMap::new());
        let len = |registration: &&ValidityRegistration| registration.nar.map_or(0, |(_, len)| len);
        let items = wanted.iter().map(|(registration, ..)| registration);
        hash_all(items.collect(), None, &(), &len, &|registration, worker| {
            let place = self.layout().real_path(&registration.path);
            let hashed = hash_tree(&place, worker.stream(len(registration)));
            hashes.lock().insert(registration.path.clone(), hashed);
        })?;
        let mut hashes = hashes.into_inner();
        let mut trees = BTreeMap::new();
        for (registration, old, identity) in wanted {
            // Each of them was hashed.
            let Some(actual) = hashes.remove(&registration.path) else {
                continue;
            };
            let actual = actual?;
            check_contents(&registration, actual)?;
            let tree = HashedTree {
                is_valid: old.is_some(),
                info: info_of(registration, actual, old),
                identity,
            };
            trees.insert(tree.info.path.clone(), tree);
        }
        Ok(trees)
    }

    fn identity(&self, path: &StorePath) -> Result<Identity, StoreError> {
        let place: PathBuf = self.layout().real_path(path);
        let found = fs::symlink_metadata(&place).io_context("examine", &place)?;
        Ok((found.dev(), found.ino(), found.ctime(), found.ctime_nsec()))
    }

    fn check_references(&self, trees: &BTreeMap<StorePath, HashedTree>) -> Result<(), StoreError> {
        for (path, tree) in trees {
            let references = tree.info.references.iter();
            let others = references.filter(|it| !trees.contains_key(*it)).cloned();
            let missing = self.query_missing(&others.collect::<Vec<_>>())?;
            if !missing.is_empty() {
                return Err(missing_references(path, missing));
            }
        }
        Ok(())
    }

    /// Writes the rows of some trees, references first.
    fn write_rows(&self, trees: &[HashedTree]) -> Result<(), StoreError> {
        let _locks = self.lock_all(trees)?;
        for HashedTree { info, identity, .. } in trees {
            if self.identity(&info.path)? != *identity {
                let place = self.layout().real_path(&info.path);
                return Err(StoreError::FileChanged(place));
            }
        }
        let (mut new, mut valid) = (Vec::new(), Vec::new());
        for HashedTree { info, .. } in trees {
            let outputs = self.derivations.outputs(self.layout(), info)?;
            let registration = Registration { info, outputs };
            // Another process may have registered the path meanwhile.
            if self.database().is_valid(&info.path)? {
                valid.push(registration);
            } else {
                new.push(registration);
            }
        }
        let database = self.database();
        // The references of a path are a circle, or a collector has deleted one just now.
        let missing = |registration: &Registration<'_>| {
            let references = registration.info.references.iter().cloned();
            missing_references(&registration.info.path, references.collect())
        };
        let mut left = &*new;
        while let Some(first) = left.first() {
            match database.register(left)? {
                0 => return Err(missing(first)),
                registered => left = &left[registered..],
            }
        }
        for registration in &valid {
            if !database.replace(registration)? {
                return Err(missing(registration));
            }
        }
        Ok(())
    }

    /// Acquires the locks of all these paths. Never waits with a lock, because another process may
    /// acquire the same ones in another order.
    fn lock_all(&self, trees: &[HashedTree]) -> Result<Vec<PathLock>, StoreError> {
        let what = "a process that adds one of the paths";
        let place = &self.layout().real_store_dir;
        self.store.lock_wait.wait(what, place, || {
            let try_acquire = |tree: &HashedTree| {
                let acquired = PathLock::try_acquire(self.layout(), &tree.info.path);
                acquired.transpose()
            };
            let locks: Vec<PathLock> = trees
                .iter()
                .map_while(try_acquire)
                .collect::<Result<_, _>>()?;
            Ok((locks.len() == trees.len()).then_some(locks))
        })
    }
}

fn check_contents(
    registration: &ValidityRegistration,
    actual: (Hash, u64),
) -> Result<(), StoreError> {
    let text = |(hash, size): (Hash, u64)| format!("{} and {size} bytes", hash.to_base16());
    match registration.nar {
        Some(expected) if expected != actual => Err(StoreError::OtherContents {
            path: registration.path.clone(),
            expected: text(expected),
            actual: text(actual),
        }),
        _ => Ok(()),
    }
}

/// Returns the new row of a path, and `old` of a valid one.
fn info_of(
    registration: ValidityRegistration,
    (nar_hash, nar_size): (Hash, u64),
    old: Option<PathInfo>,
) -> PathInfo {
    let new = PathInfo {
        path: registration.path,
        nar_hash,
        nar_size,
        references: registration.references,
        deriver: registration.deriver,
        signatures: BTreeSet::new(),
        ca: None,
        registration_time: None,
        ultimate: false,
    };
    let Some(mut old) = old else {
        return new;
    };
    old.references.extend(new.references.iter().cloned());
    let has_same_contents = old.nar_hash == nar_hash && old.nar_size == nar_size;
    if has_same_contents {
        return old;
    }
    PathInfo {
        references: old.references,
        deriver: old.deriver,
        ..new
    }
}

fn missing_references(path: &StorePath, missing: Vec<StorePath>) -> StoreError {
    StoreError::MissingReferences {
        path: path.clone(),
        missing: missing.into_iter().collect(),
    }
}

/// How many paths are locked at once: each lock is an open file.
const LOCKS_MAX: usize = 64;

#[cfg(test)]
mod tests;
