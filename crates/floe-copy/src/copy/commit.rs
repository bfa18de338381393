//! The commit: makes staged paths valid, references before referrers, in batches.
//!
//! 1. A staged path is *blocked* until each of its references is valid or ready. Then it is
//!    *ready*.
//! 2. A batch is committed when 64 paths are ready, when the first one has been ready for 200 ms,
//!    and at the end.
//! 3. A path that another process has locked is *busy*. It stays ready for a later batch.
//! 4. A path that fails takes its referrers with it, unless the target keeps nothing.
//! 5. If a reference has vanished from the target, the path waits for the next round, which fetches
//!    the reference again.
//! 6. Staged paths that cannot become valid, after an interrupt or because of missing references,
//!    are kept for the next run, which need not fetch them again.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use floe_format::{PathInfo, StorePath};
use floe_transfer::{CANCEL_POLL, Error, ErrorKind, Event, PlannedPath};

use super::ClosureCopy;
use super::failover::ReceivedPath;
use super::fetch::Queue;
use super::receive::WorkerResult;
use super::summary::CopySummary;

/// A staged path whose references have vanished from the target.
pub(crate) struct WaitingPath {
    pub(crate) path: StorePath,
    pub(crate) references: BTreeSet<StorePath>,
}

pub(crate) struct Commit<'a> {
    copy: &'a ClosureCopy<'a>,
    queue: &'a Queue<'a>,
    planned_paths: &'a [Arc<PlannedPath>],
    summary: &'a mut CopySummary,
    /// Paths that this round could not commit. At first, those of an earlier round.
    waiting: &'a mut Vec<WaitingPath>,
    planned: HashMap<&'a StorePath, PlannedNode<'a>>,
    /// The references of paths of earlier rounds.
    earlier_references: HashMap<StorePath, BTreeSet<StorePath>>,
    /// Staged paths that are not ready.
    blocked: HashSet<StorePath>,
    ready: Vec<StorePath>,
    ready_since: Option<Instant>,
    failed: HashSet<StorePath>,
    /// References that were valid at the query and are not at the commit.
    vanished: BTreeSet<StorePath>,
    out_of_space: bool,
    /// The error after which the target can receive nothing any more.
    end: Option<Error>,
    /// Staged paths that this run cannot use any more.
    kept_for_resume: Vec<StorePath>,
}

/// A path of the plan.
struct PlannedNode<'a> {
    info: &'a PathInfo,
    /// The number of its references in the plan that are not ready.
    pending_references: usize,
    /// Its referrers in the plan.
    referrers: Vec<&'a StorePath>,
    /// Whether it was reused from this machine.
    is_reused: bool,
}

impl<'a> Commit<'a> {
    pub(crate) fn new(
        copy: &'a ClosureCopy<'a>,
        queue: &'a Queue<'a>,
        planned_paths: &'a [Arc<PlannedPath>],
        summary: &'a mut CopySummary,
        waiting: &'a mut Vec<WaitingPath>,
    ) -> Commit<'a> {
        let infos = || planned_paths.iter().map(|planned| &planned.narinfo.info);
        let node = |info| PlannedNode {
            info,
            pending_references: 0,
            referrers: Vec::new(),
            is_reused: false,
        };
        let mut planned: HashMap<_, _> = infos().map(|info| (&info.path, node(info))).collect();
        let linked = if copy.target.facts().keeps_nothing {
            &[]
        } else {
            planned_paths
        };
        for info in linked.iter().map(|planned| &planned.narinfo.info) {
            let mut pending_references = 0;
            for reference in info.references.iter().filter(|path| **path != info.path) {
                if let Some(node) = planned.get_mut(reference) {
                    node.referrers.push(&info.path);
                    pending_references += 1;
                }
            }
            if let Some(node) = planned.get_mut(&info.path) {
                node.pending_references = pending_references;
            }
        }
        Commit {
            copy,
            queue,
            planned_paths,
            summary,
            waiting,
            planned,
            earlier_references: HashMap::new(),
            blocked: HashSet::new(),
            ready: Vec::new(),
            ready_since: None,
            failed: HashSet::new(),
            vanished: BTreeSet::new(),
            out_of_space: false,
            end: None,
            kept_for_resume: Vec::new(),
        }
    }

    /// Commits the results of the workers until they end, and the waiting paths of an earlier
    /// round. Returns the references that have vanished, for which other paths wait now.
    pub(crate) fn run(
        &mut self,
        results: &Receiver<WorkerResult>,
    ) -> Result<BTreeSet<StorePath>, Error> {
        loop {
            if let Err(cancelled) = self.copy.check_cancelled() {
                // Ready paths still become valid.
                while !self.ready.is_empty() && self.commit_ready()? > 0 {}
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
            if let Some(end) = self.end.take() {
                return Err(end);
            }
            let is_due = |since: Instant| since.elapsed() >= BATCH_WAIT;
            if self.ready_since.is_some_and(is_due) {
                self.commit_ready()?;
            }
            // One late reference may have made many paths ready at once.
            while self.ready.len() >= self.batch_len() && self.commit_ready()? > 0 {}
        }
        for path in std::mem::take(&mut self.blocked) {
            self.copy.target.discard(std::slice::from_ref(&path));
            // After a full disk many paths are blocked. Otherwise their references form a circle,
            // which only a wrong narinfo can claim.
            if !self.out_of_space {
                let missing = self.references(&path);
                self.fail(Error::MissingReferences { path, missing });
            }
        }
        for WaitingPath { path, references } in std::mem::take(self.waiting) {
            self.earlier_references.insert(path.clone(), references);
            self.ready.push(path);
        }
        self.commit_rest()?;
        Ok(std::mem::take(&mut self.vanished))
    }

    /// Fails the paths of the plan whose references no source has.
    pub(crate) fn fail_referrers_of(&mut self, unavailable: &BTreeSet<StorePath>) {
        if self.copy.target.facts().keeps_nothing {
            return;
        }
        for planned in self.planned_paths {
            let info = &planned.narinfo.info;
            let missing = &info.references & unavailable;
            if !missing.is_empty() {
                self.fail_for_references(&info.path, missing);
            }
        }
    }

    fn handle_result(&mut self, WorkerResult { path, result }: WorkerResult) {
        match result {
            Ok(received) => {
                if let ReceivedPath::Fetched(len) = received {
                    self.summary.download_bytes += len;
                }
                let is_blocked = self.planned.get_mut(&path).is_some_and(|node| {
                    node.is_reused = matches!(received, ReceivedPath::Reused);
                    node.pending_references > 0
                });
                if self.failed.contains(&path) {
                    self.keep_for_resume(path);
                } else if is_blocked {
                    self.blocked.insert(path);
                } else {
                    self.mark_ready(path);
                }
            }
            // The copy itself ends with the first of these errors.
            Err(Error::Cancelled | Error::NotNeeded) => {}
            Err(error) if error.kind() == ErrorKind::NoSpace && !self.failed.contains(&path) => {
                // Every further path would fail for the same reason. Staged paths still get
                // committed.
                if !std::mem::replace(&mut self.out_of_space, true) {
                    let kept = std::mem::take(&mut self.kept_for_resume);
                    self.copy.target.discard(&kept);
                    self.queue.close();
                    self.fail(error);
                }
            }
            Err(error) if error.ends_copy() => self.end = self.end.take().or(Some(error)),
            Err(error) => self.fail_with_referrers(path, error),
        }
    }

    /// Keeps a staged path for the next run, in which the cause of the failure may be gone. On a
    /// full disk, discards it to free its space.
    fn keep_for_resume(&mut self, path: StorePath) {
        if self.out_of_space {
            self.copy.target.discard(&[path]);
        } else {
            self.kept_for_resume.push(path);
        }
    }

    /// Returns the references of a path of this round or of an earlier one.
    fn references(&self, path: &StorePath) -> BTreeSet<StorePath> {
        let planned = self.planned.get(path).map(|node| &node.info.references);
        let references = planned.or_else(|| self.earlier_references.get(path));
        references.cloned().unwrap_or_default()
    }

    /// Ends the commit: keeps staged paths that did not become valid for the next run. `end` is the
    /// error that ended the copy, if there is one. `results` may still contain results of workers.
    pub(crate) fn finish(&mut self, results: Receiver<WorkerResult>, end: Option<&Error>) {
        let late = results.into_iter().filter(|done| done.result.is_ok());
        let late: Vec<StorePath> = late.map(|done| done.path).collect();
        if let Some(error) = end {
            self.out_of_space |= error.kind() == ErrorKind::NoSpace;
            let blocked = std::mem::take(&mut self.blocked).into_iter();
            let ready = std::mem::take(&mut self.ready);
            self.kept_for_resume
                .extend(blocked.chain(ready).chain(late));
        } else {
            self.copy.target.discard(&late);
        }
        let kept_for_resume = std::mem::take(&mut self.kept_for_resume);
        if self.out_of_space {
            self.copy.target.discard(&kept_for_resume);
            self.copy.discard_recovered(&|_| false);
            return;
        }
        let paths = self.copy.keep_for_resume(&kept_for_resume);
        if paths > 0 {
            self.copy.events.event(Event::KeptForResume { paths });
        }
    }

    /// Marks a path ready, and the blocked paths for which it was the last missing reference.
    fn mark_ready(&mut self, path: StorePath) {
        let mut todo = vec![path];
        self.ready_since.get_or_insert_with(Instant::now);
        while let Some(path) = todo.pop() {
            // Keep the referrers: if the target refuses the path, they fail with it.
            let node = self.planned.get(&path);
            let referrers = node.map(|node| node.referrers.clone());
            for referrer in referrers.unwrap_or_default() {
                let Some(node) = self.planned.get_mut(referrer) else {
                    continue;
                };
                node.pending_references -= 1;
                if node.pending_references == 0 {
                    todo.extend(self.blocked.take(referrer));
                }
            }
            self.ready.push(path);
        }
    }

    fn fail(&mut self, error: Error) {
        self.summary.fail(self.copy.events, error);
    }

    fn fail_for_references(&mut self, path: &StorePath, missing: BTreeSet<StorePath>) {
        let path = path.clone();
        self.fail_with_referrers(path.clone(), Error::MissingReferences { path, missing });
    }

    /// Fails a path and all its direct and indirect referrers, unless they have failed before.
    fn fail_with_referrers(&mut self, path: StorePath, error: Error) {
        if !self.failed.insert(path.clone()) {
            return;
        }
        self.fail(error);
        let (mut todo, mut skipped) = (vec![path], Vec::new());
        while let Some(failed) = todo.pop() {
            if let Some(path) = self.blocked.take(&failed) {
                self.keep_for_resume(path);
            }
            skipped.push(failed.clone());
            let node = self.planned.get_mut(&failed);
            let referrers = node.map(|node| std::mem::take(&mut node.referrers));
            for path in referrers.unwrap_or_default().into_iter().cloned() {
                if self.failed.insert(path.clone()) {
                    todo.push(path.clone());
                    let missing = BTreeSet::from([failed.clone()]);
                    self.fail(Error::MissingReferences { path, missing });
                }
            }
        }
        // All at once: a path that is skipped must not start when its reference is.
        self.queue.skip(skipped);
    }

    fn batch_len(&self) -> usize {
        self.copy.target.facts().batch_len_max.max(1)
    }

    /// Commits a batch of ready paths. Busy paths stay ready. Returns how many paths became valid
    /// or were refused.
    fn commit_ready(&mut self) -> Result<usize, Error> {
        self.ready_since = None;
        let len = self.ready.len().min(self.batch_len());
        let batch: Vec<StorePath> = self.ready.drain(..len).collect();
        for path in &batch {
            self.copy.events.event(Event::Committing { path });
        }
        let committed = self.copy.target.commit(&batch)?;
        let progress = committed.valid.len() + committed.refused.len();
        self.summary.unsigned += committed.unsigned;
        self.summary.sent_bytes += committed.sent_bytes;
        for path in &committed.valid {
            self.copy.events.event(Event::Valid { path });
            self.summary.copied += 1;
            if let Some(node) = self.planned.get(path) {
                self.summary.nar_bytes += node.info.nar_size;
                if node.is_reused {
                    self.summary.reused += 1;
                    self.summary.reused_nar_bytes += node.info.nar_size;
                }
            }
        }
        for (path, error) in committed.refused {
            self.fail_with_referrers(path, error);
        }
        self.ready.extend(committed.busy);
        self.sort_missing_references(committed.missing_references);
        if !self.ready.is_empty() {
            self.ready_since = Some(Instant::now());
        }
        let paths = usize::try_from(self.summary.copied).unwrap_or(usize::MAX);
        self.copy.events.event(Event::Registered { paths });
        committed.end.map_or(Ok(progress), Err)
    }

    /// Handles paths whose references are not valid. If a reference is still to be committed, the
    /// path stays ready. If the reference has failed, the path fails. Otherwise the reference has
    /// vanished from the target, and the path waits for the next round.
    fn sort_missing_references(&mut self, staged: Vec<(StorePath, BTreeSet<StorePath>)>) {
        let mut late: HashSet<StorePath> = self.ready.iter().cloned().collect();
        late.extend(staged.iter().map(|(path, _)| path.clone()));

        for (path, missing) in staged {
            let missing = missing.into_iter();
            let (failed, mut gone): (BTreeSet<_>, BTreeSet<_>) =
                missing.partition(|path| self.failed.contains(path));
            gone.retain(|path| !late.contains(path));
            if !failed.is_empty() {
                self.fail_for_references(&path, failed);
                self.keep_for_resume(path);
            } else if gone.is_empty() {
                self.ready.push(path);
            } else {
                // A reference that waits itself has not vanished; its referrer waits as well.
                let waits = |path: &StorePath| self.waiting.iter().any(|w| w.path == *path);
                gone.retain(|path| !waits(path));
                self.vanished.extend(gone);
                let references = self.references(&path);
                self.waiting.push(WaitingPath { path, references });
            }
        }
    }

    /// Commits the remaining paths. Waits for the locks of other processes.
    fn commit_rest(&mut self) -> Result<(), Error> {
        let mut last_progress = Instant::now();
        let mut is_notified = false;
        while !self.ready.is_empty() {
            self.copy.check_cancelled()?;
            if self.commit_ready()? > 0 {
                last_progress = Instant::now();
            } else if last_progress.elapsed() > NOTIFY_AFTER && !is_notified {
                is_notified = true;
                if let Some(path) = self.ready.first() {
                    let seconds = BUSY_TIMEOUT.as_secs();
                    let event = Event::WaitingForLock { path, seconds };
                    self.copy.events.event(event);
                }
            } else if last_progress.elapsed() > BUSY_TIMEOUT {
                for path in std::mem::take(&mut self.ready) {
                    self.keep_for_resume(path.clone());
                    let seconds = BUSY_TIMEOUT.as_secs();
                    self.fail(Error::Busy { path, seconds });
                }
            } else {
                thread::sleep(BUSY_POLL);
            }
        }
        Ok(())
    }
}

/// How long a ready path waits for others: much longer than a transaction, and hardly noticeable.
const BATCH_WAIT: Duration = Duration::from_millis(200);

/// How long another process may lock a path.
const BUSY_TIMEOUT: Duration = Duration::from_secs(600);

/// How long a lock is held before the user gets a message.
const NOTIFY_AFTER: Duration = Duration::from_secs(1);

/// The delay before a busy path is committed again.
const BUSY_POLL: Duration = Duration::from_millis(50);
