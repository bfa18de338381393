//! What the store knows of a path, as ready narinfos.
//!
//! 1. the database says whether it has changed since the last batch of requests;
//! 2. a hash part that the index does not have is absent, without a request;
//! 3. a narinfo that was rendered since the last change is bytes;
//! 4. an older one is compared with its row, and signed again only if that has changed.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard};

use floe_format::{Compression, NarInfo, PathInfo, SecretKey, StoreDir};
use floe_store::{HashPartIndex, LiveStore, StoreError};

use crate::caches::lru::LruCache;
use crate::http::route::HashPart;

/// The rendered narinfos and the index, shared by all threads.
#[derive(Debug)]
pub(crate) struct NarInfoCache {
    dir: StoreDir,
    keys: Vec<SecretKey>,
    index: RwLock<HashPartIndex>,
    entries: Mutex<LruCache<HashPart, Arc<CachedNarInfo>>>,
    /// Goes up with each change that any thread sees, after the index has it. What was compared
    /// with the database by a thread whose view is of this number or a higher one is still right.
    epoch: AtomicU64,
}

/// One thread's view of the store.
#[derive(Debug)]
pub(crate) struct StoreSession {
    pub(crate) store: LiveStore,
    generation: Option<u64>,
    /// The epoch up to which this view is known to be right.
    epoch: u64,
    /// Whether the database was asked for changes in this batch.
    is_checked: bool,
}

/// A valid path.
#[derive(Debug)]
pub(crate) struct CachedNarInfo {
    pub(crate) info: PathInfo,
    /// The digest of the NAR hash, in base 32.
    pub(crate) nar_hash: String,
    /// The entity tag of the narinfo, with its quotes.
    pub(crate) etag: String,
    /// The header fields of the narinfo's answer.
    pub(crate) fields: Arc<str>,
    /// The narinfo.
    pub(crate) text: Arc<str>,
    /// The epoch in which it was last compared with the database.
    epoch: AtomicU64,
}

impl StoreSession {
    pub(crate) fn new(store: LiveStore) -> StoreSession {
        StoreSession {
            store,
            generation: None,
            epoch: 0,
            is_checked: false,
        }
    }

    /// Begins a batch: all its requests are here already, so one look at the database that comes
    /// later than they did is enough for all of them.
    pub(crate) fn begin_batch(&mut self) {
        self.is_checked = false;
    }
}

impl NarInfoCache {
    /// Reads the index of the store's paths.
    pub(crate) fn new(store: &LiveStore, keys: Vec<SecretKey>) -> Result<NarInfoCache, StoreError> {
        Ok(NarInfoCache {
            dir: store.layout().store_dir.clone(),
            keys,
            index: RwLock::new(HashPartIndex::load(store)?),
            entries: Mutex::new(LruCache::new(ENTRIES_BUDGET)),
            epoch: AtomicU64::new(1),
        })
    }

    /// How many paths there are, those included that were deleted meanwhile.
    pub(crate) fn path_count(&self) -> usize {
        self.index().len()
    }

    /// The valid path with that hash part.
    pub(crate) fn find(
        &self,
        session: &mut StoreSession,
        hash: HashPart,
    ) -> Result<Option<Arc<CachedNarInfo>>, StoreError> {
        self.refresh(session)?;
        if !self.index().may_contain(hash.as_str()) {
            return Ok(None);
        }
        // What this thread compares with the database is as right as its own view: another thread
        // may have seen a change since.
        let epoch = session.epoch;
        let known = self.entries().get(&hash);
        if let Some(entry) = &known
            && entry.epoch.load(Ordering::Acquire) >= epoch
        {
            return Ok(known);
        }
        let Some(info) = session.store.path_info_from_hash_part(hash.as_str())? else {
            self.entries().remove(&hash);
            return Ok(None);
        };
        if let Some(entry) = known
            && entry.info == info
        {
            entry.epoch.fetch_max(epoch, Ordering::AcqRel);
            return Ok(Some(entry));
        }
        let entry = Arc::new(self.render(info, epoch));
        let weight = ENTRY_OVERHEAD + 2 * entry.text.len();
        self.entries().put(hash, entry.clone(), weight);
        Ok(Some(entry))
    }

    /// Takes in what has changed in the database, once a batch.
    pub(crate) fn refresh(&self, session: &mut StoreSession) -> Result<(), StoreError> {
        if session.is_checked {
            return Ok(());
        }
        let epoch = self.epoch.load(Ordering::Acquire);
        let epoch_advanced = epoch != session.epoch;
        if epoch_advanced {
            // It may have been a change of the kind that is looked for only now and then.
            session.store.force_recheck();
        }
        let generation = session.store.generation()?;
        let is_new = session.generation != Some(generation);
        if is_new || (epoch_advanced && !self.index().matches_database_of(&session.store)?) {
            // Nobody waits for the index while this thread may be waiting for the database.
            // What another thread has taken meanwhile may be newer; then it is read once more.
            loop {
                let mark = self.index().cursor();
                let news = mark.delta(&session.store)?;
                let mut index = self.index.write().unwrap_or_else(PoisonError::into_inner);
                if index.apply(news) {
                    break;
                }
            }
            // What others see at the same time is looked at again in the next batch.
            let before = self.epoch.fetch_add(1, Ordering::AcqRel);
            session.epoch = if before == epoch { before + 1 } else { epoch };
            session.generation = Some(generation);
        } else {
            session.epoch = epoch;
        }
        session.is_checked = true;
        Ok(())
    }

    fn index(&self) -> RwLockReadGuard<'_, HashPartIndex> {
        self.index.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn render(&self, info: PathInfo, epoch: u64) -> CachedNarInfo {
        let mut signed = info.clone();
        // A signature over an unknown size would count for nobody.
        if info.nar_size != 0 {
            for key in &self.keys {
                signed.sign(&self.dir, key);
            }
        }
        let narinfo = NarInfo {
            url: nar_url(&info),
            compression: Compression::None,
            file_hash: Some(info.nar_hash),
            file_size: Some(info.nar_size),
            info: signed,
        };
        let text = narinfo.to_text(&self.dir);
        let digest = floe_hash::sha256(text.as_bytes());
        let etag = format!("\"{}\"", floe_format::nix32::encode(&digest[..ETAG_LEN]));
        CachedNarInfo {
            nar_hash: info.nar_hash.digest_nix32(),
            fields: narinfo_fields(&etag).into(),
            etag,
            text: text.into(),
            info,
            epoch: AtomicU64::new(epoch),
        }
    }

    fn entries(&self) -> std::sync::MutexGuard<'_, LruCache<HashPart, Arc<CachedNarInfo>>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// As nix-serve names it: old URLs stay in the caches of clients for a month.
fn nar_url(info: &PathInfo) -> String {
    format!(
        "nar/{}-{}.nar",
        info.path.hash_part(),
        info.nar_hash.digest_nix32()
    )
}

fn narinfo_fields(etag: &str) -> String {
    format!(
        "Content-Type: text/x-nix-narinfo\r\nCache-Control: max-age={NARINFO_AGE_MAX}\r\n\
         ETag: {etag}\r\n"
    )
}

/// For how many seconds a proxy may answer with a narinfo by itself. The path may be deleted at any
/// time, and a client that then finds no NAR looks elsewhere.
const NARINFO_AGE_MAX: u32 = 3600;

/// As many bytes of a digest as make two different narinfos with one tag unthinkable.
const ETAG_LEN: usize = 16;

/// About 8,000 narinfos of usual size.
const ENTRIES_BUDGET: usize = 16 * 1024 * 1024;

/// What an entry takes besides its texts, about.
const ENTRY_OVERHEAD: usize = 512;
