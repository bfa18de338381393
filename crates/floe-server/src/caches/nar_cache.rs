//! What is remembered of NARs: the whole bytes of small ones, and the plans of others, packed
//! where there are many small files.
//!
//! Whatever is remembered is bound to the identity of the path's root on disk: one that was
//! deleted is noticed by the next request, and one that was replaced is read anew.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use floe_format::Hash;
use floe_store::StoreError;
use floe_store::tree::dump_path;
use floe_store::tree::plan::{NarPlan, open_tree_root};

use crate::caches::lru::LruCache;
use crate::caches::small_file_packs::SmallFilePacks;
use crate::caches::tree_identity::{CachedPlan, TreeIdentity, tree_identity};
use crate::caches::weak_cache::WeakCache;
use crate::http::route::HashPart;

/// The caches.
#[derive(Debug)]
pub(crate) struct NarCache {
    small: Mutex<LruCache<HashPart, Arc<SmallNar>>>,
    plans: Mutex<LruCache<HashPart, Arc<CachedPlan>>>,
    packs: Mutex<SmallFilePacks>,
    weak_plans: Mutex<WeakCache<HashPart, NarPlan>>,
    /// Listings, and pages of directories by their paths within a store path.
    weak_texts: Mutex<WeakCache<(HashPart, Option<String>), str>>,
    /// What is read ahead, in bytes.
    pub(crate) ahead: Arc<AtomicU64>,
}

/// A NAR in memory, of which the hash was compared.
#[derive(Debug)]
pub(crate) struct SmallNar {
    identity: TreeIdentity,
    nar_hash: Hash,
    pub(crate) bytes: Arc<[u8]>,
}

impl NarCache {
    pub(crate) fn new() -> NarCache {
        NarCache {
            small: Mutex::new(LruCache::new(SMALL_BUDGET)),
            plans: Mutex::new(LruCache::new(PLANS_BUDGET)),
            packs: Mutex::new(SmallFilePacks::new(PACKS_BUDGET)),
            weak_plans: Mutex::new(WeakCache::new()),
            weak_texts: Mutex::new(WeakCache::new()),
            ahead: Arc::default(),
        }
    }

    /// The bytes of a small NAR, if they are at hand and those of just this tree.
    pub(crate) fn get_small(
        &self,
        hash: HashPart,
        nar_hash: &Hash,
        identity: TreeIdentity,
    ) -> Option<Arc<[u8]>> {
        let found = lock(&self.small).get(&hash)?;
        let holds = found.nar_hash == *nar_hash && found.identity == identity;
        holds.then(|| found.bytes.clone())
    }

    /// Reads a small NAR and remembers it. `None` if its bytes do not have the hash.
    pub(crate) fn read_small(
        &self,
        hash: HashPart,
        nar_hash: Hash,
        path: &Path,
    ) -> Result<Option<Arc<[u8]>>, StoreError> {
        let identity = tree_identity(path)?;
        let mut bytes = Vec::new();
        dump_path::<StoreError>(path, &mut |chunk| {
            bytes.extend_from_slice(chunk);
            // A tree that has grown since it was registered has a wrong hash in any case.
            match bytes.len() > 2 * SMALL_NAR_MAX as usize {
                true => Err(StoreError::FileChanged { path: path.into() }),
                false => Ok(()),
            }
        })?;
        if Hash::sha256(floe_hash::sha256(&bytes)) != nar_hash {
            return Ok(None);
        }
        let bytes: Arc<[u8]> = bytes.into();
        let small = SmallNar {
            identity,
            nar_hash,
            bytes: bytes.clone(),
        };
        lock(&self.small).put(hash, Arc::new(small), bytes.len() + ENTRY_OVERHEAD);
        Ok(Some(bytes))
    }

    /// Remembers the plan of a path.
    fn remember(&self, hash: HashPart, identity: TreeIdentity, plan: NarPlan) -> Arc<NarPlan> {
        let planned = Arc::new(CachedPlan::new(identity, plan));
        let weight = planned.plan.memory() + ENTRY_OVERHEAD;
        lock(&self.plans).put(hash, planned.clone(), weight);
        lock(&self.weak_plans).put(hash, identity, &planned.plan);
        planned.plan.clone()
    }

    /// The listing of a path, or the page of a directory in it, which `make` makes unless somebody
    /// still has it. It belongs to what is at `place` on disk.
    pub(crate) fn text(
        &self,
        key: (HashPart, Option<String>),
        place: &Path,
        make: impl FnOnce() -> Result<Option<String>, StoreError>,
    ) -> Result<Option<Arc<str>>, StoreError> {
        let identity = tree_identity(place)?;
        if let Some(shared) = lock(&self.weak_texts).get(&key, identity) {
            return Ok(Some(shared));
        }
        let made: Option<Arc<str>> = make()?.map(Arc::from);
        if let Some(made) = &made {
            lock(&self.weak_texts).put(key, identity, made);
        }
        Ok(made)
    }

    /// The plan of a path.
    pub(crate) fn plan(&self, hash: HashPart, path: &Path) -> Result<Arc<NarPlan>, StoreError> {
        let identity = tree_identity(path)?;
        if let Some(packed) = lock(&self.packs).get(hash, identity, Instant::now()) {
            return Ok(packed);
        }
        if let Some(known) = lock(&self.plans).get(&hash)
            && known.identity == identity
        {
            known.hits.fetch_add(1, Ordering::Relaxed);
            return Ok(known.plan.clone());
        }
        if let Some(shared) = lock(&self.weak_plans).get(&hash, identity) {
            return Ok(shared);
        }
        Ok(self.remember(hash, identity, NarPlan::new(path)?))
    }

    /// Packs the small files of a path that was requested more than once, if there are enough of
    /// them and room for them, so that the next response sends the NAR in few pieces.
    pub(crate) fn pack(&self, hash: HashPart, path: &Path) -> Result<(), StoreError> {
        let Some(known) = lock(&self.plans).get(&hash) else {
            return Ok(());
        };
        let (count, len) = known.plan.small_files(PACKED_FILE_MAX);
        if known.hits.load(Ordering::Relaxed) == 0 || count < PACKED_FILES_MIN {
            return Ok(());
        }
        let weight = usize::try_from(len).unwrap_or(usize::MAX);
        let has_room = {
            let mut packs = lock(&self.packs);
            !packs.has(hash, known.identity) && packs.reserve(hash, weight, Instant::now())
        };
        if !has_room {
            return Ok(());
        }
        let packed = self.pack_now(&known, path);
        let (planned, result) = match packed {
            Ok(planned) => (planned, Ok(())),
            Err(error) => (None, Err(error)),
        };
        lock(&self.packs).finish(hash, planned, Instant::now());
        result
    }

    fn pack_now(&self, known: &CachedPlan, path: &Path) -> Result<Option<CachedPlan>, StoreError> {
        if tree_identity(path)? != known.identity {
            return Ok(None);
        }
        let packed = known
            .plan
            .pack(&mut open_tree_root(path)?, PACKED_FILE_MAX)?;
        Ok(Some(CachedPlan::new(known.identity, packed)))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing is half done when a thread panics beside a cache.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// NARs up to this size are read whole, compared with their hash, and kept. Hashing one takes a
/// worker less than 0.1 ms.
pub(crate) const SMALL_NAR_MAX: u64 = 64 * 1024;

/// Room for some hundred small NARs; those of most symlink trees and scripts have a few KiB.
const SMALL_BUDGET: usize = 8 * 1024 * 1024;

/// Plans have about 300 bytes a file, so these are those of about 50,000 files.
const PLANS_BUDGET: usize = 16 * 1024 * 1024;

/// Packed files are in memory, although not in that of any process.
const PACKS_BUDGET: usize = 64 * 1024 * 1024;

/// Files below this size are packed: opening one costs about as much as sending its bytes.
const PACKED_FILE_MAX: u64 = 64 * 1024;

/// With fewer files there is little to gain.
const PACKED_FILES_MIN: usize = 4;

/// What an entry takes besides its bytes, about.
const ENTRY_OVERHEAD: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn evicted_plan_is_shared_while_in_use() {
        let dir = tempfile::tempdir().unwrap();
        let hash = HashPart::parse(&"1".repeat(32)).unwrap();
        let nars = NarCache::new();
        let first = nars.plan(hash, dir.path()).unwrap();
        lock(&nars.plans).remove(&hash);
        let second = nars.plan(hash, dir.path()).unwrap();
        assert!(Arc::ptr_eq(&first, &second));
        drop((first, second));
        assert!(
            lock(&nars.weak_plans)
                .get(&hash, tree_identity(dir.path()).unwrap())
                .is_none()
        );
    }
}
