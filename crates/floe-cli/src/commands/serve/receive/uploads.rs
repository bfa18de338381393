//! Uploads of single objects.

use std::fmt;
use std::io::Write as _;
use std::sync::{Arc, mpsc};

use floe_cache::{Durability, NewObject, ObjectPlan, WriteStorage as _};
use floe_format::{DrvOutput, Hash, HashPart, NarInfo, Realisation, StorePath, nix32};
use floe_hash::Sha256;
use floe_server::receive::{
    Object, PushScope, ReceiveError, ReceiveErrorKind, Upload, UploadRequest,
};
use floe_transfer::{Error, RealisationTarget as _, Size};

use super::{Shared, conflict, failed, invalid, not_published};

impl Shared {
    /// Begins an upload.
    pub(super) fn begin(
        self: &Arc<Shared>,
        request: &UploadRequest,
    ) -> Result<Box<dyn Upload>, ReceiveError> {
        let len = request.len.unwrap_or(0);
        let max = request.object.len_max().unwrap_or(self.limits.nar_len_max);
        check_len(len, max)?;
        let Object::Nar(name) = &request.object else {
            return Ok(Box::new(SmallUpload {
                shared: self.clone(),
                object: request.object.clone(),
                may_push: request.may_push.clone(),
                bytes: Vec::new(),
                max,
            }));
        };
        let mut upload = NarUpload {
            shared: self.clone(),
            name: name.clone(),
            object: None,
            hasher: Sha256::new(),
            len: 0,
            replaced: 0,
            taken: 0,
        };
        let place = self.directory.join(request.object.name());
        upload.replaced = place.metadata().map_or(0, |found| found.len());
        upload.take_room(len)?;
        let early_name = format!("nar/{name}");
        let object = self.storage.begin_object(&ObjectPlan { early_name, len });
        upload.object = Some(object.map_err(failed)?);
        Ok(Box::new(upload))
    }
}

fn check_len(len: u64, max: u64) -> Result<(), ReceiveError> {
    if len <= max {
        return Ok(());
    }
    let message = format!(
        "the object is larger than {}, the most that is allowed",
        Size(max)
    );
    Err(ReceiveError::new(ReceiveErrorKind::TooLarge, message))
}

/// The file of a NAR.
struct NarUpload {
    shared: Arc<Shared>,
    name: String,
    object: Option<Box<dyn NewObject>>,
    hasher: Sha256,
    len: u64,
    /// The length of the file that has the name already.
    replaced: u64,
    /// The room that the upload has taken, in bytes.
    taken: u64,
}

impl NarUpload {
    /// Takes room for the file to have a length.
    fn take_room(&mut self, len: u64) -> Result<(), ReceiveError> {
        let limits = &self.shared.limits;
        check_len(len, limits.nar_len_max)?;
        let new = len.saturating_sub(self.replaced).saturating_sub(self.taken);
        if new > 0 {
            let directory = self.shared.directory.join("nar");
            self.shared.usage.take(new, limits.total_max, &directory)?;
            self.taken += new;
        }
        Ok(())
    }
}

/// An upload that ends early needs no room.
impl Drop for NarUpload {
    fn drop(&mut self) {
        self.shared.usage.give_back(self.taken);
    }
}

impl Upload for NarUpload {
    fn write(&mut self, bytes: &[u8]) -> Result<(), ReceiveError> {
        self.take_room(self.len + bytes.len() as u64)?;
        self.hasher.update(bytes);
        self.len += bytes.len() as u64;
        let written = self.object.as_mut().map(|object| object.write_all(bytes));
        Ok(written.transpose().map(|_| ())?)
    }

    fn finish(mut self: Box<Self>) -> Result<(), ReceiveError> {
        let (shared, name) = (self.shared.clone(), format!("nar/{}", self.name));
        let hasher = std::mem::replace(&mut self.hasher, Sha256::new());
        let hash = Hash::sha256(hasher.finish());
        let _lock = shared.lock_name(&name);
        match stated_hash(&self.name) {
            // So no client can replace the contents of such a file by others.
            Some(stated) if stated == hash.digest_nix32() => {}
            Some(_) => {
                let found = hash.digest_nix32();
                return Err(invalid(format!(
                    "the contents of {name} have the hash {found}"
                )));
            }
            None if shared.exists(&name) => {
                return Err(conflict(format!("the cache has another file {name}")));
            }
            None => {}
        }
        if let Some(object) = self.object.take() {
            wait(|reply| _ = object.finish(&name, reply)).map_err(failed)?;
        }
        // The file keeps its room.
        self.taken = 0;
        Ok(())
    }
}

impl fmt::Debug for NarUpload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NarUpload")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// Returns the hash that the name of a file states, as those of Nix and floe do.
fn stated_hash(name: &str) -> Option<&str> {
    let (stem, _) = name.split_once('.')?;
    let is_hash = stem.len() == nix32::encoded_len(32) && stem.chars().all(nix32::is_digit);
    is_hash.then_some(stem)
}

/// An object that fits into memory.
#[derive(Debug)]
struct SmallUpload {
    shared: Arc<Shared>,
    object: Object,
    may_push: PushScope,
    bytes: Vec<u8>,
    max: u64,
}

impl Drop for SmallUpload {
    fn drop(&mut self) {
        self.shared.memory.give_back(self.bytes.len() as u64);
    }
}

impl Upload for SmallUpload {
    fn write(&mut self, bytes: &[u8]) -> Result<(), ReceiveError> {
        check_len((self.bytes.len() + bytes.len()) as u64, self.max)?;
        self.shared.memory.take(bytes.len() as u64)?;
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<(), ReceiveError> {
        match &self.object {
            Object::NarInfo(hash) => self.publish(*hash),
            Object::Listing(hash) => {
                self.check_listing(*hash)?;
                self.put_new()
            }
            Object::Log(derivation) => {
                self.check_name(derivation)?;
                self.put_new()
            }
            Object::Realisation(id) => self.register(id),
            Object::Nar(_) => Ok(()),
        }
    }
}

impl SmallUpload {
    fn publish(&self, hash: HashPart) -> Result<(), ReceiveError> {
        let shared = &self.shared;
        let narinfo = NarInfo::parse(&self.bytes, &shared.store_dir);
        let narinfo = narinfo.map_err(|error| invalid(error.to_string()))?;
        let path = &narinfo.info.path;
        if path.hash_part() != hash {
            return Err(invalid(format!("the narinfo is that of {path}")));
        }
        self.check_name(path)?;
        let writer = shared.writer().map_err(failed)?;
        let is_elsewhere = |path: &StorePath| shared.is_in_store(path);
        let verified = writer.verify_received(narinfo, &is_elsewhere);
        let verified = verified.map_err(not_published)?;
        let _lock = shared.lock_name(hash.as_str());
        let published = writer.publish_verified(verified, &shared.keys);
        published.map_err(not_published)
    }

    /// Checks that the login may push a path.
    fn check_name(&self, path: &StorePath) -> Result<(), ReceiveError> {
        if self.may_push.allows(path) {
            return Ok(());
        }
        let message = format!(
            "cannot receive {path}: the login may push only paths whose names begin with {}",
            self.may_push.prefixes().join(" or ")
        );
        Err(ReceiveError::new(ReceiveErrorKind::Forbidden, message))
    }

    /// Checks that the login may push the path of a listing, whose name only its narinfo tells.
    fn check_listing(&self, hash: HashPart) -> Result<(), ReceiveError> {
        if serde_json::from_slice::<serde::de::IgnoredAny>(&self.bytes).is_err() {
            return Err(invalid("the listing is not JSON"));
        }
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
        let parse = |text: &[u8]| Realisation::parse(id, text);
        let realisation = parse(&self.bytes).map_err(|error| invalid(error.to_string()))?;
        if !self.may_push.prefixes().is_empty() {
            // The derivation of the output is not known by its name.
            let message = "cannot receive a realisation: the login may push only some paths";
            return Err(ReceiveError::new(ReceiveErrorKind::Forbidden, message));
        }
        let out_path = &realisation.out_path;
        let narinfo = Object::NarInfo(out_path.hash_part()).name();
        if !self.shared.exists(&narinfo) && !self.shared.is_in_store(out_path) {
            let message = format!("cannot receive a realisation: {out_path} is not here");
            return Err(conflict(message));
        }
        let name = self.object.name();
        let _lock = self.shared.lock_name(&name);
        let place = self.shared.directory.join(&name);
        let present = std::fs::read(place).ok().and_then(|text| parse(&text).ok());
        // The signatures of both are kept only if they sign the same text.
        if present.is_some_and(|present| present.fingerprint() != realisation.fingerprint()) {
            let message = format!("the cache has another realisation of the output {id}");
            return Err(conflict(message));
        }
        let writer = self.shared.writer().map_err(failed)?;
        writer.register_realisations(&[realisation]).map_err(failed)
    }

    /// Writes the object as it is, unless the cache has one of its name. No login replaces what
    /// another one has written.
    fn put_new(&self) -> Result<(), ReceiveError> {
        let name = self.object.name();
        let _lock = self.shared.lock_name(&name);
        if self.shared.exists(&name) {
            return Ok(());
        }
        let bytes = self.bytes.clone();
        let storage = &self.shared.storage;
        wait(|reply| storage.put(&name, bytes, Durability::Synced, reply)).map_err(failed)
    }
}

/// Waits for the reply of a storage.
fn wait(write: impl FnOnce(floe_cache::WriteCallback)) -> Result<(), Error> {
    let (sender, receiver) = mpsc::channel();
    write(Box::new(move |written| {
        // The receiver waits.
        let _: Result<(), _> = sender.send(written);
    }));
    receiver
        .recv()
        .unwrap_or(Err(Error::Internal("a storage does not reply")))
}
