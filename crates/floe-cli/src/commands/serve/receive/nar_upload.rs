//! Uploads of the files of NARs.

use std::fmt;
use std::io::Write as _;
use std::sync::Arc;

use floe_cache::{ArrivingNar, NewObject, ObjectPlan, WriteStorage as _};
use floe_format::Hash;
use floe_hash::Sha256;
use floe_server::receive::{ReceiveError, Upload, stated_hash};

use super::errors::{conflict, failed, invalid};
use super::known_files::Version;
use super::limits::{Slot, check_len};
use super::{Destination, Shared, wait};

/// The file of a NAR.
pub(super) struct NarUpload {
    shared: Arc<Shared>,
    name: String,
    object: Option<Box<dyn NewObject>>,
    hasher: Sha256,
    len: u64,
    /// The NAR in the file, while it comes. Without it, the file is read for its narinfo.
    arriving: Option<(ArrivingNar, Slot)>,
    /// The length of the file that has the name already.
    replaced: u64,
    /// The room that the upload has taken, in bytes.
    taken: u64,
}

impl NarUpload {
    /// Begins an upload of some bytes under a name.
    pub(super) fn begin(
        shared: &Arc<Shared>,
        name: &str,
        len: u64,
    ) -> Result<NarUpload, ReceiveError> {
        let early_name = format!("nar/{name}");
        let place = shared.directory.join(&early_name);
        let mut upload = NarUpload {
            shared: shared.clone(),
            name: name.to_owned(),
            object: None,
            hasher: Sha256::new(),
            len: 0,
            arriving: None,
            replaced: place.metadata().map_or(0, |found| found.len()),
            taken: 0,
        };
        upload.take_room(len)?;
        let object = shared.storage.begin_object(&ObjectPlan { early_name, len });
        upload.object = Some(object.map_err(failed)?);
        Ok(upload)
    }

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

    /// Decodes the next bytes, if there is a decoder for the file.
    fn decode(&mut self, bytes: &[u8]) {
        if self.len == 0 {
            self.arriving = self.begin_decoder(bytes);
        }
        let arriving = self.arriving.take();
        self.arriving = arriving.and_then(|(nar, slot)| Some((nar.push(bytes)?, slot)));
    }

    fn begin_decoder(&self, first: &[u8]) -> Option<(ArrivingNar, Slot)> {
        match self.shared.destination {
            Destination::Cache(_) => {
                let slot = self.shared.decoders.take()?;
                let max = self.shared.limits.nar_len_max;
                Some((ArrivingNar::begin(first, max)?, slot))
            }
            // The store unpacks the NAR when its narinfo comes.
            Destination::Store(_) => None,
        }
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
        self.decode(bytes);
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
        let mut before = None;
        if let Some(object) = self.object.take() {
            before = Version::at(object.place());
            wait(|reply| _ = object.finish(&name, reply)).map_err(failed)?;
        }
        // The file keeps its room.
        self.taken = 0;
        let arriving = self.arriving.take();
        let file = arriving.and_then(|(nar, _)| nar.finish((hash, self.len)));
        if let Some(facts) = before.zip(file) {
            let place = shared.directory.join(&name);
            shared.known.insert(&name, &place, facts);
        }
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
