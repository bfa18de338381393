//! The paths that the clients of one process send at this moment.
//!
//! Clients often send the same closure at once, such as the machines of a build farm. One
//! connection unpacks a path. The others wait until it is complete, then read and drop the NAR of
//! their own clients. If the client of the first connection is slow or ends, another connection
//! unpacks the path. Each connection registers all paths that its client has sent, also those that
//! another one has unpacked, so no client waits for the end of another one.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use floe_format::StorePath;
use floe_store::{StagedPath, StoreWriter};
use parking_lot::{Condvar, Mutex};

use crate::error::HostError;

/// The paths that the clients of one process send at this moment.
#[derive(Debug, Default)]
pub struct ArrivingPaths {
    /// By the fingerprints of the paths: two clients may describe a path differently.
    paths: Mutex<HashMap<String, ArrivingPath>>,
    /// Signals that a path is complete, or that its connection has ended.
    changed: Condvar,
    /// Locked by the connection that registers paths.
    registration: Mutex<()>,
    connections: AtomicU64,
}

#[derive(Debug, Default)]
struct ArrivingPath {
    /// The complete tree.
    staged: Option<StagedPath>,
    /// Whether a connection has the tree in a batch.
    is_registering: bool,
    /// The connections whose clients have sent the path or are sending it.
    connections: BTreeSet<u64>,
    /// Those of them that unpack it.
    unpacking: BTreeSet<u64>,
    /// How many bytes they have unpacked.
    unpacked_bytes: Arc<AtomicU64>,
}

/// The outcome for the paths of a registration. All others are valid.
#[derive(Debug, Default)]
pub(crate) struct Registration {
    /// Paths that cannot be registered, with the reasons.
    pub(crate) failures: BTreeMap<StorePath, HostError>,
    /// Paths to try again, because another process holds their locks or those of references.
    pub(crate) busy: BTreeSet<StorePath>,
}

impl ArrivingPaths {
    /// Returns a number for a new connection.
    pub(crate) fn new_connection(&self) -> u64 {
        self.connections.fetch_add(1, Ordering::Relaxed)
    }

    /// Decides whether a connection unpacks a path that its client sends. Then returns the counter
    /// of unpacked bytes. Waits while another connection unpacks the path, unless that is slow or
    /// fails.
    pub(crate) fn begin(&self, fingerprint: &str, connection: u64) -> Option<Arc<AtomicU64>> {
        let mut paths = self.paths.lock();
        let mut awaited = None;
        let (mut seen_bytes, mut is_slow) = (0, false);
        let mut deadline = Instant::now() + PROGRESS_TIME;
        loop {
            let arriving = paths.entry(fingerprint.to_owned()).or_default();
            arriving.connections.insert(connection);
            if arriving.staged.is_some() || arriving.is_registering {
                return None;
            }
            // A connection that begins later may fail as well, so nothing waits for it.
            let awaited = awaited.get_or_insert_with(|| arriving.unpacking.clone());
            if is_slow || awaited.is_disjoint(&arriving.unpacking) {
                arriving.unpacking.insert(connection);
                return Some(arriving.unpacked_bytes.clone());
            }
            let bytes = arriving.unpacked_bytes.clone();
            self.changed.wait_until(&mut paths, deadline);
            // Each change of any path ends the wait.
            if Instant::now() >= deadline {
                let bytes = bytes.load(Ordering::Relaxed);
                is_slow = bytes.saturating_sub(seen_bytes) < PROGRESS_LEN;
                seen_bytes = bytes;
                deadline += PROGRESS_TIME;
            }
        }
    }

    /// Adds a path that a connection has unpacked. If another one was faster, removes the tree.
    pub(crate) fn add(&self, staged: StagedPath, fingerprint: &str, connection: u64) {
        let mut paths = self.paths.lock();
        let arriving = paths.entry(fingerprint.to_owned()).or_default();
        arriving.connections.insert(connection);
        arriving.unpacking.remove(&connection);
        if arriving.staged.is_none() && !arriving.is_registering {
            arriving.staged = Some(staged);
        }
        self.changed.notify_all();
    }

    /// Notes that a connection does not unpack a path to its end. A waiting one unpacks it.
    pub(crate) fn abandon(&self, fingerprint: &str, connection: u64) {
        let mut paths = self.paths.lock();
        if let Some(arriving) = paths.get_mut(fingerprint) {
            arriving.unpacking.remove(&connection);
            arriving.connections.remove(&connection);
            if arriving.connections.is_empty() {
                paths.remove(fingerprint);
            }
        }
        self.changed.notify_all();
    }

    /// Registers paths that the client of a connection has sent, given with their fingerprints. If
    /// the client is away, the connections of other clients register the paths of both.
    ///
    /// Errors: those of the store that concern all paths.
    pub(crate) fn register(
        &self,
        writer: &StoreWriter,
        wanted: &BTreeMap<StorePath, String>,
        (connection, is_away): (u64, bool),
    ) -> Result<Registration, HostError> {
        let _registration = self.registration.lock();
        let _end = EndOfRegistration(self, wanted);
        let (batch, gone) = self.take(wanted, is_away.then_some(connection));
        let mut result = Registration::default();
        let outcome = writer.register(batch)?;
        // Another connection has registered them, or has failed to.
        for path in gone {
            if writer.path_info(&path)?.is_none() {
                let reason = LOST;
                let error = HostError::Busy {
                    path: path.clone(),
                    reason,
                };
                result.failures.insert(path, error);
            }
        }
        let (late, absent) = split_missing_references(&outcome.busy, outcome.missing_references);
        for (path, error) in outcome.refused {
            result.failures.insert(path, error.into());
        }
        for staged in outcome.busy.into_iter().chain(late) {
            result.busy.insert(staged.info.path.clone());
            self.put_back(staged, wanted, None);
        }
        for (staged, missing) in absent {
            let path = staged.info.path.clone();
            // The client of another connection may have sent them.
            self.put_back(staged, wanted, Some(connection));
            let error = HostError::MissingReferences {
                path: path.clone(),
                missing,
            };
            result.failures.insert(path, error);
        }
        Ok(result)
    }

    /// Takes the trees of paths for a registration. Also returns those without a tree. If the
    /// client of a connection is away, takes only the paths that no other one has sent.
    fn take(
        &self,
        wanted: &BTreeMap<StorePath, String>,
        away: Option<u64>,
    ) -> (Vec<StagedPath>, Vec<StorePath>) {
        let mut paths = self.paths.lock();
        let (mut batch, mut gone) = (Vec::new(), Vec::new());
        for (path, fingerprint) in wanted {
            let Some(arriving) = paths.get_mut(fingerprint) else {
                gone.push(path.clone());
                continue;
            };
            if let Some(away) = away {
                arriving.connections.remove(&away);
                if !arriving.connections.is_empty() {
                    continue;
                }
            }
            match arriving.staged.take() {
                Some(staged) => {
                    arriving.is_registering = true;
                    batch.push(staged);
                }
                None => gone.push(path.clone()),
            }
        }
        (batch, gone)
    }

    /// Keeps a tree for a later registration, if a connection other than `failed` still wants it.
    fn put_back(
        &self,
        staged: StagedPath,
        wanted: &BTreeMap<StorePath, String>,
        failed: Option<u64>,
    ) {
        let mut paths = self.paths.lock();
        let fingerprint = wanted.get(&staged.info.path);
        if let Some(arriving) = fingerprint.and_then(|it| paths.get_mut(it)) {
            arriving.connections.retain(|it| Some(*it) != failed);
            if failed.is_none() || !arriving.connections.is_empty() {
                arriving.is_registering = false;
                arriving.staged = Some(staged);
            }
        }
    }
}

/// Ends a registration, also after an error or a panic: forgets the paths that were not put back.
struct EndOfRegistration<'a>(&'a ArrivingPaths, &'a BTreeMap<StorePath, String>);

impl Drop for EndOfRegistration<'_> {
    fn drop(&mut self) {
        let mut paths = self.0.paths.lock();
        for fingerprint in self.1.values() {
            if paths.get(fingerprint).is_some_and(|it| it.is_registering) {
                paths.remove(fingerprint);
            }
        }
        self.0.changed.notify_all();
    }
}

/// Splits paths with missing references into those whose references are all still to be registered,
/// because another process holds a lock, and those with absent references.
fn split_missing_references(
    busy: &[StagedPath],
    mut rest: Vec<(StagedPath, BTreeSet<StorePath>)>,
) -> (Vec<StagedPath>, Vec<(StagedPath, BTreeSet<StorePath>)>) {
    let mut unregistered: BTreeSet<StorePath> =
        busy.iter().map(|staged| staged.info.path.clone()).collect();
    let mut late = Vec::new();
    loop {
        let (found, others): (Vec<_>, Vec<_>) = rest
            .into_iter()
            .partition(|(_, missing)| missing.is_subset(&unregistered));
        rest = others;
        if found.is_empty() {
            return (late, rest);
        }
        for (staged, _) in found {
            unregistered.insert(staged.info.path.clone());
            late.push(staged);
        }
    }
}

/// How long a connection waits for further bytes of a path that another one unpacks.
const PROGRESS_TIME: Duration = Duration::from_millis(200);

/// The other connection must unpack as many bytes in this time. Otherwise its client may be behind
/// a slow network.
const PROGRESS_LEN: u64 = 4 * 1024 * 1024;

const LOST: &str = "another client sent it at the same moment, and it could not be registered";

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::thread;

    use super::*;

    const PATH: &str = "the fingerprint of a path";

    #[test]
    fn connection_waits_while_another_one_unpacks() {
        let arriving = ArrivingPaths::default();
        let [first, second] = [(); 2].map(|()| arriving.new_connection());
        let bytes = arriving.begin(PATH, first).unwrap();
        let (sender, begun) = channel();
        thread::scope(|scope| {
            let arriving = &arriving;
            scope.spawn(move || {
                let bytes = arriving.begin(PATH, second);
                sender.send(bytes.is_some()).unwrap();
            });
            // Five times as long as the other one waits for a slow client.
            for _ in 0..50 {
                // Changes of other paths end no wait.
                arriving.abandon("another path", first);
                bytes.fetch_add(PROGRESS_LEN, Ordering::Relaxed);
                assert!(begun.recv_timeout(PROGRESS_TIME / 10).is_err());
            }
            // The client ends, so the other one unpacks the path.
            arriving.abandon(PATH, first);
            assert!(begun.recv().unwrap());
        });
        arriving.abandon(PATH, second);
        assert!(arriving.paths.lock().is_empty());
    }

    #[test]
    fn connection_does_not_wait_for_a_slow_client() {
        let arriving = ArrivingPaths::default();
        let [first, second] = [(); 2].map(|()| arriving.new_connection());
        assert!(arriving.begin(PATH, first).is_some());
        thread::scope(|scope| {
            let (end, ended) = channel::<()>();
            let arriving = &arriving;
            scope.spawn(move || {
                while ended.recv_timeout(PROGRESS_TIME / 10).is_err() {
                    arriving.abandon("another path", first);
                }
            });
            assert!(arriving.begin(PATH, second).is_some());
            end.send(()).unwrap();
        });
    }
}
