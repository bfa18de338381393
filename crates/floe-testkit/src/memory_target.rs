//! A target that keeps staged and valid paths in memory.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::io;

use floe_format::{HashPart, PathInfo, StoreDir, StorePath};
use floe_transfer::{
    CommitOutcome, Error, IncomingNar, MissingPaths, NarSink, Target, TargetFacts,
};
use parking_lot::Mutex;

/// How a [`MemoryTarget`] registers a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Registration {
    /// All paths in one transaction, as a local store does. A path may precede its references.
    Batch,
    /// One path after the other, as a daemon does. References must be valid before.
    OneByOne,
}

/// A target in memory.
#[derive(Debug)]
pub struct MemoryTarget {
    dir: StoreDir,
    registration: Registration,
    requires_trust: bool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    temp_roots: BTreeSet<StorePath>,
    staged: BTreeMap<StorePath, (PathInfo, Vec<u8>)>,
    valid: BTreeMap<StorePath, (PathInfo, Vec<u8>)>,
    /// The paths in the order in which they became valid.
    order: Vec<StorePath>,
    /// How many commits report the path busy.
    busy: HashMap<StorePath, u32>,
    refused: HashSet<StorePath>,
    unwritable: HashSet<StorePath>,
    read_twice: HashSet<StorePath>,
    received: usize,
}

/// Collects a NAR.
struct NarBuffer(Vec<u8>);

impl NarSink for NarBuffer {
    fn write(&mut self, nar: &[u8]) -> Result<(), Error> {
        self.0.extend_from_slice(nar);
        Ok(())
    }
}

impl MemoryTarget {
    /// Creates an empty target that accepts unsigned paths.
    pub fn new(registration: Registration) -> MemoryTarget {
        MemoryTarget {
            dir: StoreDir::default(),
            registration,
            requires_trust: false,
            state: Mutex::default(),
        }
    }

    /// Makes the target accept only trusted paths.
    pub fn with_trust_check(mut self) -> MemoryTarget {
        self.requires_trust = true;
        self
    }

    /// Reports a path busy in its next commits.
    pub fn set_busy(&self, path: &StorePath, commits: u32) {
        self.state.lock().busy.insert(path.clone(), commits);
    }

    /// Refuses a path in its commit.
    pub fn refuse(&self, path: &StorePath) {
        self.state.lock().refused.insert(path.clone());
    }

    /// Fails to write the file of a path.
    pub fn fail_writes(&self, path: &StorePath) {
        self.state.lock().unwritable.insert(path.clone());
    }

    /// Reads the NAR of a path twice, which no target may do.
    pub fn read_twice(&self, path: &StorePath) {
        self.state.lock().read_twice.insert(path.clone());
    }

    /// Returns the valid paths in the order in which they became valid.
    pub fn valid(&self) -> Vec<StorePath> {
        self.state.lock().order.clone()
    }

    /// Returns the NAR of a valid path.
    pub fn nar(&self, path: &StorePath) -> Option<Vec<u8>> {
        self.state
            .lock()
            .valid
            .get(path)
            .map(|(_, nar)| nar.clone())
    }

    /// Returns the paths that are staged at the moment.
    pub fn staged(&self) -> Vec<StorePath> {
        self.state.lock().staged.keys().cloned().collect()
    }

    /// Returns how many paths were staged since the target was created.
    pub fn received(&self) -> usize {
        self.state.lock().received
    }
}

impl Target for MemoryTarget {
    fn store_dir(&self) -> &StoreDir {
        &self.dir
    }

    fn facts(&self) -> TargetFacts {
        TargetFacts {
            receives_early: true,
            requires_trust: self.requires_trust,
            ..TargetFacts::default()
        }
    }

    fn add_temp_roots_and_query_missing(&self, paths: &[StorePath]) -> Result<MissingPaths, Error> {
        let mut state = self.state.lock();
        state.temp_roots.extend(paths.iter().cloned());
        let missing = paths.iter().filter(|path| !state.valid.contains_key(*path));
        Ok(missing.cloned().collect::<Vec<_>>().into())
    }

    fn receive(&self, nar: &mut IncomingNar<'_>) -> Result<(), Error> {
        let info = nar.narinfo().info.clone();
        let mut buffer = NarBuffer(Vec::new());
        nar.write_to(&mut buffer)?;
        if self.state.lock().read_twice.contains(&info.path) {
            nar.write_to(&mut buffer)?;
        }
        let mut state = self.state.lock();
        if state.unwritable.contains(&info.path) {
            return Err(Error::File {
                action: "writing",
                path: self.dir.full_path(&info.path).into(),
                source: io::ErrorKind::PermissionDenied.into(),
            });
        }
        state.received += 1;
        state.staged.insert(info.path.clone(), (info, buffer.0));
        Ok(())
    }

    fn commit(&self, batch: &[StorePath]) -> Result<CommitOutcome, Error> {
        let mut state = self.state.lock();
        let mut outcome = CommitOutcome::default();
        let mut accepted = Vec::new();
        for path in batch {
            if state.refused.contains(path) {
                state.staged.remove(path);
                let text = path.to_string();
                let sources = Vec::new();
                let error = Error::NotFound {
                    path: text,
                    sources,
                };
                outcome.refused.push((path.clone(), error));
            } else if let Some(commits @ 1..) = state.busy.get_mut(path) {
                *commits -= 1;
                outcome.busy.push(path.clone());
            } else {
                accepted.push(path.clone());
            }
        }
        state.register(self.registration, accepted, &mut outcome);
        Ok(outcome)
    }

    fn query_path_from_hash_part(&self, hash_part: HashPart) -> Result<Option<StorePath>, Error> {
        let state = self.state.lock();
        let mut valid = state.valid.keys();
        Ok(valid.find(|path| path.hash_part() == hash_part).cloned())
    }

    fn discard(&self, paths: &[StorePath]) {
        let mut state = self.state.lock();
        state.staged.retain(|path, _| !paths.contains(path));
    }
}

impl State {
    /// Registers the paths whose references are valid. In a batch, references may also be other
    /// paths of the batch that can be registered.
    fn register(
        &mut self,
        registration: Registration,
        mut paths: Vec<StorePath>,
        outcome: &mut CommitOutcome,
    ) {
        while !paths.is_empty() {
            let group = match registration {
                Registration::Batch => std::mem::take(&mut paths),
                Registration::OneByOne => vec![paths.remove(0)],
            };
            let mut group: BTreeSet<StorePath> = group.into_iter().collect();
            // A path that leaves the group takes its referrers with it.
            while let Some((path, missing)) = self.find_missing_references(&group) {
                group.remove(&path);
                outcome.missing_references.push((path, missing));
            }
            for path in group {
                let staged = self
                    .staged
                    .remove(&path)
                    .expect("only staged paths are committed");
                self.valid.insert(path.clone(), staged);
                self.order.push(path.clone());
                outcome.valid.push(path);
            }
        }
    }

    fn find_missing_references(
        &self,
        group: &BTreeSet<StorePath>,
    ) -> Option<(StorePath, BTreeSet<StorePath>)> {
        group.iter().find_map(|path| {
            let (info, _) = &self.staged[path];
            let references = info.references.iter();
            let missing = references.filter(|reference| {
                !self.valid.contains_key(*reference) && !group.contains(*reference)
            });
            let missing: BTreeSet<StorePath> = missing.cloned().collect();
            (!missing.is_empty()).then(|| (path.clone(), missing))
        })
    }
}
