//! Uploads of objects that fit into memory.

use std::cell::Cell;
use std::io;
use std::sync::Arc;

use floe_cache::{Durability, PublishError, SIGNATURES_LEN_MAX, VerifyContext, WriteStorage as _};
use floe_format::{DrvOutput, HashPart, NarInfo, Realisation, StorePath, TrustedKeys};
use floe_server::receive::{
    Condition, Object, PushScope, ReceiveError, ReceiveErrorKind, Upload, UploadRequest,
};
use floe_transfer::RealisationTarget as _;

use super::errors::{conflict, failed, invalid, not_published};
use super::limits::{check_len, check_name};
use super::pin_upload::PinUpload;
use super::{Destination, Shared, wait};

/// An object that fits into memory.
#[derive(Debug)]
pub(super) struct SmallUpload {
    shared: Arc<Shared>,
    object: Object,
    /// The login of the client.
    user: String,
    may_push: PushScope,
    is_deletion: bool,
    condition: Condition,
    bytes: Vec<u8>,
    /// The memory that it has taken, in bytes.
    taken: u64,
    max: u64,
}

impl SmallUpload {
    /// Begins an upload of at most `max` bytes.
    pub(super) fn new(shared: &Arc<Shared>, request: &UploadRequest, max: u64) -> SmallUpload {
        SmallUpload {
            shared: shared.clone(),
            object: request.object.clone(),
            user: request.user.clone(),
            may_push: request.may_push.clone(),
            is_deletion: request.is_deletion,
            condition: request.condition.clone(),
            bytes: Vec::new(),
            taken: 0,
            max,
        }
    }
}

impl Drop for SmallUpload {
    fn drop(&mut self) {
        self.shared.memory.give_back(&self.user, self.taken);
    }
}

impl Upload for SmallUpload {
    fn write(&mut self, bytes: &[u8]) -> Result<(), ReceiveError> {
        check_len((self.bytes.len() + bytes.len()) as u64, self.max)?;
        self.shared.memory.take(&self.user, bytes.len() as u64)?;
        self.taken += bytes.len() as u64;
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> Result<(), ReceiveError> {
        match &self.object.clone() {
            Object::NarInfo(hash) => self.publish(*hash),
            Object::Listing(hash) => self.keep_listing(*hash),
            Object::Log(derivation) => {
                self.check_name(derivation)?;
                self.put_new()
            }
            Object::Realisation(id) => self.register(id),
            Object::Pin(name) => self.pin_upload(name).finish(&self.bytes, self.is_deletion),
            Object::PinsInfo => self.pin_upload("").put_info(&self.bytes),
            Object::Nar(_) => {
                let message = "a NAR is no small object";
                Err(ReceiveError::new(ReceiveErrorKind::System, message))
            }
        }
    }
}

impl SmallUpload {
    fn pin_upload<'a>(&'a self, name: &'a str) -> PinUpload<'a> {
        PinUpload {
            shared: &self.shared,
            name,
            condition: &self.condition,
            may_push: &self.may_push,
        }
    }

    fn publish(&self, hash: HashPart) -> Result<(), ReceiveError> {
        let shared = &self.shared;
        let narinfo = NarInfo::parse(&self.bytes, &shared.store_dir);
        let narinfo = narinfo.map_err(|error| invalid(error.to_string()))?;
        let path = &narinfo.info.path;
        if path.hash_part() != hash {
            return Err(invalid(format!("the narinfo is that of {path}")));
        }
        self.check_name(path)?;
        // A small file may decode to a large NAR.
        check_len(narinfo.info.nar_size, shared.limits.nar_len_max)?;
        match &shared.destination {
            Destination::Cache(_) => self.publish_in_cache(narinfo),
            Destination::Store(store) => store.add(shared, narinfo),
        }
    }

    fn publish_in_cache(&self, narinfo: NarInfo) -> Result<(), ReceiveError> {
        let shared = &self.shared;
        let name = narinfo.info.path.hash_part();
        let writer = shared.writer().map_err(failed)?;
        let reading = Cell::new(None);
        let known = |narinfo: &NarInfo| {
            let place = shared.directory.join(&narinfo.url);
            let known = shared.known.get(&narinfo.url, &place);
            let known = known.filter(|file| file.compression == narinfo.compression);
            if known.is_none() {
                reading.set(Some(shared.readings.take().ok_or(PublishError::Busy)?));
            }
            Ok(known)
        };
        let context = VerifyContext {
            is_elsewhere: &|path| shared.is_in_store(path),
            known: &known,
            budget: &shared.decoder_budget,
        };
        let verified = writer.verify_received(narinfo, &context);
        let verified = verified.map_err(not_published)?;
        drop(reading);
        let _lock = shared.lock_name(name.as_str());
        let published = writer.publish_verified(verified, &shared.keys());
        published.map_err(not_published)
    }

    /// Checks that the login may push a path.
    fn check_name(&self, path: &StorePath) -> Result<(), ReceiveError> {
        check_name(&self.may_push, path)
    }

    fn keep_listing(&mut self, hash: HashPart) -> Result<(), ReceiveError> {
        if serde_json::from_slice::<serde::de::IgnoredAny>(&self.bytes).is_err() {
            return Err(invalid("the listing is not JSON"));
        }
        match &self.shared.destination {
            Destination::Cache(_) => {
                self.check_listing(hash)?;
                self.put_new()
            }
            // The server lists the files of its store itself.
            Destination::Store(_) => Ok(()),
        }
    }

    /// Checks that the login may push the path of a listing, whose name only its narinfo tells.
    fn check_listing(&self, hash: HashPart) -> Result<(), ReceiveError> {
        if self.may_push.prefixes().is_empty() {
            return Ok(());
        }
        let place = self.shared.directory.join(Object::NarInfo(hash).name());
        let text = std::fs::read(place).unwrap_or_default();
        match NarInfo::parse(&text, &self.shared.store_dir) {
            Ok(narinfo) => self.check_name(&narinfo.info.path),
            Err(_) => {
                let message = "cannot receive a listing before its narinfo from this login";
                Err(ReceiveError::new(ReceiveErrorKind::Forbidden, message))
            }
        }
    }

    fn register(&self, id: &DrvOutput) -> Result<(), ReceiveError> {
        let realisation = Realisation::parse(id, &self.bytes);
        let realisation = realisation.map_err(|error| invalid(error.to_string()))?;
        if !self.may_push.prefixes().is_empty() {
            // The derivation of the output is not known by its name.
            let message = "cannot receive a realisation: the login may push only some paths";
            return Err(ReceiveError::new(ReceiveErrorKind::Forbidden, message));
        }
        match &self.shared.destination {
            Destination::Cache(_) => self.register_in_cache(realisation),
            Destination::Store(store) => store.add_realisation(realisation),
        }
    }

    fn register_in_cache(&self, mut realisation: Realisation) -> Result<(), ReceiveError> {
        realisation.drop_junk_signatures(&TrustedKeys::default());
        let out_path = &realisation.out_path;
        let narinfo = Object::NarInfo(out_path.hash_part()).name();
        if !self.shared.exists(&narinfo) && !self.shared.is_in_store(out_path) {
            let message = format!("cannot receive a realisation: {out_path} is not here");
            return Err(conflict(message));
        }
        let name = self.object.name();
        let _lock = self.shared.lock_name(&name);
        match std::fs::read(self.shared.directory.join(&name)) {
            Ok(text) => check_present_realisation(&text, &realisation)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error.into()),
        }
        let writer = self.shared.writer().map_err(failed)?;
        writer.register_realisations(&[realisation]).map_err(failed)
    }

    /// Writes the object as it is, unless the cache has one of its name. No login replaces what
    /// another one has written.
    fn put_new(&mut self) -> Result<(), ReceiveError> {
        let name = self.object.name();
        let _lock = self.shared.lock_name(&name);
        if self.shared.exists(&name) {
            return Ok(());
        }
        let bytes = std::mem::take(&mut self.bytes);
        let storage = &self.shared.storage;
        wait(|reply| storage.put(&name, bytes, Durability::Synced, reply)).map_err(failed)
    }
}

/// Checks that the cache has the same realisation as a client, and room for its signatures.
fn check_present_realisation(text: &[u8], new: &Realisation) -> Result<(), ReceiveError> {
    let id = &new.id;
    let present = Realisation::parse(id, text).map_err(|error| {
        conflict(format!(
            "the cache has a damaged realisation of the output {id}: {error}; delete the object"
        ))
    })?;
    // The signatures of both are kept only if they sign the same text.
    if present.fingerprint() != new.fingerprint() {
        let message = format!("the cache has another realisation of the output {id}");
        return Err(conflict(message));
    }
    if present.signatures.is_superset(&new.signatures) {
        return Ok(());
    }
    let signatures = present.signatures.union(&new.signatures);
    let len: usize = signatures
        .map(|signature| signature.to_string().len())
        .sum();
    if len > SIGNATURES_LEN_MAX {
        return Err(conflict(format!(
            "the realisation of the output {id} cannot have more signatures"
        )));
    }
    Ok(())
}
