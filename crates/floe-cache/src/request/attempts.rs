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
    /// The attempts that failed since the request last made progress.
    failed: u32,
    failing_since: Option<Instant>,
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
            failed: 0,
            failing_since: None,
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
        let admitted = match self.failed {
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
        self.failed = 1;
        self.failing_since = None;
    }

    /// Records a failure that may not come again, and pauses. The server itself may be the reason
    /// for a longer wait, in the next [`begin`](Attempts::begin).
    ///
    /// Errors: the failure, if it was the last attempt; [`Error::Cancelled`].
    pub(crate) async fn pause_after(&mut self, error: Error) -> Result<(), Error> {
        self.failed += 1;
        let policy = self.policy();
        let consequence = match self.admission {
            Some(admission) => self.health.record_failure(admission, &error, policy),
            None => Consequence::None,
        };
        if !policy.waits_for_outages() {
            if self.failed >= policy.attempts {
                return Err(error);
            }
            return self.pause(policy.pause(self.failed, &error), &error).await;
        }
        let since = *self.failing_since.get_or_insert_with(Instant::now);
        let is_last = self.failed >= policy.attempts;
        let is_long = since.elapsed() >= policy.outage_timeout.min(OBJECT_TIMEOUT);
        if is_last && is_long && self.health.has_replied_since(since) {
            // The server is there, and only this object fails.
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
                return self
                    .pause(policy.probe_pause(self.failed, &error), &error)
                    .await;
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

/// A user who sees nothing for a longer time asks what floe does.
const ANNOUNCED_MIN: Duration = Duration::from_secs(60);

/// How long an object may fail while the server answers other requests, even if it had all its
/// attempts.
const OBJECT_TIMEOUT: Duration = Duration::from_secs(5);
