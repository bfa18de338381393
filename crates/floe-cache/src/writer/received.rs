//! Narinfos that other programs have made, and the NARs that they have uploaded before.

use std::io;
use std::path::Path;

use floe_format::narinfo::NARINFO_LEN_MAX;
use floe_format::{Compression, Hash, NarInfo, SecretKey, Signature, StorePath, TrustedKeys};
use floe_transfer::codec::{self, DecodeError, DecoderBudget};
use floe_transfer::{Body, Cancel, Error, NarRequest};

use super::arriving_nar::{NarFile, NarHasher};
use super::examine::Presence;
use super::nar_file::HashedFile;
use super::{BinaryCacheWriter, narinfo_name};
use crate::error::read_error;
use crate::storage::{Durability, put_and_wait};

/// The reason why a narinfo is not published.
#[derive(Debug, thiserror::Error)]
pub enum PublishError {
    /// The narinfo or its NAR is not what it says.
    #[error("{0}")]
    Invalid(String),
    /// The cache has other contents under this path, or lacks something that the path needs.
    #[error("{0}")]
    Conflict(String),
    /// The server verifies enough other paths.
    #[error("the server verifies other paths; try again")]
    Busy,
    /// The cache cannot be read or written.
    #[error(transparent)]
    Cache(#[from] Error),
}

/// A narinfo whose NAR was compared with it.
#[derive(Debug)]
pub struct VerifiedNarInfo(NarInfo);

/// The knowledge and the memory of a server that verifies a narinfo.
pub struct VerifyContext<'a> {
    /// Whether clients get a reference that the cache lacks from elsewhere.
    pub is_elsewhere: &'a dyn Fn(&StorePath) -> bool,
    /// Returns the facts about the file of a narinfo's NAR if the server has read it before. It is
    /// not read again then.
    ///
    /// Errors: the file may not be read now.
    pub known: &'a dyn Fn(&NarInfo) -> Result<Option<NarFile>, PublishError>,
    /// The memory of decoders.
    pub budget: &'a DecoderBudget,
}

impl BinaryCacheWriter {
    /// Checks a narinfo whose NAR is in the cache: reads the NAR, and compares it with the narinfo.
    /// Keeps the NAR and the references from a collection until the end of the writer.
    ///
    /// Errors: [`PublishError`].
    pub fn verify_received(
        &self,
        mut narinfo: NarInfo,
        context: &VerifyContext<'_>,
    ) -> Result<VerifiedNarInfo, PublishError> {
        let path = narinfo.info.path.clone();
        check_facts(&narinfo, self)?;
        let references = narinfo.info.references.iter().filter(|it| **it != path);
        let references: Vec<StorePath> = references.cloned().collect();
        // From here on, a collection keeps them.
        self.need(&[&references[..], std::slice::from_ref(&path)].concat())?;
        self.lease.need(std::iter::once(narinfo.url.as_str()))?;
        let present = self.examine(&references, &self.cancel)?;
        for (reference, presence) in references.iter().zip(present) {
            if !matches!(presence, Presence::Whole(_)) && !(context.is_elsewhere)(reference) {
                return Err(PublishError::Conflict(format!(
                    "cannot receive {path}: its reference {reference} is not here; push it first"
                )));
            }
        }
        let file = match (context.known)(&narinfo)? {
            Some(file) => file,
            None => self.read_nar_file(&narinfo, context.budget)?,
        };
        compare_file(&mut narinfo, file)?;
        narinfo.info.ultimate = false;
        Ok(VerifiedNarInfo(narinfo))
    }

    /// Publishes a narinfo with the signatures of `keys`, and those that the cache has already. One
    /// caller at a time may publish a path.
    ///
    /// Errors: [`PublishError`]; the cache stays as it was.
    pub fn publish_verified(
        &self,
        VerifiedNarInfo(narinfo): VerifiedNarInfo,
        keys: &[SecretKey],
    ) -> Result<(), PublishError> {
        let mut narinfo = self.with_present(narinfo)?;
        for key in keys {
            narinfo.info.sign(&self.store_dir, key);
        }
        // The name of the NAR must reach the disk before the narinfo does.
        self.storage.sync()?;
        let text: Vec<u8> = narinfo.to_text(&self.store_dir).into();
        if text.len() > NARINFO_LEN_MAX {
            let path = &narinfo.info.path;
            let message = format!("cannot receive {path}: its narinfo would be too long");
            return Err(PublishError::Invalid(message));
        }
        let name = narinfo_name(&narinfo.info.path);
        put_and_wait(&*self.storage, &name, text, Durability::Synced)?;
        self.storage.sync()?;
        Ok(())
    }

    /// Returns the narinfo that the cache has of the same contents, with the new signatures.
    /// Nothing else of it changes, because another client has written it.
    fn with_present(&self, mut narinfo: NarInfo) -> Result<NarInfo, PublishError> {
        let path = narinfo.info.path.clone();
        narinfo
            .info
            .drop_junk_signatures(&self.store_dir, &TrustedKeys::default());
        let Some(text) = self.get(&narinfo_name(&path))? else {
            return Ok(narinfo);
        };
        // A text that is no narinfo is damage, and is replaced.
        let Ok(mut present) = NarInfo::parse(&text, &self.store_dir) else {
            return Ok(narinfo);
        };
        let conflict = |what: &str| {
            let message = format!("cannot receive {path}: the cache has it with another {what}");
            PublishError::Conflict(message)
        };
        if present.info.path != path {
            return Err(conflict("name"));
        }
        if let Some(what) = narinfo.info.signed_difference(&present.info) {
            return Err(conflict(what));
        }
        let found = self.examine(std::slice::from_ref(&path), &self.cancel)?;
        if !matches!(&found[..], [Presence::Whole(_)]) {
            // The new NAR has the same contents.
            present = NarInfo {
                info: present.info,
                ..narinfo.clone()
            };
        }
        let len = |signature: &Signature| signature.to_string().len();
        let mut room = SIGNATURES_LEN_MAX;
        room = room.saturating_sub(present.info.signatures.iter().map(len).sum());
        for signature in narinfo.info.signatures {
            let is_new = !present.info.signatures.contains(&signature);
            // Other clients must not fill the narinfo with junk.
            if is_new && len(&signature) <= room {
                room -= len(&signature);
                present.info.signatures.insert(signature);
            }
        }
        Ok(present)
    }

    /// Reads the file of a NAR to its end.
    fn read_nar_file(
        &self,
        narinfo: &NarInfo,
        budget: &DecoderBudget,
    ) -> Result<NarFile, PublishError> {
        let (path, url) = (&narinfo.info.path, &narinfo.url);
        let body = self.storage.open(url, NarRequest::streamed());
        let Ok(Body::File { file, path: place }) = body else {
            return Err(PublishError::Conflict(format!(
                "cannot receive {path}: its NAR {url} is not here; upload it first"
            )));
        };
        let mut file = HashedFile::new(file);
        let contents = read_nar(narinfo, (&mut file, &place), (budget, &self.cancel))?;
        let (nar_hash, nar_size) = contents.map_err(|reason| refused(narinfo, &reason))?;
        // A compressed stream may end before its file does.
        io::copy(&mut file, &mut io::sink()).map_err(read_error("read", &place))?;
        let (file_hash, file_size) = file.finish();
        Ok(NarFile {
            compression: narinfo.compression,
            nar_hash,
            nar_size,
            file_hash,
            file_size,
        })
    }
}

/// Compares a narinfo with the file of its NAR. Completes the facts about the file.
fn compare_file(narinfo: &mut NarInfo, file: NarFile) -> Result<(), PublishError> {
    let info = &narinfo.info;
    if (file.nar_hash, file.nar_size) != (info.nar_hash, info.nar_size) {
        let reason = format!(
            "has the NAR hash {} and {} bytes, not {} and {}",
            file.nar_hash.to_nix32(),
            file.nar_size,
            info.nar_hash.to_nix32(),
            info.nar_size
        );
        return Err(refused(narinfo, &reason));
    }
    if narinfo.file_hash.is_some_and(|hash| hash != file.file_hash)
        || narinfo.file_size.is_some_and(|size| size != file.file_size)
    {
        let reason = format!(
            "is a file of {} bytes with the hash {}, which is not what the narinfo states",
            file.file_size,
            file.file_hash.to_nix32()
        );
        return Err(refused(narinfo, &reason));
    }
    narinfo.file_hash = Some(file.file_hash);
    narinfo.file_size = Some(file.file_size);
    Ok(())
}

fn refused(narinfo: &NarInfo, reason: &str) -> PublishError {
    let (path, url) = (&narinfo.info.path, &narinfo.url);
    PublishError::Invalid(format!("cannot receive {path}: its NAR {url} {reason}"))
}

/// Checks what a narinfo alone shows.
fn check_facts(narinfo: &NarInfo, cache: &BinaryCacheWriter) -> Result<(), PublishError> {
    let info = &narinfo.info;
    let refuse = |reason: &str| {
        let path = &info.path;
        Err(PublishError::Invalid(format!(
            "cannot receive {path}: {reason}"
        )))
    };
    let name = narinfo.url.strip_prefix("nar/");
    if name.is_none_or(|name| name.contains('/') || name.starts_with('.')) {
        return refuse("its URL does not name a file in nar/");
    }
    if let Compression::Unsupported(name) = &narinfo.compression {
        return refuse(&format!("floe does not know the compression {name}"));
    }
    if info.ca.is_some() && info.matches_content_address(&cache.store_dir) == Some(false) {
        return refuse("its content address belongs to another path");
    }
    Ok(())
}

/// Reads a NAR out of its file. Returns its hash and its size in bytes, or the reason why it is no
/// NAR.
fn read_nar(
    narinfo: &NarInfo,
    (file, place): (&mut HashedFile, &Path),
    (budget, cancel): (&DecoderBudget, &Cancel),
) -> Result<Result<(Hash, u64), String>, Error> {
    let mut nar = NarHasher::new(narinfo.info.nar_size);
    let mut receive = |bytes: &[u8]| {
        if cancel.is_raised() {
            return Err(Refusal::Cancelled);
        }
        nar.update(bytes).map_err(Refusal::Contents)
    };
    let window = (narinfo.info.nar_size, budget);
    let permit = codec::acquire_window(narinfo.compression, file, window);
    let _permit = permit.map_err(|error| read_error("read", place)(error))?;
    let decoded = codec::decode(narinfo.compression, file, &mut receive);
    let refusal = match decoded {
        Ok(()) => None,
        Err(DecodeError::Receiver(Refusal::Cancelled)) => return Err(Error::Cancelled),
        Err(DecodeError::Receiver(Refusal::Contents(reason))) => Some(reason),
        Err(DecodeError::Unsupported) => Some("has a compression that floe does not know".into()),
        Err(DecodeError::Read(error)) => {
            return Err(read_error("read", place)(error));
        }
        Err(DecodeError::Damaged(error)) => Some(format!("cannot be decompressed: {error}")),
    };
    Ok(match refusal {
        Some(reason) => Err(reason),
        None => nar.finish(),
    })
}

/// Why the bytes of a NAR are not read to their end.
enum Refusal {
    Cancelled,
    Contents(String),
}

/// The longest signatures of a narinfo or a realisation to which a client may add some, in bytes:
/// those of about 80 keys.
pub const SIGNATURES_LEN_MAX: usize = 8 * 1024;
