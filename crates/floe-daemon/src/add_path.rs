//! Adds single paths, for a server whose clients speak none of Nix's protocols.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use floe_format::{PathInfo, Realisation, Signature, StorePath};
use floe_store::{IndirectGcRoot, StoreReader};

use crate::error::HostError;
use crate::hosted_store::HostedStore;
use crate::receive::Receiver;
use crate::stream::ReadNar;

impl HostedStore {
    /// Adds a path, whose NAR `read` passes on, and registers it. A valid path only gets the
    /// signatures by trusted keys that it lacks, and its NAR is not read. Until the store is
    /// closed, no collection deletes the path. If another process builds or adds the path, this
    /// waits for it, at most for `busy_wait_max`.
    ///
    /// Errors: [`HostError::Forbidden`] and [`HostError::Transfer`] for a path that the client may
    /// not add; [`HostError::MissingReferences`]; [`HostError::Different`]; [`HostError::Busy`];
    /// those of `read`, of the store, and of a NAR that does not match.
    pub fn add_path(
        &self,
        info: PathInfo,
        busy_wait_max: Duration,
        read: &mut ReadNar<'_>,
    ) -> Result<(), HostError> {
        let writer = self.writer("add paths")?;
        let (access, dir) = (self.access(), self.store_dir());
        access.check_path(&info, dir, access.is_trusted)?;
        // Refused paths must not fill the file of the roots.
        self.check_references(&info)?;
        writer.add_temp_roots([&info.path].into_iter().chain(&info.references))?;
        // As after a query of Nix, a collection that began before may still delete a valid path. A
        // client that waited here for its end would keep the others waiting.
        if let Some(present) = self.present(&info)? {
            return self.add_trusted_signatures(&info, &present);
        }
        self.check_references(&info)?;
        let path = info.path.clone();
        let mut receiver = Receiver::new(self)?;
        receiver.limit_busy_wait(busy_wait_max);
        let received = receiver.receive_skipping(info.clone(), access.is_trusted, read);
        match received.and_then(|()| receiver.commit()) {
            // Another client of the same path was faster, and its NAR is gone.
            Err(HostError::NarAbsent(_)) => match self.present(&info)? {
                Some(present) => self.add_trusted_signatures(&info, &present),
                None => Err(HostError::NarAbsent(path)),
            },
            added => added,
        }
    }

    /// Returns the description of a valid path.
    ///
    /// Errors: [`HostError::Different`] if another name has its hash part.
    fn present(&self, info: &PathInfo) -> Result<Option<PathInfo>, HostError> {
        let found = self.reader().path_info(&info.path)?;
        if found.is_some() {
            return Ok(found);
        }
        let part = info.path.hash_part();
        match self.reader().query_path_from_hash_part(part)? {
            Some(other) if other != info.path => Err(HostError::Different {
                path: info.path.clone(),
                what: "name",
            }),
            _ => Ok(None),
        }
    }

    fn check_references(&self, info: &PathInfo) -> Result<(), HostError> {
        let mut missing = BTreeSet::new();
        for reference in info.references.iter().filter(|it| **it != info.path) {
            if !self.reader().is_valid(reference)? {
                missing.insert(reference.clone());
            }
        }
        if missing.is_empty() {
            return Ok(());
        }
        let path = info.path.clone();
        Err(HostError::MissingReferences { path, missing })
    }

    /// Adds the signatures by trusted keys to a valid path with the same facts.
    fn add_trusted_signatures(&self, info: &PathInfo, present: &PathInfo) -> Result<(), HostError> {
        let path = &info.path;
        if let Some(what) = info.signed_difference(present) {
            return Err(HostError::Different {
                path: path.clone(),
                what,
            });
        }
        let fingerprint = info.fingerprint(self.store_dir());
        let keys = &self.access().trusted_keys;
        let new = info.signatures.iter().filter(|signature| {
            !present.signatures.contains(signature)
                && keys.verify(fingerprint.as_bytes(), signature)
        });
        let new: BTreeSet<Signature> = new.cloned().collect();
        if !new.is_empty() {
            self.writer("sign paths")?.add_signatures(path, &new)?;
        }
        Ok(())
    }

    /// Registers a realisation of a valid path, and protects the path from collections until the
    /// store is closed.
    ///
    /// Errors: [`HostError::Forbidden`] without a signature by a trusted key; those of the store.
    pub fn add_realisation(&self, mut realisation: Realisation) -> Result<(), HostError> {
        let writer = self.writer("add realisations")?;
        let access = self.access();
        let is_signed = realisation.is_signed_by(&access.trusted_keys);
        if !is_signed && !access.accepts_unsigned() {
            return Err(HostError::Forbidden {
                action: format!("add the realisation {}", realisation.id),
                reason: "no trusted key has signed it".into(),
            });
        }
        realisation.drop_junk_signatures(&access.trusted_keys);
        writer.add_temp_roots([&realisation.out_path].into_iter())?;
        writer.wait_for_gc()?;
        Ok(writer.register_realisations(&[realisation])?)
    }

    /// Makes a symbolic link to a valid path, or points it there, and registers it as a root.
    ///
    /// Errors: those of the store; another file has the name of the link.
    pub fn add_root(&self, link: &Path, path: &StorePath) -> Result<(), HostError> {
        let writer = self.writer("make a root")?;
        let link = IndirectGcRoot::check(writer.layout(), link)?;
        Ok(writer.add_gc_root(&link, path)?)
    }

    /// Returns the store for reading.
    pub fn store(&self) -> &StoreReader {
        self.reader()
    }

    /// Protects a path from collections until the store is closed. Returns whether it is valid.
    ///
    /// Errors: those of the store.
    pub fn keep(&self, path: &StorePath) -> Result<bool, HostError> {
        let kept = self.query_valid(BTreeSet::from([path.clone()]), (true, false))?;
        Ok(!kept.is_empty())
    }
}
