//! Publishes narinfos: each after those of its references, and as many at once as that allows.

use std::collections::{BTreeSet, HashSet};

use floe_format::{PathInfo, StorePath};
use floe_transfer::{Cancel, CommitOutcome, Error};

use super::examine::Presence;
use super::nar_file::StagedNar;
use super::{BinaryCacheWriter, debug_info, narinfo_name, record_name};
use crate::storage::{Durability, Replies};

/// A cancellation does not end the wait for a write: staged paths still become valid.
type Writes<T> = Replies<(T, Result<(), Error>)>;

impl BinaryCacheWriter {
    /// Returns the staged NARs of a batch, after the last of them is whole in the cache.
    pub(super) fn take_staged(
        &self,
        batch: &[StorePath],
        outcome: &mut CommitOutcome,
    ) -> Vec<StagedNar> {
        let mut staged = Vec::with_capacity(batch.len());
        for path in batch {
            let taken = self.staged.lock().remove(path);
            let Some(mut nar) = taken else { continue };
            match nar.wait_until_whole() {
                Ok(()) => staged.push(nar),
                Err(error) => outcome.refused.push((path.clone(), error)),
            }
        }
        staged
    }

    /// Writes the listings and the signed narinfos of staged paths.
    pub(super) fn publish(
        &self,
        staged: Vec<StagedNar>,
        outcome: &mut CommitOutcome,
    ) -> Result<(), Error> {
        let mut waiting = self.split_off_incomplete(staged, outcome)?;
        self.write_companions(&mut waiting, outcome)?;
        let mut writes = Writes::new(&Cancel::default());
        loop {
            let ready = waiting.extract_if(.., |nar| self.missing_references(nar).is_empty());
            for nar in ready.collect::<Vec<_>>() {
                self.write_narinfo(nar, &mut writes);
            }
            let Some((info, written)) = writes.next()? else {
                break;
            };
            let path = info.path;
            match written {
                // The disk of a directory is that of all other paths too.
                Err(error) if self.has_records() => return Err(error),
                Err(error) => {
                    outcome.refused.push((path, error));
                    continue;
                }
                Ok(()) => {}
            }
            if self.has_records() {
                self.storage.delete(&record_name(&path))?;
            }
            self.whole.lock().insert(path.clone(), info.references);
            outcome.valid.push(path);
        }
        // Their references were refused.
        waiting
            .into_iter()
            .for_each(|nar| self.keep_staged(nar, outcome));
        Ok(())
    }

    /// Removes the paths with a reference that is neither in the cache nor staged with them.
    fn split_off_incomplete(
        &self,
        staged: Vec<StagedNar>,
        outcome: &mut CommitOutcome,
    ) -> Result<Vec<StagedNar>, Error> {
        let own: HashSet<&StorePath> = staged.iter().map(StagedNar::path).collect();
        let unknown = staged.iter().flat_map(|nar| self.missing_references(nar));
        let unknown: BTreeSet<_> = unknown.filter(|path| !own.contains(path)).collect();
        let unknown: Vec<_> = unknown.into_iter().collect();
        let found = self.examine(&unknown, &Cancel::default())?;
        for (path, presence) in unknown.into_iter().zip(found) {
            if let Presence::Whole(references) = presence {
                self.whole.lock().insert(path, references);
            }
        }
        let mut complete: Vec<StagedNar> = Vec::with_capacity(staged.len());
        for nar in staged {
            let is_here = |path: &StorePath| complete.iter().any(|other| other.path() == path);
            match self.missing_references(&nar).iter().all(is_here) {
                true => complete.push(nar),
                false => self.keep_staged(nar, outcome),
            }
        }
        Ok(complete)
    }

    /// Writes the listings and the links to debug information, all at once.
    fn write_companions(
        &self,
        staged: &mut Vec<StagedNar>,
        outcome: &mut CommitOutcome,
    ) -> Result<(), Error> {
        let mut writes = Writes::new(&Cancel::default());
        let mut put = |name: &str, contents: String| {
            let reply = writes.callback(|written| ((), written));
            self.storage
                .put(name, contents.into(), Durability::Synced, reply);
        };
        for nar in std::mem::take(staged) {
            let tree = nar.tree.as_ref();
            if let Some(tree) = tree.filter(|_| self.options.write_listings) {
                match floe_format::nar::listing::to_text(tree) {
                    Ok(text) => put(&format!("{}.ls", nar.path().hash_part()), text),
                    // As JSON, a listing holds only UTF-8.
                    Err(error) => {
                        let error = Error::Unsupported {
                            path: nar.path().clone(),
                            feature: format!("write-nar-listing with such names: {error}"),
                        };
                        outcome.refused.push((nar.path().clone(), error));
                        continue;
                    }
                }
            }
            if let Some(tree) = tree.filter(|_| self.options.index_debug_info) {
                for (name, link) in debug_info::links(tree, &nar.narinfo.url) {
                    // As with Nix, the first path with a build ID keeps it.
                    if !self.exists(&name)? {
                        put(&name, link);
                    }
                }
            }
            staged.push(nar);
        }
        while let Some(((), written)) = writes.next()? {
            written?;
        }
        Ok(())
    }

    fn write_narinfo(&self, nar: StagedNar, writes: &mut Writes<PathInfo>) {
        let mut narinfo = nar.narinfo;
        narinfo.info.ultimate = false;
        for key in &self.keys {
            narinfo.info.sign(&self.store_dir, key);
        }
        let text = narinfo.to_text(&self.store_dir);
        let name = narinfo_name(&narinfo.info.path);
        let reply = writes.callback(|written| (narinfo.info, written));
        self.storage
            .put(&name, text.into(), Durability::Synced, reply);
    }

    /// Returns the references that are not known to be in the cache.
    fn missing_references(&self, nar: &StagedNar) -> BTreeSet<StorePath> {
        let whole = self.whole.lock();
        let references = nar.narinfo.info.references.iter();
        let missing = references.filter(|it| *it != nar.path() && !whole.contains_key(it));
        missing.cloned().collect()
    }

    fn keep_staged(&self, nar: StagedNar, outcome: &mut CommitOutcome) {
        let path = nar.path().clone();
        let missing = self.missing_references(&nar);
        self.staged.lock().insert(path.clone(), nar);
        outcome.missing_references.push((path, missing));
    }
}
