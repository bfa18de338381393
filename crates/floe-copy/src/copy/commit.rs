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
use floe_transfer::{CANCEL_POLL, Error, ErrorKind, Event, PlannedPath};

use super::fetch::Queue;
use super::receive::WorkerResult;
use super::{ClosureCopy, CopySummary};

/// A staged path whose references have vanished from the target.
pub(crate) struct WaitingPath {
    pub(crate) path: StorePath,
    pub(crate) references: BTreeSet<StorePath>,
}

pub(crate) struct Commit<'a> {
    copy: &'a ClosureCopy<'a>,
    queue: &'a Queue<'a>,
    summary: &'a mut CopySummary,
    /// For each path that is not ready yet: how many of its references are not either.
    pending_references: HashMap<StorePath, usize>,
    /// For each path: which others wait for it.
    referrers: HashMap<StorePath, Vec<StorePath>>,
    /// The references of paths of earlier rounds.
    earlier_references: HashMap<StorePath, BTreeSet<StorePath>>,
    /// Staged and not ready.
    blocked: HashSet<StorePath>,
    ready: Vec<StorePath>,
    ready_since: Option<Instant>,
    failed: HashSet<StorePath>,
    /// From other stores of this machine.
    reused: HashSet<StorePath>,
    /// Valid when asked for, and gone at the commit.
    vanished: BTreeSet<StorePath>,
    nar_sizes: HashMap<StorePath, u64>,
    out_of_space: bool,
    /// Arrived, and of no more use to this run.
    kept_for_resume: Vec<StorePath>,
}

impl<'a> Commit<'a> {
    pub(crate) fn new(
        copy: &'a ClosureCopy<'a>,
        items: &[PlannedPath],
        queue: &'a Queue<'a>,
        summary: &'a mut CopySummary,
    ) -> Commit<'a> {
        let infos = || items.iter().map(|item| &item.narinfo.info);
        let nar_sizes: HashMap<_, _> = infos().map(|i| (i.path.clone(), i.nar_size)).collect();
        let mut pending_references = HashMap::new();
        let mut referrers: HashMap<_, Vec<_>> = HashMap::new();
        for info in infos() {
            let among = |r: &&StorePath| **r != info.path && nar_sizes.contains_key(*r);
            pending_references.insert(
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
            copy,
            queue,
            summary,
            pending_references,
            referrers,
            earlier_references: HashMap::new(),
            blocked: HashSet::new(),
            ready: Vec::new(),
            ready_since: None,
            failed: HashSet::new(),
            reused: HashSet::new(),
            vanished: BTreeSet::new(),
            nar_sizes,
            out_of_space: false,
            kept_for_resume: Vec::new(),
        }
    }

    /// Commits what arrives until no more comes. `waiting` holds what an earlier round could
    /// not commit; afterwards it holds what this one could not, for want of the returned paths.
    pub(crate) fn run(
        &mut self,
        results: &Receiver<WorkerResult>,
        waiting: &mut Vec<WaitingPath>,
    ) -> Result<BTreeSet<StorePath>, Error> {
        loop {
            if let Err(cancelled) = self.copy.check_cancelled() {
                // What is ready stays.
                while !self.ready.is_empty() && self.commit_ready(waiting)? > 0 {}
                return Err(cancelled);
            }
            let pause = match self.ready_since {
                Some(since) => BATCH_WAIT.saturating_sub(since.elapsed()),
                None => CANCEL_POLL,
            };
            match results.recv_timeout(pause) {
                Ok(done) => self.handle_result(done),
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
        for path in std::mem::take(&mut self.blocked) {
            self.copy.target.discard(std::slice::from_ref(&path));
            // After a full disk many paths are blocked. Otherwise their references form a circle,
            // which only a wrong narinfo can claim.
            if !self.out_of_space {
                let missing = self.references(&path);
                self.summary
                    .fail(self.copy.events, Error::MissingReferences { path, missing });
            }
        }
        for WaitingPath { path, references } in waiting.drain(..) {
            self.earlier_references.insert(path.clone(), references);
            self.ready.push(path);
        }
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

    fn handle_result(&mut self, done: WorkerResult) {
        let WorkerResult { path, result } = done;
        match result {
            Ok(received) => {
                self.summary.download_bytes += received.fetched;
                if received.is_reused {
                    self.reused.insert(path.clone());
                }
                if self.failed.contains(&path) {
                    self.keep_for_resume(path);
                    return;
                }
                match self.pending_references.get(&path) {
                    Some(0) | None => self.mark_ready(path),
                    Some(_) => {
                        self.blocked.insert(path);
                    }
                }
            }
            Err(Error::Cancelled) => {}
            // It was told already why this path cannot be moved.
            Err(_) if self.failed.contains(&path) => {}
            Err(error) if error.kind() == ErrorKind::NoSpace => {
                // Every other path would fail for the same reason. What is finished stays.
                if !std::mem::replace(&mut self.out_of_space, true) {
                    let kept = std::mem::take(&mut self.kept_for_resume);
                    self.copy.target.discard(&kept);
                    self.queue.close();
                    self.summary.fail(self.copy.events, error);
                }
            }
            Err(error) => {
                self.summary.fail(self.copy.events, error);
                self.failed.insert(path.clone());
                self.fail_referrers(&path);
            }
        }
    }

    /// What has arrived is of no more use to this run. The next one may find mended what has
    /// failed; but a full disk needs the room.
    fn keep_for_resume(&mut self, path: StorePath) {
        match self.out_of_space {
            true => self.copy.target.discard(&[path]),
            false => self.kept_for_resume.push(path),
        }
    }

    /// Returns the references of a path of this round or of an earlier one.
    fn references(&self, path: &StorePath) -> BTreeSet<StorePath> {
        let mut infos = self.queue.items().iter().map(|item| &item.narinfo.info);
        let planned = infos.find(|info| info.path == *path);
        let planned = planned.map(|info| &info.references);
        let references = planned.or_else(|| self.earlier_references.get(path));
        references.cloned().unwrap_or_default()
    }

    /// To be called at last, with what ended the move, if it was not its end, and when nobody waits
    /// any more for what `results` still brings: leaves to the next run what has come and did not
    /// become valid.
    pub(crate) fn finish(&mut self, results: Receiver<WorkerResult>, end: Option<&Error>) {
        let late = results.into_iter().filter(|done| done.result.is_ok());
        let late: Vec<StorePath> = late.map(|done| done.path).collect();
        if let Some(error) = end {
            self.out_of_space |= error.kind() == ErrorKind::NoSpace;
            let blocked = std::mem::take(&mut self.blocked).into_iter();
            let ready = std::mem::take(&mut self.ready);
            for path in blocked.chain(ready).chain(late) {
                self.keep_for_resume(path);
            }
        } else {
            self.copy.target.discard(&late);
        }
        let kept_for_resume = std::mem::take(&mut self.kept_for_resume);
        if self.out_of_space {
            self.copy.target.discard(&kept_for_resume);
            self.copy.target.discard_recovered(&|_| false);
            return;
        }
        let paths = self.copy.target.keep_for_resume(&kept_for_resume);
        if paths > 0 {
            self.copy.events.event(Event::KeptForResume { paths });
        }
    }

    /// Marks a path ready, and with it those that waited for it alone.
    fn mark_ready(&mut self, path: StorePath) {
        let mut todo = vec![path];
        self.ready_since.get_or_insert_with(Instant::now);
        while let Some(path) = todo.pop() {
            // They stay known: should the store refuse the path at last, they fail with it.
            let referrers = self.referrers.get(&path).cloned();
            for referrer in referrers.unwrap_or_default() {
                let Some(count) = self.pending_references.get_mut(&referrer) else {
                    continue;
                };
                *count -= 1;
                if *count == 0 {
                    todo.extend(self.blocked.take(&referrer));
                }
            }
            self.ready.push(path);
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
            if let Some(path) = self.blocked.take(path) {
                self.keep_for_resume(path);
            }
            self.queue.skip([path.clone()]);
            let path = path.clone();
            self.summary
                .fail(self.copy.events, Error::MissingReferences { path, missing });
        }
        is_new
    }

    /// Commits a batch of what is ready; what has to be tried again stays ready. How many of the
    /// batch are settled.
    fn commit_ready(&mut self, waiting: &mut Vec<WaitingPath>) -> Result<usize, Error> {
        self.ready_since = None;
        let batch: Vec<StorePath> = self
            .ready
            .drain(..self.ready.len().min(BATCH_LEN))
            .collect();
        for path in &batch {
            self.copy.events.event(Event::Committing { path });
        }
        let committed = self.copy.target.commit(&batch)?;
        let progress = committed.valid.len() + committed.refused.len();
        for path in &committed.valid {
            self.copy.events.event(Event::Valid { path });
            let nar_bytes = self.nar_sizes.get(path).copied().unwrap_or(0);
            self.summary.copied += 1;
            self.summary.nar_bytes += nar_bytes;
            if self.reused.contains(path) {
                self.summary.reused += 1;
                self.summary.reused_nar_bytes += nar_bytes;
            }
        }
        for (path, error) in committed.refused {
            self.summary.fail(self.copy.events, error);
            self.failed.insert(path.clone());
            self.fail_referrers(&path);
        }
        self.ready.extend(committed.busy);
        self.sort_missing_references(committed.missing_references, waiting);
        if !self.ready.is_empty() {
            self.ready_since = Some(Instant::now());
        }
        let paths = usize::try_from(self.summary.copied).unwrap_or(usize::MAX);
        self.copy.events.event(Event::Registered { paths });
        Ok(progress)
    }

    /// A path whose reference is merely late stays ready; if the reference has failed the path
    /// fails; otherwise the reference has vanished from the target.
    fn sort_missing_references(
        &mut self,
        missing_references: Vec<(StorePath, BTreeSet<StorePath>)>,
        waiting: &mut Vec<WaitingPath>,
    ) {
        let mut late: HashSet<StorePath> = self.ready.iter().cloned().collect();
        late.extend(missing_references.iter().map(|(path, _)| path.clone()));

        for (path, missing) in missing_references {
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
                self.keep_for_resume(path);
            } else if gone.is_empty() {
                self.ready.push(path);
            } else {
                // What waits itself has not vanished; who refers to it waits with it.
                let waits = |path: &StorePath| waiting.iter().any(|w| w.path == *path);
                self.vanished
                    .extend(gone.into_iter().filter(|path| !waits(path)));
                let references = self.references(&path);
                waiting.push(WaitingPath { path, references });
            }
        }
    }

    /// Commits what is left, waiting for other processes where they are in the way.
    fn commit_rest(&mut self, waiting: &mut Vec<WaitingPath>) -> Result<(), Error> {
        let mut last_progress = Instant::now();
        let mut is_notified = false;
        while !self.ready.is_empty() {
            self.copy.check_cancelled()?;
            if self.commit_ready(waiting)? > 0 {
                last_progress = Instant::now();
            } else if last_progress.elapsed() > NOTIFY_AFTER && !is_notified {
                is_notified = true;
                if let Some(path) = self.ready.first() {
                    self.copy.events.event(Event::WaitingForLock { path });
                }
            } else if last_progress.elapsed() > BUSY_TIMEOUT {
                for path in std::mem::take(&mut self.ready) {
                    let seconds = BUSY_TIMEOUT.as_secs();
                    let error = Error::Busy {
                        path: path.clone(),
                        seconds,
                    };
                    self.summary.fail(self.copy.events, error);
                    self.keep_for_resume(path);
                }
            } else {
                thread::sleep(BUSY_POLL);
            }
        }
        Ok(())
    }
}

/// Paths in one transaction; more gains nothing and would hold more locks.
const BATCH_LEN: usize = 64;

/// How long a ready path waits for company: short beside a person's attention, long beside a
/// transaction.
const BATCH_WAIT: Duration = Duration::from_millis(200);

/// How long another process may hold a path that it is adding or deleting.
const BUSY_TIMEOUT: Duration = Duration::from_secs(600);

/// How long somebody may do so before a word is said of it.
const NOTIFY_AFTER: Duration = Duration::from_secs(1);

/// How often such a path is tried again.
const BUSY_POLL: Duration = Duration::from_millis(50);
