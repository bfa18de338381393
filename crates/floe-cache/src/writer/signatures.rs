//! Adds signatures to narinfos that a cache has already.

use std::collections::BTreeMap;
use std::fs::{File, TryLockError};
use std::path::Path;
use std::thread;
use std::time::Duration;

use floe_format::narinfo::NARINFO_LEN_MAX;
use floe_format::{NarInfo, PathInfo, SecretKey, Signature, StoreDir, StorePath};
use floe_transfer::{
    Cancel, Error, SignatureChange, SignatureTarget, SigningOutcome, SigningTarget,
};

use super::{BinaryCacheWriter, narinfo_name};
use crate::binary_cache::CACHE_INFO;
use crate::error::file_error;
use crate::storage::{Durability, REQUESTS_MAX, Replies, WriteStorage, get_all};

impl BinaryCacheWriter {
    /// Remembers a path whose narinfo lacks a signature by one of the keys.
    pub(super) fn note_signatures(&self, narinfo: &NarInfo) {
        if !missing_signatures(&narinfo.info, &self.store_dir, &self.keys).is_empty() {
            self.unsigned.lock().insert(narinfo.info.path.clone());
        }
    }

    /// Reads the narinfos of paths, and writes those whose signatures change at once: another
    /// process may change them at any time. `change` returns the change for a path, or names the
    /// fact by which the path differs.
    pub(super) fn sign_now<'a>(
        &self,
        paths: impl Iterator<Item = &'a StorePath>,
        change: impl Fn(&PathInfo) -> Result<SignatureChange, &'static str>,
    ) -> Result<SigningOutcome, Error> {
        let mut by_name: BTreeMap<String, &StorePath> =
            paths.map(|path| (narinfo_name(path), path)).collect();
        // A deleted narinfo must not come back.
        self.lease.need(by_name.keys().map(String::as_str))?;
        let (mut outcome, mut texts) = (SigningOutcome::default(), Vec::new());
        let names: Vec<String> = by_name.keys().cloned().collect();
        let _lock = self.lock_signatures()?;
        for part in names.chunks(REQUESTS_MAX) {
            get_all(&*self.storage, part.to_vec(), &self.cancel, |name, text| {
                let Some(path) = by_name.remove(&name) else {
                    return Ok(());
                };
                match self.with_signatures(path, text, &change) {
                    Ok(signed) => texts.extend(signed.map(|text| (path.clone(), text))),
                    Err(Obstacle::Different(what)) => outcome.different.push((path.clone(), what)),
                    Err(Obstacle::Unusable(why)) => outcome.unusable.push((path.clone(), why)),
                }
                Ok(())
            })?;
            let written = |path| outcome.signed.push(path);
            put_all(
                &*self.storage,
                std::mem::take(&mut texts),
                &self.cancel,
                written,
            )?;
        }
        outcome.absent = by_name.into_values().cloned().collect();
        self.storage.sync()?;
        Ok(outcome)
    }

    /// Signs the paths whose facts are those of `infos`. `signatures` returns those that such a
    /// path shall have too.
    fn sign_equal(
        &self,
        infos: &[PathInfo],
        signatures: impl Fn(&PathInfo) -> Vec<Signature>,
    ) -> Result<SigningOutcome, Error> {
        let by_path: BTreeMap<&StorePath, &PathInfo> =
            infos.iter().map(|info| (&info.path, info)).collect();
        self.sign_now(by_path.keys().copied(), |cached| {
            let Some(info) = by_path.get(&cached.path) else {
                return Ok(SignatureChange::default());
            };
            let difference = info.signed_difference(cached);
            difference.map_or_else(|| Ok(added(signatures(info))), Err)
        })
    }

    /// Keeps other floes from signing in the same directory until the lock is dropped. Caches
    /// elsewhere have no lock.
    fn lock_signatures(&self) -> Result<Option<File>, Error> {
        let Some(cache) = self.storage.nar_directory().and_then(Path::parent) else {
            return Ok(None);
        };
        // Writers hold a lock of the directory of NARs.
        let place = cache.join(CACHE_INFO);
        let file = File::open(&place).map_err(file_error("lock", &place))?;
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(Some(file)),
                Err(TryLockError::WouldBlock) if self.cancel.is_raised() => {
                    return Err(Error::Cancelled);
                }
                Err(TryLockError::WouldBlock) => thread::sleep(LOCK_POLL),
                // A file system without locks.
                Err(TryLockError::Error(_)) => return Ok(None),
            }
        }
    }

    /// Returns the text of a narinfo with changed signatures; `None` if nothing changes. Other
    /// fields stay, also those that floe does not know.
    fn with_signatures(
        &self,
        path: &StorePath,
        mut text: Vec<u8>,
        change: &impl Fn(&PathInfo) -> Result<SignatureChange, &'static str>,
    ) -> Result<Option<Vec<u8>>, Obstacle> {
        let narinfo = self.parse_narinfo(path, &text);
        let info = narinfo.map_err(Obstacle::Unusable)?.info;
        let mut change = change(&info).map_err(Obstacle::Different)?;
        let is_there = |signature: &Signature| info.signatures.contains(signature);
        change.added.retain(|signature| !is_there(signature));
        change.removed.retain(is_there);
        if !change.removed.is_empty() {
            text = without_signatures(&text, &change.removed);
        }
        for signature in &change.added {
            text.extend_from_slice(format!("Sig: {signature}\n").as_bytes());
        }
        let mut expected = info.signatures.clone();
        change.apply_to(&mut expected);
        let changed = self
            .parse_narinfo(path, &text)
            .map_err(Obstacle::Unusable)?;
        if changed.info.signatures != expected {
            let reason = "its signatures stand in lines of an unusual form";
            return Err(Obstacle::Unusable(reason.into()));
        }
        if text.len() > NARINFO_LEN_MAX {
            return Err(Obstacle::Unusable("its narinfo would be too long".into()));
        }
        Ok((!change.is_empty()).then_some(text))
    }
}

/// A reason against a signature.
enum Obstacle {
    /// The source has another value of this fact.
    Different(&'static str),
    Unusable(String),
}

impl SigningTarget for BinaryCacheWriter {
    fn unsigned_paths(&self) -> Vec<StorePath> {
        self.unsigned.lock().iter().cloned().collect()
    }

    fn add_signatures(&self, infos: &[PathInfo]) -> Result<SigningOutcome, Error> {
        self.sign_equal(infos, |info| {
            missing_signatures(info, &self.store_dir, &self.keys)
        })
    }

    fn sign(&self, paths: &[StorePath]) -> Result<SigningOutcome, Error> {
        let new = |cached: &PathInfo| missing_signatures(cached, &self.store_dir, &self.keys);
        self.sign_now(paths.iter(), |cached| Ok(added(new(cached))))
    }
}

impl SignatureTarget for BinaryCacheWriter {
    fn merge_signatures(&self, infos: &[PathInfo]) -> Result<SigningOutcome, Error> {
        self.sign_equal(infos, |info| info.signatures.iter().cloned().collect())
    }
}

/// Writes narinfos, many at once. Calls `written` for each path.
///
/// Errors: the first one of the storage; [`Error::Cancelled`] before the next write.
fn put_all(
    storage: &dyn WriteStorage,
    texts: Vec<(StorePath, Vec<u8>)>,
    cancel: &Cancel,
    mut written: impl FnMut(StorePath),
) -> Result<(), Error> {
    // A write that has begun is waited for, so that nothing half-written stays.
    let mut replies = Replies::new(&Cancel::default());
    let mut unsent = texts.into_iter();
    loop {
        while replies.pending() < REQUESTS_MAX
            && !cancel.is_raised()
            && let Some((path, text)) = unsent.next()
        {
            let name = narinfo_name(&path);
            let reply = replies.callback(move |done: Result<(), Error>| (path, done));
            storage.put(&name, text, Durability::Synced, reply);
        }
        match replies.next()? {
            Some((path, done)) => {
                done?;
                written(path);
            }
            None if cancel.is_raised() => return Err(Error::Cancelled),
            None => return Ok(()),
        }
    }
}

fn added(signatures: Vec<Signature>) -> SignatureChange {
    SignatureChange {
        added: signatures,
        removed: Vec::new(),
    }
}

/// Returns the text of a narinfo without some signatures.
fn without_signatures(text: &[u8], removed: &[Signature]) -> Vec<u8> {
    let is_removed = |line: &[u8]| {
        // The value begins two bytes after the name, whatever the byte between is.
        let value = line.strip_prefix(b"Sig:").and_then(|it| it.get(1..));
        let value = value.and_then(|it| str::from_utf8(it.trim_ascii()).ok());
        let signature = value.and_then(|it| Signature::parse(it).ok());
        signature.is_some_and(|it| removed.contains(&it))
    };
    let lines = text.split_inclusive(|byte| *byte == b'\n');
    let kept = lines.filter(|line| !is_removed(line));
    kept.collect::<Vec<_>>().concat()
}

/// Returns the signatures by keys that a path lacks.
fn missing_signatures(info: &PathInfo, dir: &StoreDir, keys: &[SecretKey]) -> Vec<Signature> {
    if keys.is_empty() {
        return Vec::new();
    }
    let fingerprint = info.fingerprint(dir);
    let made = keys.iter().map(|key| key.sign(fingerprint.as_bytes()));
    made.filter(|it| !info.signatures.contains(it)).collect()
}

/// How often a process looks whether another one has finished to sign.
const LOCK_POLL: Duration = Duration::from_millis(20);

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "k:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA7aie8zrakLWKjqN\
                       Aqbw1zZTIVdx3iQ6Y6wEihi1naKQ==";

    const NARINFO: &str = "\
StorePath: /nix/store/0c5b8vw40dy178xlpddw65q9gf1h2186-jq-1.6
URL: nar/a.nar.zst
Compression: zstd
NarHash: sha256:0yzcdk0y0mjhn0szq6j5mhi5knxxmdylyyhf0h2mxbqvdjzwa5rj
NarSize: 1000
References: \n\
X-Other: kept
";

    #[test]
    fn signature_is_missing_until_it_is_there() {
        let dir = StoreDir::default();
        let keys = [SecretKey::parse(KEY).unwrap()];
        let mut info = NarInfo::parse(NARINFO.as_bytes(), &dir).unwrap().info;
        let missing = missing_signatures(&info, &dir, &keys);
        assert_eq!(missing.len(), 1);
        info.signatures.extend(missing);
        assert!(missing_signatures(&info, &dir, &keys).is_empty());
        assert!(missing_signatures(&info, &dir, &[]).is_empty());
    }
}
