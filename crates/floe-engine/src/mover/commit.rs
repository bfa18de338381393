//! From finished paths to valid ones: references before referrers, in batches.
//!
//! 1. a path that has arrived waits until each of its references is valid or about to be;
//! 2. it is then ready; when 64 are ready, or the first has been ready for 200 ms, or no more
//!    will come, they are committed together;
//! 3. what another process holds at that moment is tried again later;
//! 4. a path that fails takes those with it that refer to it;
//! 5. what has come and cannot be valid, after an interrupt or for want of others, is left in the
//!    store for the next run, which need not fetch it again.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use floe_format::StorePath;
use floe_store::tree::write::TemporaryTree;
use floe_store::{Registered, StagedPath, StoreWriter};

use super::fetch::Queue;
use super::publish::CacheWriter;
use super::receive::Done;
use super::{Finished, Item, Mover, Outcome, TargetKind};
use crate::cancel::CANCEL_POLL;
use crate::error::{Error, ErrorKind};
use crate::report::Event;

pub(crate) struct Commit<'a> {
    mover: &'a Mover<'a>,
    queue: &'a Queue<'a>,
    outcome: &'a mut Outcome,
    /// For each path that is not ready yet: how many of its references are not either.
    unready: HashMap<StorePath, usize>,
    /// For each path: which others wait for it.
    referrers: HashMap<StorePath, Vec<StorePath>>,
    /// Arrived and not ready.
    arrived: HashMap<StorePath, Finished>,
    ready: Vec<Finished>,
    ready_since: Option<Instant>,
    failed: HashSet<StorePath>,
    /// From other stores of this machine.
    taken: HashSet<StorePath>,
    /// Valid when asked for, and gone at the commit.
    vanished: BTreeSet<StorePath>,
    nar_sizes: HashMap<StorePath, u64>,
    out_of_space: bool,
    /// Arrived, and of no more use to this run.
    left: Vec<TemporaryTree>,
}

impl<'a> Commit<'a> {
    pub(crate) fn new(
        mover: &'a Mover<'a>,
        items: &[Item],
        queue: &'a Queue<'a>,
        outcome: &'a mut Outcome,
    ) -> Commit<'a> {
        let infos = || items.iter().map(|item| &item.narinfo.info);
        let nar_sizes: HashMap<_, _> = infos().map(|i| (i.path.clone(), i.nar_size)).collect();
        let mut unready = HashMap::new();
        let mut referrers: HashMap<_, Vec<_>> = HashMap::new();
        for info in infos() {
            let among = |r: &&StorePath| **r != info.path && nar_sizes.contains_key(*r);
            unready.insert(
                info.path.clone(),
                info.references.iter().filter(among).count(),
            );
            for reference in info.references.iter().filter(among) {
                referrers
                    .entry(reference.clone())
                    .or_default()
                    .push(info.path.clone());
            }
        }
        Commit {
            mover,
            queue,
            outcome,
            unready,
            referrers,
            arrived: HashMap::new(),
            ready: Vec::new(),
            ready_since: None,
            failed: HashSet::new(),
            taken: HashSet::new(),
            vanished: BTreeSet::new(),
            nar_sizes,
            out_of_space: false,
            left: Vec::new(),
        }
    }

    /// Commits what arrives until no more comes. `waiting` holds what an earlier round could
    /// not commit; afterwards it holds what this one could not, for want of the returned paths.
    pub(crate) fn run(
        &mut self,
        results: &Receiver<Done>,
        waiting: &mut Vec<Finished>,
    ) -> Result<BTreeSet<StorePath>, Error> {
        loop {
            if let Err(cancelled) = self.mover.check_cancelled() {
                // What is ready stays.
                while !self.ready.is_empty() && self.commit_ready(waiting)? > 0 {}
                return Err(cancelled);
            }
            let pause = match self.ready_since {
                Some(since) => BATCH_WAIT.saturating_sub(since.elapsed()),
                None => CANCEL_POLL,
            };
            match results.recv_timeout(pause) {
                Ok(done) => self.take(done),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            let due = self
                .ready_since
                .is_some_and(|since| since.elapsed() >= BATCH_WAIT);
            if due {
                self.commit_ready(waiting)?;
            }
            // One late reference may have made many ready at once.
            while self.ready.len() >= BATCH_LEN && self.commit_ready(waiting)? > 0 {}
        }
        for (path, finished) in std::mem::take(&mut self.arrived) {
            // After a full disk much is left over. Otherwise it is references in a circle: Nix
            // has none, a liar may.
            if !self.out_of_space {
                let missing = finished.references().clone();
                self.outcome.fail(
                    self.mover.reporter,
                    Error::MissingReferences { path, missing },
                );
            }
        }
        self.ready.append(waiting);
        self.commit_rest(waiting)?;
        Ok(std::mem::take(&mut self.vanished))
    }

    /// A path whose reference nobody has cannot become valid.
    pub(crate) fn fail_referrers_of(&mut self, unavailable: &BTreeSet<StorePath>) {
        for item in self.queue.items() {
            let info = &item.narinfo.info;
            let references = info.references.intersection(unavailable);
            let lacks: BTreeSet<StorePath> = references.cloned().collect();
            if !lacks.is_empty() {
                self.fail_with_referrers(&info.path, lacks);
            }
        }
    }

    fn take(&mut self, done: Done) {
        let Done { path, result } = done;
        match result {
            Ok(arrival) => {
                let finished = arrival.finished;
                self.outcome.download_bytes += arrival.fetched;
                if arrival.is_taken {
                    self.taken.insert(path.clone());
                }
                if self.failed.contains(&path) {
                    self.give_up(finished);
                    return;
                }
                match self.unready.get(&path) {
                    Some(0) | None => self.make_ready(finished),
                    Some(_) => {
                        self.arrived.insert(path, finished);
                    }
                }
            }
            Err(Error::Cancelled) => {}
            // It was told already why this path cannot be moved.
            Err(_) if self.failed.contains(&path) => {}
            Err(error) if error.kind() == ErrorKind::NoSpace => {
                // Every other path would fail for the same reason. What is finished stays.
                if !std::mem::replace(&mut self.out_of_space, true) {
                    self.left.clear();
                    self.queue.close();
                    self.outcome.fail(self.mover.reporter, error);
                }
            }
            Err(error) => {
                self.outcome.fail(self.mover.reporter, error);
                self.failed.insert(path.clone());
                self.fail_referrers(&path);
            }
        }
    }

    /// What has arrived is of no more use to this run. The next one may find mended what has
    /// failed; but a full disk needs the room.
    fn give_up(&mut self, finished: Finished) {
        if let (Finished::Tree(staged), false) = (finished, self.out_of_space) {
            self.left.push(staged.tree);
        }
    }

    /// To be called at last, with what ended the move, if it was not its end, and when nobody waits
    /// any more for what `results` still brings: leaves to the next run what has come and did not
    /// become valid.
    pub(crate) fn leave(&mut self, results: Receiver<Done>, end: Option<&Error>) {
        let late = results.into_iter().filter_map(|done| done.result.ok());
        let late: Vec<Finished> = late.map(|arrival| arrival.finished).collect();
        if let Some(error) = end {
            self.out_of_space |= error.kind() == ErrorKind::NoSpace;
            let arrived = std::mem::take(&mut self.arrived).into_values();
            let ready = std::mem::take(&mut self.ready);
            for finished in arrived.chain(ready).chain(late) {
                self.give_up(finished);
            }
        }
        let left = std::mem::take(&mut self.left);
        let Some(store) = self.mover.target.as_store() else {
            return;
        };
        if self.out_of_space {
            store.discard_left(|_| false);
        } else if !left.is_empty() {
            let paths = left.len();
            self.mover.reporter.event(Event::Left { paths });
            store.leave(left);
        }
    }

    /// Marks a path ready, and with it those that waited for it alone.
    fn make_ready(&mut self, finished: Finished) {
        let mut todo = vec![finished];
        self.ready_since.get_or_insert_with(Instant::now);
        while let Some(finished) = todo.pop() {
            // They stay known: should the store refuse the path at last, they fail with it.
            let referrers = self.referrers.get(finished.path()).cloned();
            for referrer in referrers.unwrap_or_default() {
                let Some(count) = self.unready.get_mut(&referrer) else {
                    continue;
                };
                *count -= 1;
                if *count == 0 {
                    todo.extend(self.arrived.remove(&referrer));
                }
            }
            self.ready.push(finished);
        }
    }

    fn fail_with_referrers(&mut self, path: &StorePath, missing: BTreeSet<StorePath>) {
        if self.fail_one(path, missing) {
            self.fail_referrers(path);
        }
    }

    /// Fails all that refers to a path that has failed, directly or through others.
    fn fail_referrers(&mut self, path: &StorePath) {
        let mut todo = vec![path.clone()];
        while let Some(failed) = todo.pop() {
            for referrer in self.referrers.remove(&failed).unwrap_or_default() {
                if self.fail_one(&referrer, BTreeSet::from([failed.clone()])) {
                    todo.push(referrer);
                }
            }
        }
    }

    /// `false` if it had failed before.
    fn fail_one(&mut self, path: &StorePath, missing: BTreeSet<StorePath>) -> bool {
        let is_new = self.failed.insert(path.clone());
        if is_new {
            if let Some(finished) = self.arrived.remove(path) {
                self.give_up(finished);
            }
            self.queue.skip([path.clone()]);
            let path = path.clone();
            self.outcome.fail(
                self.mover.reporter,
                Error::MissingReferences { path, missing },
            );
        }
        is_new
    }

    /// Commits a batch of what is ready; what has to be tried again stays ready. How many of the
    /// batch are settled.
    fn commit_ready(&mut self, waiting: &mut Vec<Finished>) -> Result<usize, Error> {
        self.ready_since = None;
        let batch: Vec<Finished> = self
            .ready
            .drain(..self.ready.len().min(BATCH_LEN))
            .collect();
        for path in batch.iter().map(Finished::path) {
            self.mover.reporter.event(Event::Committing { path });
        }
        let committed = match &self.mover.target.0 {
            TargetKind::Store(store) => register(store, batch)?,
            TargetKind::Cache(cache) => publish(cache, batch)?,
            // Nothing is transferred on a dry run.
            TargetKind::Preview(_) => Committed::default(),
        };
        let progress = committed.valid.len() + committed.refused.len();
        for path in &committed.valid {
            self.mover.reporter.event(Event::Valid { path });
            let nar_bytes = self.nar_sizes.get(path).copied().unwrap_or(0);
            self.outcome.moved += 1;
            self.outcome.nar_bytes += nar_bytes;
            if self.taken.contains(path) {
                self.outcome.taken += 1;
                self.outcome.taken_nar_bytes += nar_bytes;
            }
        }
        for (path, error) in committed.refused {
            self.outcome.fail(self.mover.reporter, error);
            self.failed.insert(path.clone());
            self.fail_referrers(&path);
        }
        self.ready.extend(committed.busy);
        self.sort_unmet(committed.unmet, waiting);
        if !self.ready.is_empty() {
            self.ready_since = Some(Instant::now());
        }
        let paths = usize::try_from(self.outcome.moved).unwrap_or(usize::MAX);
        self.mover.reporter.event(Event::Registered { paths });
        Ok(progress)
    }

    /// A path whose reference is merely late stays ready; if the reference has failed the path
    /// fails; otherwise the reference has vanished from the target.
    fn sort_unmet(
        &mut self,
        unmet: Vec<(Finished, BTreeSet<StorePath>)>,
        waiting: &mut Vec<Finished>,
    ) {
        let mut late: HashSet<StorePath> = self
            .ready
            .iter()
            .map(|finished| finished.path().clone())
            .collect();
        late.extend(unmet.iter().map(|(finished, _)| finished.path().clone()));

        for (finished, missing) in unmet {
            let path = finished.path().clone();
            let failed: BTreeSet<_> = missing
                .iter()
                .filter(|m| self.failed.contains(*m))
                .cloned()
                .collect();
            let gone: BTreeSet<_> = missing
                .difference(&failed)
                .filter(|m| !late.contains(*m))
                .cloned()
                .collect();
            if !failed.is_empty() {
                self.fail_with_referrers(&path, failed);
                self.give_up(finished);
            } else if gone.is_empty() {
                self.ready.push(finished);
            } else {
                // What waits itself has not vanished; who refers to it waits with it.
                let waits = |path: &StorePath| waiting.iter().any(|w| w.path() == path);
                self.vanished
                    .extend(gone.into_iter().filter(|path| !waits(path)));
                waiting.push(finished);
            }
        }
    }

    /// Commits what is left, waiting for other processes where they are in the way.
    fn commit_rest(&mut self, waiting: &mut Vec<Finished>) -> Result<(), Error> {
        let mut last_progress = Instant::now();
        let mut is_told = false;
        while !self.ready.is_empty() {
            self.mover.check_cancelled()?;
            if self.commit_ready(waiting)? > 0 {
                last_progress = Instant::now();
            } else if last_progress.elapsed() > SILENCE && !is_told {
                is_told = true;
                if let Some(path) = self.ready.first().map(Finished::path) {
                    self.mover.reporter.event(Event::Waiting { path });
                }
            } else if last_progress.elapsed() > BUSY_WAIT {
                for finished in std::mem::take(&mut self.ready) {
                    let (path, seconds) = (finished.path().clone(), BUSY_WAIT.as_secs());
                    self.outcome
                        .fail(self.mover.reporter, Error::Busy { path, seconds });
                    self.give_up(finished);
                }
            } else {
                thread::sleep(BUSY_POLL);
            }
        }
        Ok(())
    }
}

/// What became of a batch.
#[derive(Default)]
struct Committed {
    valid: Vec<StorePath>,
    busy: Vec<Finished>,
    unmet: Vec<(Finished, BTreeSet<StorePath>)>,
    refused: Vec<(StorePath, Error)>,
}

fn register(store: &StoreWriter, batch: Vec<Finished>) -> Result<Committed, Error> {
    let staged: Vec<StagedPath> = batch
        .into_iter()
        .filter_map(|finished| match finished {
            Finished::Tree(staged) => Some(staged),
            Finished::Nar(_) => None,
        })
        .collect();
    let Registered {
        valid,
        busy,
        unmet,
        refused,
    } = store.register(staged)?;
    Ok(Committed {
        valid,
        busy: busy.into_iter().map(Finished::Tree).collect(),
        unmet: unmet
            .into_iter()
            .map(|(s, missing)| (Finished::Tree(s), missing))
            .collect(),
        refused: refused
            .into_iter()
            .map(|(path, error)| (path, error.into()))
            .collect(),
    })
}

/// A batch is in the order in which paths became ready: references first.
fn publish(cache: &CacheWriter, batch: Vec<Finished>) -> Result<Committed, Error> {
    let mut committed = Committed::default();
    for finished in batch {
        let Finished::Nar(packed) = finished else {
            continue;
        };
        let mut missing = cache.unpublished(&packed.narinfo.info.references);
        missing.remove(&packed.narinfo.info.path);
        if missing.is_empty() {
            committed.valid.push(cache.publish(packed)?);
        } else {
            committed.unmet.push((Finished::Nar(packed), missing));
        }
    }
    Ok(committed)
}

/// Paths in one transaction; more gains nothing and would hold more locks.
const BATCH_LEN: usize = 64;

/// How long a ready path waits for company: short beside a person's attention, long beside a
/// transaction.
const BATCH_WAIT: Duration = Duration::from_millis(200);

/// How long another process may hold a path that it is adding or deleting.
const BUSY_WAIT: Duration = Duration::from_secs(600);

/// How long somebody may do so before a word is said of it.
const SILENCE: Duration = Duration::from_secs(1);

/// How often such a path is tried again.
const BUSY_POLL: Duration = Duration::from_millis(50);
