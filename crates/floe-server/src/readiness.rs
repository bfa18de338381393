//! Whether the server can serve its store: the checks of `/ready`.
//!
//! A worker runs the checks, at most one at a time and at most once in [`RESULT_AGE_MAX`].
//! Meanwhile the result of the check before is the response. If a check does not end, the server is
//! not ready. So a disk that does not respond occupies one worker, however often `/ready` is
//! requested.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use floe_format::HashPart;
use floe_store::{LiveStore, StoreError, StoreLayout, list_directory};
use parking_lot::Mutex;
use serde_json::{Value, json};

/// The latest result of the checks.
#[derive(Debug)]
pub(crate) struct Readiness {
    /// The number of secret keys, which are loaded before the server listens.
    keys: AtomicUsize,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    latest: Arc<Report>,
    checked_at: Instant,
    /// When the running check was requested.
    running_since: Option<Instant>,
}

/// The results of all checks.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) is_ready: bool,
    /// A line of JSON.
    pub(crate) text: Arc<str>,
}

/// The way to respond to a request.
#[derive(Debug)]
pub(crate) enum Reply {
    Report(Arc<Report>),
    /// A worker has to call [`Readiness::check`].
    Check,
}

impl Readiness {
    /// Runs the first check, with a store that is open.
    pub(crate) fn new(store: &mut LiveStore, keys: usize) -> Readiness {
        let layout = store.layout().clone();
        let report = report(&layout, keys, query(store));
        Readiness {
            keys: AtomicUsize::new(keys),
            state: Mutex::new(State {
                latest: Arc::new(report),
                checked_at: Instant::now(),
                running_since: None,
            }),
        }
    }

    /// Sets the number of secret keys, for the next check.
    pub(crate) fn set_keys(&self, keys: usize) {
        self.keys.store(keys, Ordering::Relaxed);
    }

    /// Decides about a request without waiting.
    pub(crate) fn query(&self, now: Instant) -> Reply {
        let mut state = self.state.lock();
        if now.saturating_duration_since(state.checked_at) < RESULT_AGE_MAX {
            return Reply::Report(state.latest.clone());
        }
        match state.running_since {
            Some(since) => {
                let running = now.saturating_duration_since(since);
                let is_overdue = running >= CHECK_TIME_MAX;
                Reply::Report(if is_overdue {
                    Arc::new(overdue(running))
                } else {
                    state.latest.clone()
                })
            }
            None => {
                state.running_since = Some(now);
                Reply::Check
            }
        }
    }

    /// Runs the checks. `query` queries the database, as [`query`] does.
    pub(crate) fn check(
        &self,
        layout: &StoreLayout,
        query: impl FnOnce() -> Result<(), StoreError>,
    ) -> Arc<Report> {
        let _running = Running(self);
        let report = Arc::new(report(layout, self.keys.load(Ordering::Relaxed), query()));
        let mut state = self.state.lock();
        state.latest = report.clone();
        state.checked_at = Instant::now();
        report
    }
}

/// The check that a worker runs, until it ends or panics.
struct Running<'r>(&'r Readiness);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.state.lock().running_since = None;
    }
}

/// Queries the database. The caller sets the time that the query may wait: [`DATABASE_WAIT`].
///
/// Errors: the database is locked, or cannot be read.
pub(crate) fn query(store: &mut LiveStore) -> Result<(), StoreError> {
    // The generation alone may come from the times of files.
    store.generation()?;
    match HashPart::parse(ANY_HASH_PART) {
        Some(part) => store.path_info_from_hash_part(part).map(drop),
        None => Ok(()),
    }
}

fn report(layout: &StoreLayout, keys: usize, database: Result<(), StoreError>) -> Report {
    let store_dir = read_store_dir(&layout.real_store_dir);
    let is_ready = database.is_ok() && store_dir.is_ok();
    let checks = json!({
        "database": result(database),
        "storeDirectory": result(store_dir),
        "secretKeys": { "ok": true, "count": keys },
    });
    Report::new(is_ready, &checks)
}

/// The report while a check does not end.
fn overdue(running: Duration) -> Report {
    let error = format!(
        "cannot check the store: the check has not ended for {} seconds, because all workers are \
         busy or a disk does not respond",
        running.as_secs()
    );
    Report::new(false, &json!({ "worker": { "ok": false, "error": error } }))
}

impl Report {
    fn new(is_ready: bool, checks: &Value) -> Report {
        let text = json!({ "ready": is_ready, "checks": checks });
        Report {
            is_ready,
            text: format!("{text}\n").into(),
        }
    }
}

fn result(result: Result<(), StoreError>) -> Value {
    match result {
        Ok(()) => json!({ "ok": true }),
        Err(error) => json!({ "ok": false, "error": error.to_string() }),
    }
}

fn read_store_dir(dir: &Path) -> Result<(), StoreError> {
    let first = list_directory(dir).and_then(|mut entries| entries.next().transpose());
    first.map(drop).map_err(|source| StoreError::Io {
        action: "read the store directory",
        path: dir.into(),
        source,
    })
}

/// How long the check of the database waits for its lock.
pub(crate) const DATABASE_WAIT: Duration = Duration::from_secs(1);

/// How old a result may be. A client notices a change within this time.
const RESULT_AGE_MAX: Duration = Duration::from_secs(1);

/// How long a check may take, from its request. Longer than [`DATABASE_WAIT`], so that the result
/// of a locked database is known before.
const CHECK_TIME_MAX: Duration = Duration::from_secs(3);

/// A hash part to query for. No path needs to have it.
const ANY_HASH_PART: &str = "00000000000000000000000000000000";

#[cfg(test)]
mod tests {
    use std::fs;
    use std::panic::AssertUnwindSafe;

    use floe_format::StoreDir;

    use super::*;

    fn layout(dir: &Path) -> StoreLayout {
        StoreLayout::in_root(dir, StoreDir::default())
    }

    /// Returns a state whose latest check was at `now` and found everything good.
    fn readiness(now: Instant) -> Readiness {
        Readiness {
            keys: AtomicUsize::new(2),
            state: Mutex::new(State {
                latest: Arc::new(Report::new(true, &json!({}))),
                checked_at: now,
                running_since: None,
            }),
        }
    }

    #[track_caller]
    fn is_ready(reply: &Reply) -> bool {
        match reply {
            Reply::Report(report) => report.is_ready,
            Reply::Check => panic!("a check is requested"),
        }
    }

    #[test]
    fn result_is_used_for_a_second_and_one_check_runs_at_a_time() {
        let start = Instant::now();
        let readiness = readiness(start);
        let after = |millis| start + Duration::from_millis(millis);
        assert!(is_ready(&readiness.query(after(999))));
        assert!(matches!(readiness.query(after(1000)), Reply::Check));
        assert!(is_ready(&readiness.query(after(1001))), "the former result");
        assert!(is_ready(&readiness.query(after(3999))));
        let Reply::Report(overdue) = readiness.query(after(4000)) else {
            panic!("a second check");
        };
        assert!(!overdue.is_ready && overdue.text.contains("for 3 seconds"));
    }

    #[test]
    fn ended_or_panicked_check_allows_the_next_one() {
        let dir = tempfile::tempdir().unwrap();
        let start = Instant::now().checked_sub(Duration::from_secs(9)).unwrap();
        let readiness = readiness(start);
        let layout = layout(dir.path());
        assert!(matches!(readiness.query(Instant::now()), Reply::Check));
        let panicked = std::panic::catch_unwind(AssertUnwindSafe(|| {
            readiness.check(&layout, || panic!("a bug"))
        }));
        assert!(panicked.is_err());
        assert!(matches!(readiness.query(Instant::now()), Reply::Check));
        let report = readiness.check(&layout, || Ok(()));
        assert!(!report.is_ready, "there is no store directory");
        assert!(!is_ready(&readiness.query(Instant::now())));
    }

    #[test]
    fn report_names_each_check_and_its_failure() {
        let dir = tempfile::tempdir().unwrap();
        let layout = layout(dir.path());
        let missing = report(
            &layout,
            2,
            Err(StoreError::NoStore {
                path: "/s".into(),
                database: "/d".into(),
            }),
        );
        let found: Value = serde_json::from_str(&missing.text).unwrap();
        assert_eq!(found["ready"], false);
        let error = |name: &str| found["checks"][name]["error"].as_str().unwrap().to_owned();
        assert!(error("database").contains("/d does not exist"));
        assert!(error("storeDirectory").contains("cannot read the store directory"));
        assert_eq!(found["checks"]["secretKeys"]["count"], 2);
        fs::create_dir_all(&layout.real_store_dir).unwrap();
        let good = report(&layout, 0, Ok(()));
        assert_eq!(
            &*good.text,
            "{\"checks\":{\"database\":{\"ok\":true},\"secretKeys\":{\"count\":0,\"ok\":true},\
             \"storeDirectory\":{\"ok\":true}},\"ready\":true}\n"
        );
    }
}
