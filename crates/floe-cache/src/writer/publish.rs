//! Publishes narinfos: each after those of its references, and as many at once as that allows.

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap, HashSet};

use floe_format::{NarInfo, StorePath};
use floe_transfer::{Cancel, CommitOutcome, Error};

use super::examine::Presence;
use super::nar_file::StagedNar;
use super::{BinaryCacheWriter, debug_info, narinfo_name, record_name};
use crate::storage::{Durability, Replies, delete_and_wait};

/// A cancellation does not end the wait for a write: staged paths still become valid. The storage
/// itself ends a write that takes too long then.
type Writes<T> = Replies<(T, Result<(), Error>)>;

impl BinaryCacheWriter {
    /// Returns the staged NARs of a batch, after the last of them is whole in the cache.
    ///
    /// Errors: [`Error::Cancelled`].
    pub(super) fn take_staged(
        &self,
        batch: &[StorePath],
        outcome: &mut CommitOutcome,
    ) -> Result<Vec<StagedNar>, Error> {
        let mut staged = Vec::with_capacity(batch.len());
        for path in batch {
            let taken = self.staged.lock().remove(path);
            let Some(mut nar) = taken else { continue };
            match nar.wait_until_whole() {
                Ok(()) => staged.push(nar),
                Err(error @ Error::Cancelled) => return Err(error),
                Err(error) => outcome.refused.push((path.clone(), error)),
            }
        }
        Ok(staged)
    }

    /// Writes the listings, the build logs and the signed narinfos of staged paths.
    pub(super) fn publish(
        &self,
        staged: Vec<StagedNar>,
        outcome: &mut CommitOutcome,
    ) -> Result<(), Error> {
        let mut waiting = self.split_off_incomplete(staged, outcome)?;
        self.write_companions(&mut waiting, outcome)?;
        let mut waiting = Waiting::new(self, waiting);
        let mut writes = Writes::new(&Cancel::default());
        loop {
            for nar in std::mem::take(&mut waiting.ready) {
                self.write_narinfo(nar, &mut writes);
            }
            let Some((narinfo, written)) = writes.next()? else {
                break;
            };
            let NarInfo {
                info, file_size, ..
            } = narinfo;
            let is_unsigned = info.signatures.is_empty() && info.ca.is_none();
            let path = info.path;
            match written {
                // The disk of a directory is that of all other paths too.
                Err(error) if self.has_records() || is_cancelled(&error) => return Err(error),
                Err(error) => {
                    outcome.refused.push((path, error));
                    continue;
                }
                Ok(()) => {}
            }
            if self.has_records() {
                delete_and_wait(&*self.storage, &record_name(&path))?;
            }
            self.whole.lock().insert(path.clone(), info.references);
            waiting.release(&path);
            outcome.unsigned += u64::from(is_unsigned);
            outcome.sent_bytes += file_size.unwrap_or(0);
            outcome.valid.push(path);
        }
        // Their references were refused.
        for nar in waiting.blocked.into_values() {
            self.keep_staged(nar.nar, outcome);
        }
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
        let (mut complete, mut names) = (Vec::with_capacity(staged.len()), HashSet::new());
        for nar in staged {
            let missing = self.missing_references(&nar);
            if missing.iter().all(|path| names.contains(path)) {
                names.insert(nar.path().clone());
                complete.push(nar);
            } else {
                self.keep_staged(nar, outcome)
            }
        }
        Ok(complete)
    }

    /// Writes the listings, the links to debug information and the build logs, all at once.
    fn write_companions(
        &self,
        staged: &mut Vec<StagedNar>,
        outcome: &mut CommitOutcome,
    ) -> Result<(), Error> {
        let mut writes = Writes::new(&Cancel::default());
        let put = |writes: &mut Writes<_>, path: &StorePath, name: &str, contents: String| {
            let path = path.clone();
            let reply = writes.callback(|written| (path, written));
            self.storage
                .put(name, contents.into(), Durability::Synced, reply);
        };
        for nar in std::mem::take(staged) {
            let tree = nar.tree.as_ref();
            if let Some(tree) = tree.filter(|_| self.options.write_listings) {
                match floe_format::nar::listing::to_text(tree) {
                    Ok(text) => {
                        let name = format!("{}.ls", nar.path().hash_part());
                        put(&mut writes, nar.path(), &name, text);
                    }
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
                        put(&mut writes, nar.path(), &name, link);
                    }
                }
            }
            match self.write_build_log(&nar, &mut writes) {
                Err(error) if self.has_records() => return Err(error),
                Err(error) => {
                    outcome.refused.push((nar.path().clone(), error));
                    continue;
                }
                Ok(()) => {}
            }
            staged.push(nar);
        }
        while let Some((path, written)) = writes.next()? {
            match written {
                Ok(()) => {}
                Err(error) if self.has_records() || is_cancelled(&error) => return Err(error),
                Err(error) => {
                    let failed = staged.iter().position(|nar| *nar.path() == path);
                    let failed = failed.map(|index| staged.remove(index));
                    let deriver = failed.and_then(|nar| nar.narinfo.info.deriver);
                    if let (Some(logs), Some(deriver)) = (&self.build_logs, deriver) {
                        logs.forget(&deriver);
                    }
                    outcome.refused.push((path, error));
                }
            }
        }
        Ok(())
    }

    /// Writes the log of the build that made a path, if the cache wants logs and there is one.
    fn write_build_log(
        &self,
        nar: &StagedNar,
        writes: &mut Writes<StorePath>,
    ) -> Result<(), Error> {
        let (Some(logs), Some(deriver)) = (&self.build_logs, &nar.narinfo.info.deriver) else {
            return Ok(());
        };
        let path = nar.path().clone();
        let reply = || writes.callback(|written| (path, written));
        logs.write(&*self.storage, deriver, reply)
    }

    fn write_narinfo(&self, nar: StagedNar, writes: &mut Writes<NarInfo>) {
        let mut narinfo = nar.narinfo;
        narinfo.info.ultimate = false;
        for key in self.keys.iter().filter(|_| !nar.keeps_signatures) {
            narinfo.info.sign(&self.store_dir, key);
        }
        let text = narinfo.to_text(&self.store_dir);
        let name = narinfo_name(&narinfo.info.path);
        let reply = writes.callback(|written| (narinfo, written));
        self.storage
            .put(&name, text.into(), Durability::Synced, reply);
    }

    /// Returns the references that are not known to be in the cache.
    fn missing_references(&self, nar: &StagedNar) -> BTreeSet<StorePath> {
        let (whole, elsewhere) = (self.whole.lock(), self.elsewhere.lock());
        let is_there = |path: &StorePath| whole.contains_key(path) || elsewhere.contains(path);
        let references = nar.narinfo.info.references.iter();
        let missing = references.filter(|it| *it != nar.path() && !is_there(it));
        missing.cloned().collect()
    }

    fn keep_staged(&self, nar: StagedNar, outcome: &mut CommitOutcome) {
        let path = nar.path().clone();
        let missing = self.missing_references(&nar);
        self.staged.lock().insert(path.clone(), nar);
        outcome.missing_references.push((path, missing));
    }
}

fn is_cancelled(error: &Error) -> bool {
    matches!(error, Error::Cancelled)
}

/// The paths of a batch that are not published yet.
struct Waiting {
    /// Those whose references are all there.
    ready: Vec<StagedNar>,
    blocked: HashMap<StorePath, Blocked>,
    /// The blocked referrers of each path that is not published yet.
    referrers: HashMap<StorePath, Vec<StorePath>>,
}

struct Blocked {
    nar: StagedNar,
    /// The number of references that are not there yet.
    missing: usize,
}

impl Waiting {
    fn new(cache: &BinaryCacheWriter, staged: Vec<StagedNar>) -> Waiting {
        let mut waiting = Waiting {
            ready: Vec::new(),
            blocked: HashMap::new(),
            referrers: HashMap::new(),
        };
        for nar in staged {
            let missing = cache.missing_references(&nar);
            if missing.is_empty() {
                waiting.ready.push(nar);
                continue;
            }
            let path = nar.path().clone();
            let count = missing.len();
            for reference in missing {
                let referrers = waiting.referrers.entry(reference).or_default();
                referrers.push(path.clone());
            }
            let blocked = Blocked {
                nar,
                missing: count,
            };
            waiting.blocked.insert(path, blocked);
        }
        waiting
    }

    /// Makes those ready that waited only for a path.
    fn release(&mut self, path: &StorePath) {
        for referrer in self.referrers.remove(path).unwrap_or_default() {
            if let Entry::Occupied(mut entry) = self.blocked.entry(referrer) {
                entry.get_mut().missing -= 1;
                if entry.get().missing == 0 {
                    self.ready.push(entry.remove().nar);
                }
            }
        }
    }
}
