//! The attempts of one request: when it is sent, and when it has failed.
//!
//! By default a request waits for a server that is away, together with all other requests to it
//! (see [`HostHealth`]). If the user has set a number of attempts, that number counts alone.

use std::sync::Arc;
use std::time::{Duration, Instant};

use floe_transfer::{Error, Event, EventSink as _, RetryPolicy, ServerWait};
use tokio::time::sleep;

use super::Request;
use super::client::CacheClient;
use crate::network::cancellation::Cancellation;
use crate::network::host_health::{Admission, Consequence, HostHealth, OutageCause};

/// The attempts of one request.
#[derive(Debug)]
pub(crate) struct Attempts<'a> {
    client: &'a CacheClient,
    health: Arc<HostHealth>,
    /// The URL without credentials.
    shown: String,
    failures: Failures,
    /// The permission of the last attempt.
    admission: Option<Admission>,
}

impl<'a> Attempts<'a> {
    pub(crate) fn new(client: &'a CacheClient, request: &Request) -> Attempts<'a> {
        let is_write = request.message.is_write();
        Attempts {
            client,
            health: client
                .network
                .host_healths
                .of(&request.target.url, is_write),
            shown: request.shown(),
            failures: Failures::default(),
            admission: None,
        }
    }

    fn cancellation(&self) -> &'a Cancellation {
        &self.client.network.cancellation
    }

    fn policy(&self) -> &'a RetryPolicy {
        &self.client.options.retry
    }

    /// Waits until the request may be sent.
    ///
    /// Errors: [`Error::Fetch`] if the server is away for too long; [`Error::Cancelled`].
    pub(crate) async fn begin(&mut self) -> Result<Admission, Error> {
        let admit = async {
            if self.policy().waits_for_outages() {
                self.health.admit().await
            } else {
                Ok(self.health.take_turn().await)
            }
        };
        let admitted = match self.failures.count {
            // A first attempt may be the last write of a path, or delete the parts of an upload.
            // `exchange` ends it after a moment.
            0 => admit.await,
            _ => self.cancellation().or_end(admit).await?,
        };
        self.admitted(admitted)
    }

    /// As [`begin`](Attempts::begin), but waits only for a time for a server that is away, because
    /// another source may be there.
    pub(crate) async fn begin_within(&mut self, time: Duration) -> Result<Admission, Error> {
        let admitted = if self.policy().waits_for_outages() {
            self.health.admit_within(time).await
        } else {
            Ok(self.health.take_turn().await)
        };
        self.admitted(admitted)
    }

    fn admitted(&mut self, admitted: Result<Admission, OutageCause>) -> Result<Admission, Error> {
        let admission = admitted.map_err(|cause| Error::Fetch {
            url: self.shown.clone(),
            reason: cause.reason,
            // Other attempts would have to wait for as long.
            transient: false,
            status: cause.status,
            retry_after: None,
        })?;
        self.admission = Some(admission);
        Ok(admission)
    }

    /// Records that the request is sent now, after it has waited for a connection.
    pub(crate) fn sending(&mut self) {
        if let Some(admission) = &mut self.admission {
            admission.sent_at = Instant::now();
        }
    }

    /// Records a result that is final: also an error shows that the server is there, if it has a
    /// status.
    pub(crate) fn settled<T>(&self, result: &Result<T, Error>) {
        match result {
            Ok(_) => self.replied(),
            Err(error) if error.status().is_some() && !error.is_transient() => self.replied(),
            Err(_) => {}
        }
    }

    /// Records that the server has answered.
    pub(crate) fn replied(&self) {
        if let Some(admission) = self.admission {
            self.health.record_success(admission);
        }
    }

    /// Records that an attempt has made progress before it failed, so that only this one counts.
    pub(crate) fn record_progress(&mut self) {
        self.failures = Failures {
            count: 1,
            ..Failures::default()
        };
    }

    /// Records a failure that may not come again, and pauses. The server itself may be the reason
    /// for a longer wait, in the next [`begin`](Attempts::begin).
    ///
    /// Errors: the failure, if it was the last attempt; [`Error::Cancelled`].
    pub(crate) async fn pause_after(&mut self, error: Error) -> Result<(), Error> {
        let policy = self.policy();
        let last_reply = self.health.last_success();
        self.failures.record(Instant::now(), last_reply);
        let failed = self.failures.count;
        let consequence = match self.admission {
            Some(admission) => self.health.record_failure(admission, &error, policy),
            None => Consequence::None,
        };
        if !policy.waits_for_outages() {
            if failed >= policy.attempts {
                return Err(error);
            }
            return self.pause(policy.pause(failed, &error), &error).await;
        }
        if self.failures.concern_one_object(policy) {
            return Err(error);
        }
        match consequence {
            Consequence::GiveUp => return Err(error),
            Consequence::OutageBegins(pause) => {
                self.client.network.report_retry(&error);
                self.announce(pause, &error);
            }
            Consequence::OutageContinues(pause) => self.announce(pause, &error),
            Consequence::OutageLasts(pause) if pause <= ANNOUNCED_MIN => {
                let event = Event::WaitingForServer {
                    server: &self.health.name,
                    wait: ServerWait::AtMost(policy.timeout_of(&error)),
                    error: &error,
                };
                self.client.network.events.event(event);
            }
            Consequence::OutageLasts(pause) => self.announce(pause, &error),
            Consequence::None => {
                return self.pause(policy.probe_pause(failed, &error), &error).await;
            }
        }
        if let Some(demanded) = error.retry_after() {
            // Other requests may show before that the server is back.
            self.cancellation().or_end(sleep(demanded)).await?;
        }
        Ok(())
    }

    /// Records the failure of a request that is not sent again, if the server may be its reason.
    pub(crate) fn record_if_transient(&self, error: &Error) {
        if let Some(admission) = self.admission.filter(|_| error.is_transient()) {
            self.health.record_failure(admission, error, self.policy());
        }
    }

    async fn pause(&self, time: Duration, error: &Error) -> Result<(), Error> {
        self.client.network.report_retry(error);
        self.announce(time, error);
        self.cancellation().or_end(sleep(time)).await
    }

    /// Tells the user of a long pause.
    fn announce(&self, pause: Duration, error: &Error) {
        if pause > ANNOUNCED_MIN {
            self.client.network.events.event(Event::WaitingForServer {
                server: &self.health.name,
                wait: ServerWait::Demanded(pause),
                error,
            });
        }
    }
}

/// The failures of a request since it last made progress.
#[derive(Debug, Default)]
struct Failures {
    count: u32,
    since: Option<Instant>,
    last: Option<Instant>,
    /// The failures before which the server has replied to other requests since the last one.
    beside_replies: u32,
}

impl Failures {
    /// Records a failure. `last_reply` is the time of the server's last reply to any request.
    fn record(&mut self, now: Instant, last_reply: Option<Instant>) {
        self.count += 1;
        self.since.get_or_insert(now);
        let last = self.last.replace(now);
        if last.is_some() && last_reply > last {
            self.beside_replies += 1;
        }
    }

    /// Whether the server is there, and only this object fails, after all its attempts. A few
    /// replies prove nothing: a server may go away and come back meanwhile.
    fn concern_one_object(&self, policy: &RetryPolicy) -> bool {
        let enough = policy.attempts.saturating_sub(1).max(1);
        let time = policy.outage_timeout.min(OBJECT_TIMEOUT);
        let is_long = self.since.is_some_and(|since| since.elapsed() >= time);
        self.count >= policy.attempts && self.beside_replies >= enough && is_long
    }
}

/// A user who sees nothing for a longer time asks what floe does.
const ANNOUNCED_MIN: Duration = Duration::from_secs(60);

/// How long an object may fail while the server answers other requests, even if it had all its
/// attempts.
const OBJECT_TIMEOUT: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// Records failures of one second each, which began ten seconds ago. `has_replied` tells
    /// whether the server has replied to others before a failure.
    fn failures(count: u32, has_replied: impl Fn(u32) -> bool) -> Failures {
        let began = Instant::now() - 10 * SECOND;
        let mut failures = Failures::default();
        let mut last_reply = None;
        for number in 0..count {
            let now = began + number * SECOND;
            if has_replied(number) {
                last_reply = Some(now - SECOND / 2);
            }
            failures.record(now, last_reply);
        }
        failures
    }

    #[test]
    fn reply_beside_the_first_failure_does_not_blame_the_object() {
        let policy = RetryPolicy::default();
        let outage = failures(10, |number| number == 1);
        assert!(!outage.concern_one_object(&policy));
        let object = failures(policy.attempts, |_| true);
        assert!(object.concern_one_object(&policy));
        let few = failures(policy.attempts - 1, |_| true);
        assert!(!few.concern_one_object(&policy));
    }
}
