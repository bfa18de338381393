//! Rendered and signed narinfos of valid paths.
//!
//! A lookup takes the cheapest of these ways:
//!
//! 1. Once per batch of requests the session asks the database whether it has changed.
//! 2. A hash part that is not in the index belongs to no valid path.
//! 3. A narinfo that was verified since the last change is used as it is.
//! 4. An older narinfo is compared with its row in the database. It is rendered and signed again
//!    only if the row has changed, and if the path still has its files.
//!
//! # Epochs
//!
//! Each thread has its own connection to the database, and notices a change at another moment.
//! A narinfo that one thread has compared with an old view of the database must not be used by a
//! thread with a newer view. The epoch orders these views:
//!
//! - A session that notices a change updates the index first, and then increments
//!   [`NarInfoCache::epoch`].
//! - The epoch of a session says: all changes that were counted up to this number are in its view.
//! - The epoch of a narinfo is that of the session that compared it with the database. A session
//!   uses the narinfo without asking the database if the narinfo's epoch is not lower than its own.
//!
//! If another session has incremented the epoch meanwhile, the view of this session may lack the
//! change that the other one noticed. The session then keeps the epoch that it began with, and
//! looks again in its next batch.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use floe_format::{Compression, HashPart, NarInfo, PathInfo, Realisation, SecretKey, StoreDir};
use floe_store::{HashPartIndex, LiveStore, StoreError};
use parking_lot::{Mutex, RwLock};

use super::tree_identity::TreeIdentity;
use crate::http::response::CacheUse;
use crate::lru::LruCache;

/// The narinfos and the index of valid paths, shared by all threads.
#[derive(Debug)]
pub(crate) struct NarInfoCache {
    dir: StoreDir,
    keys: RwLock<Vec<SecretKey>>,
    index: RwLock<HashPartIndex>,
    narinfos: Mutex<LruCache<HashPart, Arc<CachedNarInfo>>>,
    /// See the module's documentation.
    epoch: AtomicU64,
}

/// The view that one thread has of the store.
#[derive(Debug)]
pub(crate) struct StoreSession {
    pub(crate) store: LiveStore,
    /// The generation of the store that the index was last updated for.
    generation: Option<u64>,
    epoch: u64,
    /// Whether the database was asked for changes in this batch.
    is_checked: bool,
}

/// A valid path with its narinfo.
#[derive(Debug)]
pub(crate) struct CachedNarInfo {
    pub(crate) hash: HashPart,
    pub(crate) info: PathInfo,
    /// The entity tag of the NAR: the NAR hash in base 32, in quotes.
    pub(crate) nar_etag: String,
    /// The entity tag of the narinfo, with its quotes.
    pub(crate) etag: String,
    /// The header fields of a response with the narinfo.
    pub(crate) fields: Arc<str>,
    /// The narinfo.
    pub(crate) text: Arc<str>,
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

    /// Begins a batch of requests that have all been read already. The database is asked for
    /// changes once for all of them.
    pub(crate) fn begin_batch(&mut self) {
        self.is_checked = false;
    }
}

impl CachedNarInfo {
    /// Returns the digest of the NAR hash in base 32.
    pub(crate) fn nar_hash(&self) -> &str {
        self.nar_etag.trim_matches('"')
    }
}

impl NarInfoCache {
    /// Reads the index of the store's paths.
    pub(crate) fn new(store: &LiveStore, keys: Vec<SecretKey>) -> Result<NarInfoCache, StoreError> {
        Ok(NarInfoCache {
            dir: store.layout().store_dir.clone(),
            keys: RwLock::new(keys),
            index: RwLock::new(HashPartIndex::load(store)?),
            narinfos: Mutex::new(LruCache::new(NARINFOS_BUDGET)),
            epoch: AtomicU64::new(1),
        })
    }

    /// Returns the valid path with a hash part, and whether its narinfo was in the cache.
    ///
    /// Errors: the database is busy, or cannot be read. The files of the path are missing, if that
    /// has been noticed: by this, before a narinfo enters the cache, or by a request for the NAR
    /// (see [`NarInfoCache::forget`]).
    pub(crate) fn get(
        &self,
        session: &mut StoreSession,
        hash: HashPart,
    ) -> Result<Option<(Arc<CachedNarInfo>, CacheUse)>, StoreError> {
        self.refresh(session)?;
        if !self.index.read().may_contain(hash) {
            return Ok(None);
        }
        // Another thread may increment the epoch in this moment. A comparison with the view of
        // this session proves no more than the session's epoch.
        let epoch = session.epoch;
        let known = self.narinfos.lock().get(&hash);
        if let Some(known) = &known
            && known.epoch.load(Ordering::Acquire) >= epoch
        {
            return Ok(Some((known.clone(), CacheUse::Hit)));
        }
        let Some(info) = session.store.path_info_from_hash_part(hash)? else {
            self.forget(hash);
            return Ok(None);
        };
        if let Some(known) = known
            && known.info == info
        {
            known.epoch.fetch_max(epoch, Ordering::AcqRel);
            return Ok(Some((known, CacheUse::Hit)));
        }
        let place = session.store.layout().real_path(&info.path);
        if let Err(missing) = TreeIdentity::read(&place) {
            self.forget(hash);
            return Err(missing);
        }
        // Held until the narinfo is in the cache, which new keys empty.
        let keys = self.keys.read();
        let rendered = Arc::new(self.render(hash, (info, &keys), epoch));
        let weight = NARINFO_OVERHEAD + 2 * rendered.text.len();
        self.narinfos.lock().put(hash, rendered.clone(), weight);
        drop(keys);
        Ok(Some((rendered, CacheUse::Miss)))
    }

    /// Signs with other keys from now on.
    pub(crate) fn replace_keys(&self, new: Vec<SecretKey>) {
        let mut keys = self.keys.write();
        *keys = new;
        self.narinfos.lock().clear();
    }

    /// Removes a narinfo whose path has lost its files. The next lookup examines the files.
    pub(crate) fn forget(&self, hash: HashPart) {
        self.narinfos.lock().remove(&hash);
    }

    /// Updates the index and the epoch if the database has changed. Does nothing if that was done
    /// in this batch.
    ///
    /// Errors: the database is busy, or cannot be read.
    pub(crate) fn refresh(&self, session: &mut StoreSession) -> Result<(), StoreError> {
        if session.is_checked {
            return Ok(());
        }
        let epoch = self.epoch.load(Ordering::Acquire);
        let epoch_advanced = epoch != session.epoch;
        if epoch_advanced {
            // Some changes, such as a replaced database file, are only looked for now and then.
            // Another session may have noticed one of those.
            session.store.force_recheck();
        }
        let generation = session.store.generation()?;
        let has_changed = session.generation != Some(generation);
        if has_changed
            || (epoch_advanced && !self.index.read().matches_database_of(&session.store)?)
        {
            // The index is not locked while the database is read, which may take long. If another
            // thread has updated the index meanwhile, this delta may be stale, so it is read again.
            loop {
                let mark = self.index.read().cursor();
                let news = mark.delta(&session.store)?;
                let mut index = self.index.write();
                if index.apply(news) {
                    break;
                }
            }
            let before = self.epoch.fetch_add(1, Ordering::AcqRel);
            session.epoch = if before == epoch { before + 1 } else { epoch };
            session.generation = Some(generation);
        } else {
            session.epoch = epoch;
        }
        session.is_checked = true;
        Ok(())
    }

    /// Returns the signed narinfo of a path, without the fields that only a local store has.
    pub(crate) fn narinfo(&self, hash: HashPart, info: &PathInfo) -> NarInfo {
        self.signed_narinfo(hash, info, &self.keys.read())
    }

    fn signed_narinfo(&self, hash: HashPart, info: &PathInfo, keys: &[SecretKey]) -> NarInfo {
        let mut signed = PathInfo {
            registration_time: None,
            ultimate: false,
            ..info.clone()
        };
        // No client accepts a signature over an unknown size.
        if info.nar_size != 0 {
            for key in keys {
                signed.sign(&self.dir, key);
            }
        }
        let nar_hash = info.nar_hash.digest_nix32();
        NarInfo {
            // The form of nix-serve. Clients keep URLs in their caches for a month.
            url: format!("nar/{}-{nar_hash}.nar", hash.as_str()),
            compression: Compression::None,
            file_hash: Some(info.nar_hash),
            file_size: Some(info.nar_size),
            info: signed,
        }
    }

    /// Adds the signatures by the keys of the server to a realisation.
    pub(crate) fn sign_realisation(&self, realisation: &mut Realisation) {
        for key in &*self.keys.read() {
            realisation.sign(key);
        }
    }

    fn render(
        &self,
        hash: HashPart,
        (info, keys): (PathInfo, &[SecretKey]),
        epoch: u64,
    ) -> CachedNarInfo {
        let text = self.signed_narinfo(hash, &info, keys).to_text(&self.dir);
        let digest = floe_hash::sha256(text.as_bytes());
        let etag = format!("\"{}\"", floe_format::nix32::encode(&digest[..ETAG_LEN]));
        let fields = format!(
            "Content-Type: text/x-nix-narinfo\r\nCache-Control: max-age={NARINFO_AGE_MAX}\r\n\
             ETag: {etag}\r\n"
        );
        CachedNarInfo {
            hash,
            nar_etag: format!("\"{}\"", info.nar_hash.digest_nix32()),
            info,
            etag,
            fields: fields.into(),
            text: text.into(),
            epoch: AtomicU64::new(epoch),
        }
    }
}

/// For how many seconds a proxy may respond with a narinfo by itself. The path may be deleted
/// before. A client that then finds no NAR asks another cache.
const NARINFO_AGE_MAX: u32 = 3600;

/// The bytes of the digest that make the entity tag. Two narinfos with equal tags do not occur.
const ETAG_LEN: usize = 16;

/// About 8,000 narinfos of usual size.
const NARINFOS_BUDGET: usize = 16 * 1024 * 1024;

/// About the memory of a narinfo besides its texts.
const NARINFO_OVERHEAD: usize = 512;
