//! Adds signatures to narinfos that a cache has already.

use std::collections::BTreeMap;

use floe_format::{NarInfo, PathInfo, SecretKey, StoreDir, StorePath};
use floe_transfer::{Cancel, Error, SigningOutcome, SigningTarget};

use super::{BinaryCacheWriter, narinfo_name};
use crate::storage::{Durability, REQUESTS_MAX, Replies, WriteStorage, get_all};

/// The narinfos that lack a signature, by their paths.
pub(super) type UnsignedNarInfos = BTreeMap<StorePath, UnsignedNarInfo>;

/// A narinfo in a cache that lacks a signature.
#[derive(Debug)]
pub(super) struct UnsignedNarInfo {
    info: PathInfo,
    /// The text in the cache, which may have fields that floe does not know.
    text: Vec<u8>,
}

impl BinaryCacheWriter {
    /// Remembers a narinfo that lacks a signature by one of the keys.
    pub(super) fn note_signatures(&self, narinfo: &NarInfo, text: &[u8]) {
        if missing_signatures(&narinfo.info, &self.store_dir, &self.keys).is_empty() {
            return;
        }
        let unsigned = UnsignedNarInfo {
            info: narinfo.info.clone(),
            text: text.to_vec(),
        };
        let path = narinfo.info.path.clone();
        self.unsigned.lock().insert(path, unsigned);
    }

    fn write_signed(
        &self,
        texts: Vec<(StorePath, Vec<u8>)>,
        outcome: &mut SigningOutcome,
    ) -> Result<(), Error> {
        let written = |path| outcome.signed.push(path);
        put_all(&*self.storage, texts, &self.cancel, written)?;
        self.storage.sync()
    }
}

impl SigningTarget for BinaryCacheWriter {
    fn unsigned_paths(&self) -> Vec<StorePath> {
        self.unsigned.lock().keys().cloned().collect()
    }

    fn add_signatures(&self, infos: &[PathInfo]) -> Result<SigningOutcome, Error> {
        let mut outcome = SigningOutcome::default();
        let mut texts = Vec::new();
        for info in infos {
            let Some(unsigned) = self.unsigned.lock().remove(&info.path) else {
                continue;
            };
            if let Some(what) = difference(info, &unsigned.info) {
                outcome.different.push((info.path.clone(), what));
                continue;
            }
            let UnsignedNarInfo { info, text } = unsigned;
            let signed = with_signatures(&info, text, &self.store_dir, &self.keys);
            texts.extend(signed.map(|text| (info.path, text)));
        }
        self.write_signed(texts, &mut outcome)?;
        Ok(outcome)
    }

    fn sign(&self, paths: &[StorePath]) -> Result<SigningOutcome, Error> {
        let mut by_name: BTreeMap<String, &StorePath> = paths
            .iter()
            .map(|path| (narinfo_name(path), path))
            .collect();
        let names = by_name.keys().cloned().collect();
        let (mut outcome, mut texts) = (SigningOutcome::default(), Vec::new());
        get_all(&*self.storage, names, &self.cancel, |name, text| {
            let Some(path) = by_name.remove(&name) else {
                return Ok(());
            };
            match self.parse_narinfo(path, &text) {
                Ok(narinfo) => {
                    let info = narinfo.info;
                    let signed = with_signatures(&info, text, &self.store_dir, &self.keys);
                    texts.extend(signed.map(|text| (path.clone(), text)));
                }
                Err(reason) => outcome.unusable.push((path.clone(), reason)),
            }
            Ok(())
        })?;
        outcome.absent = by_name.into_values().cloned().collect();
        self.write_signed(texts, &mut outcome)?;
        Ok(outcome)
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

/// Returns the signatures by keys that a path lacks.
fn missing_signatures(
    info: &PathInfo,
    dir: &StoreDir,
    keys: &[SecretKey],
) -> Vec<floe_format::Signature> {
    if keys.is_empty() {
        return Vec::new();
    }
    let fingerprint = info.fingerprint(dir);
    let made = keys.iter().map(|key| key.sign(fingerprint.as_bytes()));
    made.filter(|it| !info.signatures.contains(it)).collect()
}

/// Returns the text of a narinfo with the signatures that it lacks; `None` if it has all.
fn with_signatures(
    info: &PathInfo,
    mut text: Vec<u8>,
    dir: &StoreDir,
    keys: &[SecretKey],
) -> Option<Vec<u8>> {
    let missing = missing_signatures(info, dir, keys);
    for signature in &missing {
        text.extend_from_slice(format!("Sig: {signature}\n").as_bytes());
    }
    (!missing.is_empty()).then_some(text)
}

/// Returns what differs between a path and the narinfo in the cache, of the facts that a signature
/// covers.
fn difference(local: &PathInfo, cached: &PathInfo) -> Option<&'static str> {
    match () {
        () if local.nar_hash != cached.nar_hash => Some("NAR hash"),
        () if local.nar_size != cached.nar_size => Some("NAR size"),
        () if local.references != cached.references => Some("references"),
        () => None,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

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
    fn signature_is_appended_once_and_other_fields_stay() {
        let dir = StoreDir::default();
        let keys = [SecretKey::parse(KEY).unwrap()];
        let parse = |text: &[u8]| NarInfo::parse(text, &dir).unwrap().info;
        let unsigned = parse(NARINFO.as_bytes());
        let text = with_signatures(&unsigned, NARINFO.into(), &dir, &keys).unwrap();
        let (before, added) = text.split_at(NARINFO.len());
        assert_eq!(before, NARINFO.as_bytes());
        assert!(added.starts_with(b"Sig: k:"));
        let signed = parse(&text);
        assert_eq!(signed.signatures.len(), 1);
        assert_eq!(with_signatures(&signed, text, &dir, &keys), None);
        assert_eq!(difference(&signed, &unsigned), None);
    }

    #[test]
    fn other_contents_differ() {
        let dir = StoreDir::default();
        let info = NarInfo::parse(NARINFO.as_bytes(), &dir).unwrap().info;
        let mut other = info.clone();
        other.nar_size += 1;
        assert_eq!(difference(&info, &other), Some("NAR size"));
        let mut other = info.clone();
        other.references = BTreeSet::from([info.path.clone()]);
        assert_eq!(difference(&info, &other), Some("references"));
    }
}
