//! NARs and plans of NARs: the bytes of small NARs, the plans of others, and packs of small files.
//!
//! Every value belongs to the identity of a tree on disk. So the next request notices that a path
//! was deleted or replaced.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use floe_format::{Hash, HashPart};
use floe_store::StoreError;
use floe_store::tree::dump_path;
use floe_store::tree::plan::{NarPlan, open_tree_root};
use parking_lot::Mutex;

use super::narinfo_cache::CachedNarInfo;
use super::small_file_packs::SmallFilePacks;
use super::tree_identity::TreeIdentity;
use super::weak_cache::WeakCache;
use crate::lru::LruCache;

#[derive(Debug)]
pub(crate) struct NarCache {
    small: Mutex<LruCache<HashPart, SmallNar>>,
    plans: Mutex<LruCache<HashPart, Arc<CachedPlan>>>,
    packs: Mutex<SmallFilePacks>,
    weak_plans: Mutex<WeakCache<HashPart, NarPlan>>,
    /// Listings, and pages of directories by their path within the store path.
    weak_texts: Mutex<WeakCache<(HashPart, Option<String>), str>>,
}

/// A NAR whose bytes were compared with its hash.
#[derive(Clone, Debug)]
struct SmallNar {
    identity: TreeIdentity,
    nar_hash: Hash,
    bytes: Arc<[u8]>,
}

#[derive(Debug)]
struct CachedPlan {
    identity: TreeIdentity,
    plan: Arc<NarPlan>,
    /// How often the plan was found in the cache.
    hits: AtomicU32,
}

impl NarCache {
    pub(crate) fn new() -> NarCache {
        NarCache {
            small: Mutex::new(LruCache::new(SMALL_BUDGET)),
            plans: Mutex::new(LruCache::new(PLANS_BUDGET)),
            packs: Mutex::new(SmallFilePacks::new(PACKS_BUDGET)),
            weak_plans: Mutex::new(WeakCache::new()),
            weak_texts: Mutex::new(WeakCache::new()),
        }
    }

    /// Returns the bytes of a small NAR if they are in memory and were read from this very tree.
    pub(crate) fn get_small(
        &self,
        narinfo: &CachedNarInfo,
        identity: TreeIdentity,
    ) -> Option<Arc<[u8]>> {
        let found = self.small.lock().get(&narinfo.hash)?;
        let is_current = found.nar_hash == narinfo.info.nar_hash && found.identity == identity;
        is_current.then_some(found.bytes)
    }

    /// Reads a small NAR and keeps it. `None` if its bytes do not have the registered hash.
    ///
    /// Errors: the path cannot be read, or is much larger than a small NAR.
    pub(crate) fn read_small(
        &self,
        narinfo: &CachedNarInfo,
        identity: TreeIdentity,
        path: &Path,
    ) -> Result<Option<Arc<[u8]>>, StoreError> {
        let nar_hash = narinfo.info.nar_hash;
        let mut bytes = Vec::new();
        dump_path::<StoreError>(path, &mut |chunk| {
            bytes.extend_from_slice(chunk);
            // A tree that has grown since it was registered cannot have the registered hash.
            if bytes.len() > 2 * SMALL_NAR_MAX as usize {
                Err(StoreError::FileChanged(path.into()))
            } else {
                Ok(())
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
        self.small
            .lock()
            .put(narinfo.hash, small, bytes.len() + OVERHEAD);
        Ok(Some(bytes))
    }

    /// Returns the listing of a path, or the page of a directory in it. `make` makes the text,
    /// unless a connection still sends it. The text belongs to the tree at `path`.
    pub(crate) fn text(
        &self,
        key: (HashPart, Option<String>),
        path: &Path,
        make: impl FnOnce() -> Result<Option<String>, StoreError>,
    ) -> Result<Option<Arc<str>>, StoreError> {
        let identity = TreeIdentity::read(path)?;
        if let Some(text) = self.weak_texts.lock().get(&key, identity) {
            return Ok(Some(text));
        }
        let made: Option<Arc<str>> = make()?.map(Arc::from);
        if let Some(made) = &made {
            self.weak_texts.lock().put(key, identity, made);
        }
        Ok(made)
    }

    /// Returns the plan of a path: a packed one if there is one, else a cached one, else a new one.
    pub(crate) fn plan(
        &self,
        hash: HashPart,
        identity: TreeIdentity,
        path: &Path,
    ) -> Result<Arc<NarPlan>, StoreError> {
        if let Some(packed) = self.packs.lock().get(hash, identity, Instant::now()) {
            return Ok(packed);
        }
        if let Some(known) = self.plans.lock().get(&hash)
            && known.identity == identity
        {
            known.hits.fetch_add(1, Ordering::Relaxed);
            return Ok(known.plan.clone());
        }
        if let Some(plan) = self.weak_plans.lock().get(&hash, identity) {
            return Ok(plan);
        }
        let plan = Arc::new(NarPlan::new(path)?);
        let cached = Arc::new(CachedPlan {
            identity,
            plan: plan.clone(),
            hits: AtomicU32::new(0),
        });
        self.plans
            .lock()
            .put(hash, cached, plan.memory() + OVERHEAD);
        self.weak_plans.lock().put(hash, identity, &plan);
        Ok(plan)
    }

    /// Packs the small files of a path into one file, so that the NAR is sent in fewer pieces. Does
    /// nothing for a path that was requested only once, has few small files, or does not fit into
    /// the budget.
    pub(crate) fn pack(&self, hash: HashPart, path: &Path) -> Result<(), StoreError> {
        let Some(known) = self.plans.lock().get(&hash) else {
            return Ok(());
        };
        let (count, len) = known.plan.small_files(PACKED_FILE_MAX);
        if known.hits.load(Ordering::Relaxed) == 0 || count < PACKED_FILES_MIN {
            return Ok(());
        }
        let weight = usize::try_from(len).unwrap_or(usize::MAX);
        let is_reserved = {
            let mut packs = self.packs.lock();
            !packs.has(hash, known.identity) && packs.reserve(hash, weight, Instant::now())
        };
        if !is_reserved {
            return Ok(());
        }
        let packed = pack(&known, path);
        let plan = packed.as_ref().ok().cloned().flatten();
        let kept = plan.map(|plan| (known.identity, plan));
        self.packs.lock().finish(hash, kept, Instant::now());
        packed.map(drop)
    }
}

/// `None` if the tree has changed since it was planned.
fn pack(known: &CachedPlan, path: &Path) -> Result<Option<Arc<NarPlan>>, StoreError> {
    if TreeIdentity::read(path)? != known.identity {
        return Ok(None);
    }
    let packed = known
        .plan
        .pack(&mut open_tree_root(path)?, PACKED_FILE_MAX)?;
    Ok(Some(Arc::new(packed)))
}

/// The size in bytes up to which a NAR is read whole, compared with its hash, and kept. To hash it
/// takes a worker less than 0.1 ms.
pub(crate) const SMALL_NAR_MAX: u64 = 64 * 1024;

/// Room for some hundred small NARs. Those of most symlink trees and scripts have a few KiB.
const SMALL_BUDGET: usize = 8 * 1024 * 1024;

/// A plan takes about 300 bytes for each file, so this is room for about 50,000 files.
const PLANS_BUDGET: usize = 16 * 1024 * 1024;

/// Packs are in memory, although not in that of a process.
const PACKS_BUDGET: usize = 64 * 1024 * 1024;

/// Smaller files are packed: to open one costs about as much as to send its bytes.
const PACKED_FILE_MAX: u64 = 64 * 1024;

/// With fewer small files, a pack gains little.
const PACKED_FILES_MIN: usize = 4;

/// About the memory of a cached value besides its bytes.
const OVERHEAD: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn evicted_plan_is_shared_while_in_use() {
        let dir = tempfile::tempdir().unwrap();
        let hash = HashPart::parse(&"1".repeat(32)).unwrap();
        let nars = NarCache::new();
        let identity = TreeIdentity::read(dir.path()).unwrap();
        let first = nars.plan(hash, identity, dir.path()).unwrap();
        nars.plans.lock().remove(&hash);
        let second = nars.plan(hash, identity, dir.path()).unwrap();
        assert!(Arc::ptr_eq(&first, &second));
        drop((first, second));
        assert!(nars.weak_plans.lock().get(&hash, identity).is_none());
    }
}
