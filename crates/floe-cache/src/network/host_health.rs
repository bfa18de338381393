//! Whether a host answers. All requests of a session to one host share this knowledge.
//!
//! A host is *away* once a request fails as one does that may succeed a moment later, and no
//! request has succeeded since that one was sent. Then the requests to the host wait. Now and then
//! one of them is sent as a *probe*: its success releases all others, its failure makes the next
//! pause longer. A probe may be on its way for long, so the next one does not wait for its end.
//!
//! If a host stays away for longer than the policy of the probe allows, all waiting requests fail.
//! Later ones are still sent as probes.
//!
//! Reads and writes are apart: an object store limits them apart, and a proxy may hand them to
//! different servers.

#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use floe_transfer::{Error, RetryPolicy};
use parking_lot::Mutex;
use reqwest::Url;
use tokio::sync::watch;
use tokio::time::{sleep_until, timeout, timeout_at};

use super::pace::Pace;

/// The health of all hosts.
#[derive(Debug, Default)]
pub(crate) struct HostHealths(Mutex<HashMap<Key, Arc<HostHealth>>>);

/// Scheme, name and port of a host, and whether requests to it write.
type Key = (String, bool);

/// The health of one host.
#[derive(Debug)]
pub(crate) struct HostHealth {
    /// Scheme, name and port, for messages.
    pub(crate) name: String,
    state: Mutex<State>,
    /// Changes whenever the waiting requests should look at the state again.
    changes: watch::Sender<()>,
}

#[derive(Debug)]
struct State {
    outage: Option<Outage>,
    /// The numbers of the requests that wait, in their order.
    waiting: BTreeSet<u64>,
    next_number: u64,
    last_success: Option<Instant>,
    pace: Pace,
}

/// The time in which a host is away.
#[derive(Debug)]
struct Outage {
    since: Instant,
    last_failure: Instant,
    /// The requests that failed in a row.
    failures: u32,
    next_probe: Instant,
    /// The last failure.
    cause: OutageCause,
    /// Whether the user knows of it.
    is_announced: bool,
    /// Whether it took so long that the waiting requests fail.
    is_over: bool,
}

/// The last failure of a host that is away, without the URL of the request that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OutageCause {
    pub(crate) reason: String,
    pub(crate) status: Option<u16>,
}

impl From<&Error> for OutageCause {
    fn from(error: &Error) -> OutageCause {
        OutageCause {
            reason: match error {
                Error::Fetch { reason, .. } => reason.clone(),
                other => other.to_string(),
            },
            status: error.status(),
        }
    }
}

/// Permission to send a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Admission {
    pub(crate) sent_at: Instant,
    /// Whether the host is away, and the request shows whether it is back.
    pub(crate) is_probe: bool,
}

/// The place of a waiting request among the others.
struct Place<'a> {
    health: &'a HostHealth,
    number: u64,
}

impl Place<'_> {
    fn new(health: &HostHealth) -> Place<'_> {
        let mut state = health.state.lock();
        let number = state.next_number;
        state.next_number += 1;
        state.waiting.insert(number);
        drop(state);
        Place { health, number }
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.health.state.lock().waiting.remove(&self.number);
    }
}

/// The consequence of a failed request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Consequence {
    /// The host answers others.
    None,
    /// The host is away. The next request is sent after this time.
    OutageBegins(Duration),
    /// The host is still away. The next request is sent after this time.
    OutageContinues(Duration),
    /// The host is away for so long that the user should know; said once.
    OutageLasts(Duration),
    /// The host was away for too long.
    GiveUp,
}

/// The next step of a request that wants to be sent.
#[derive(Debug)]
enum Step {
    Send(Admission),
    /// Wait for a turn of the host's rate, which the request has taken.
    SendAt(Instant),
    /// Wait for a change, and at most until a time.
    Wait(Instant),
    Fail(OutageCause),
}

impl HostHealths {
    /// Returns the health of the host of a URL.
    pub(crate) fn of(&self, url: &Url, is_write: bool) -> Arc<HostHealth> {
        let name = url.origin().ascii_serialization();
        let mut hosts = self.0.lock();
        if hosts.len() >= HOSTS_MAX {
            hosts.retain(|_, host| Arc::strong_count(host) > 1);
        }
        let health = hosts.entry((name, is_write));
        let health = health.or_insert_with_key(|(name, _)| Arc::new(HostHealth::new(name)));
        health.clone()
    }
}

impl HostHealth {
    fn new(name: &str) -> HostHealth {
        HostHealth {
            name: name.to_owned(),
            state: Mutex::new(State {
                outage: None,
                waiting: BTreeSet::new(),
                next_number: 0,
                last_success: None,
                pace: Pace::new(Instant::now()),
            }),
            changes: watch::Sender::new(()),
        }
    }

    /// Waits until a request may be sent.
    ///
    /// Errors: the last failure of a host that is away for too long.
    pub(crate) async fn admit(&self) -> Result<Admission, OutageCause> {
        let mut changes = self.changes.subscribe();
        let place = Place::new(self);
        loop {
            changes.mark_unchanged();
            let step = self.state.lock().step(place.number, Instant::now());
            match step {
                Step::Send(admission) => return Ok(admission),
                Step::SendAt(time) => {
                    let admission = turn(time).await;
                    // The host may have refused others meanwhile. This turn is lost then.
                    if !self.is_away() {
                        return Ok(admission);
                    }
                }
                Step::Wait(until) => {
                    // The sender lives as long as this.
                    let _: Result<_, _> = timeout_at(until.into(), changes.changed()).await;
                }
                Step::Fail(cause) => return Err(cause),
            }
        }
    }

    /// As [`admit`](HostHealth::admit), but waits for a short time only.
    pub(crate) async fn admit_within(&self, time: Duration) -> Result<Admission, OutageCause> {
        if let Ok(admitted) = timeout(time, self.admit()).await {
            return admitted;
        }
        match &self.state.lock().outage {
            Some(outage) => Err(outage.cause.clone()),
            // Its rate is so low that another source is faster.
            None => Err(OutageCause {
                reason: "the server takes few requests".into(),
                status: None,
            }),
        }
    }

    /// Returns when the host last answered a request.
    pub(crate) fn last_success(&self) -> Option<Instant> {
        self.state.lock().last_success
    }

    /// Waits for a turn of the host's rate, and does not care whether the host is away.
    pub(crate) async fn take_turn(&self) -> Admission {
        let time = self.state.lock().pace.take_turn(Instant::now());
        turn(time).await
    }

    fn is_away(&self) -> bool {
        self.state.lock().outage.is_some()
    }

    /// Records that the host has answered a request. Releases the requests that wait for the host,
    /// unless this one was sent before the host was away.
    pub(crate) fn record_success(&self, admission: Admission) {
        let mut state = self.state.lock();
        state.last_success = Some(Instant::now());
        state.pace.raise();
        let is_back = |outage: &mut Outage| outage.since <= admission.sent_at;
        if state.outage.take_if(is_back).is_some() {
            drop(state);
            self.changes.send_replace(());
        }
    }

    /// Records that a request has failed that may succeed later.
    pub(crate) fn record_failure(
        &self,
        admission: Admission,
        error: &Error,
        policy: &RetryPolicy,
    ) -> Consequence {
        let mut state = self.state.lock();
        let consequence = state.record_failure(admission, error, policy, Instant::now());
        drop(state);
        // The time of the next probe may be another one.
        self.changes.send_replace(());
        consequence
    }
}

impl Admission {
    fn now() -> Admission {
        Admission {
            sent_at: Instant::now(),
            is_probe: false,
        }
    }
}

/// Waits for a turn of the host's rate.
async fn turn(time: Instant) -> Admission {
    sleep_until(time.into()).await;
    Admission::now()
}

impl State {
    /// Returns the next step of the request with a number.
    fn step(&mut self, number: u64, now: Instant) -> Step {
        let admission = |is_probe| Admission {
            sent_at: now,
            is_probe,
        };
        let Some(outage) = &mut self.outage else {
            let turn = self.pace.take_turn(now);
            return if turn > now {
                Step::SendAt(turn)
            } else {
                Step::Send(admission(false))
            };
        };
        // A request whose probe has failed comes after all others, because only its object may
        // fail.
        let is_first = self.waiting.first().is_none_or(|first| number <= *first);
        if now >= outage.next_probe && !is_first {
            return Step::Wait(now + TURN_POLL);
        }
        if now >= outage.next_probe {
            // The next probe does not wait for the end of this one.
            outage.next_probe = now + PROBE_INTERVAL;
            return Step::Send(admission(true));
        }
        if outage.is_over {
            return Step::Fail(outage.cause.clone());
        }
        Step::Wait(outage.next_probe)
    }

    fn record_failure(
        &mut self,
        admission: Admission,
        error: &Error,
        policy: &RetryPolicy,
        now: Instant,
    ) -> Consequence {
        if error.is_rate_limited() && !admission.is_probe {
            let is_limit = error.status() == Some(TOO_MANY_REQUESTS);
            self.pace.lower(admission.sent_at, now, is_limit);
        }
        let replied_since = self.last_success > Some(admission.sent_at);
        let Some(outage) = &mut self.outage else {
            if replied_since {
                return Consequence::None;
            }
            let pause = policy.probe_pause(1, error);
            self.outage = Some(Outage {
                since: now,
                last_failure: now,
                failures: 1,
                next_probe: now + pause,
                cause: error.into(),
                is_announced: false,
                is_over: false,
            });
            return Consequence::OutageBegins(pause);
        };
        if outage.is_over && now - outage.last_failure > policy.outage_timeout {
            // Nothing was sent for long, so this is another outage.
            (outage.since, outage.failures, outage.is_over) = (now, 0, false);
        }
        outage.last_failure = now;
        outage.cause = error.into();
        if !admission.is_probe {
            // It was sent before the outage began.
            let pause = outage.next_probe.saturating_duration_since(now);
            return Consequence::OutageContinues(pause);
        }
        outage.failures = outage.failures.saturating_add(1);
        let pause = policy.probe_pause(outage.failures, error);
        outage.next_probe = now + pause;
        if now - outage.since >= policy.timeout_of(error) {
            outage.is_over = true;
            return Consequence::GiveUp;
        }
        let is_long = now - outage.since >= ANNOUNCED_AFTER;
        if is_long && !std::mem::replace(&mut outage.is_announced, true) {
            Consequence::OutageLasts(pause)
        } else {
            Consequence::OutageContinues(pause)
        }
    }
}

/// How soon a request looks again whether the first one has sent its probe.
const TURN_POLL: Duration = Duration::from_millis(20);

const TOO_MANY_REQUESTS: u16 = 429;

/// The time after which another probe is sent although the last one has had no reply.
const PROBE_INTERVAL: Duration = Duration::from_secs(1);

/// The length of an outage that the user should know of.
const ANNOUNCED_AFTER: Duration = Duration::from_secs(2);

/// Above this many hosts, hosts without a request in flight are forgotten. A cache can redirect
/// each request to another host.
const HOSTS_MAX: usize = 1000;
