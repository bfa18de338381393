//! Opens connections: measures how long that takes, and does not wait too long at first.
//!
//! TCP sends the first packet of a connection again after 1, 2, 4, 8… seconds. If the link is back
//! after an outage, such a connection notices it late, and a new one at once. Therefore the first
//! connections of a client have [`FIRST_TIMEOUT`]. If several in a row fail so, the network may
//! just be slow, and the next ones get the time that the user allows.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use floe_transfer::{Event, EventSink as _, Events};
use parking_lot::Mutex;
use tokio::time::timeout;
use tower_layer::Layer;
use tower_service::Service;

/// Wraps the connector of a client.
#[derive(Clone, Debug)]
pub(crate) struct ConnectTimer {
    events: Events,
    /// `None`: each connection gets the time that the user allows.
    timeouts: Option<Arc<Mutex<Timeouts>>>,
}

/// The connections in a row that took longer than [`FIRST_TIMEOUT`]. Those that were opened at the
/// same time count once.
#[derive(Debug, Default)]
struct Timeouts {
    count: u32,
    last: Option<Instant>,
}

impl ConnectTimer {
    /// Makes the timer of a client. `gives_up_early` says whether a request is sent again after
    /// [`FIRST_TIMEOUT`].
    pub(super) fn new(events: &Events, gives_up_early: bool) -> ConnectTimer {
        ConnectTimer {
            events: events.clone(),
            timeouts: gives_up_early.then(Arc::default),
        }
    }
}

/// A connector that reports each open connection.
#[derive(Clone, Debug)]
pub(crate) struct TimedConnector<C> {
    connector: C,
    timer: ConnectTimer,
}

impl<C> Layer<C> for ConnectTimer {
    type Service = TimedConnector<C>;

    fn layer(&self, connector: C) -> TimedConnector<C> {
        TimedConnector {
            connector,
            timer: self.clone(),
        }
    }
}

type BoxError = Box<dyn std::error::Error + Send + Sync>;

impl<C, R> Service<R> for TimedConnector<C>
where
    C: Service<R>,
    C::Future: Send + 'static,
    C::Response: 'static,
    C::Error: Into<BoxError> + 'static,
{
    type Response = C::Response;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<C::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.connector.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, request: R) -> Self::Future {
        let (began, timer) = (Instant::now(), self.timer.clone());
        let connecting = self.connector.call(request);
        Box::pin(async move {
            let connection = timer.within_limit(connecting).await?;
            let time = began.elapsed();
            timer.events.event(Event::Connected { time });
            Ok(connection)
        })
    }
}

impl ConnectTimer {
    async fn within_limit<T, E: Into<BoxError>>(
        &self,
        connecting: impl Future<Output = Result<T, E>>,
    ) -> Result<T, BoxError> {
        let may_be_slow = |timeouts: &&Arc<Mutex<Timeouts>>| timeouts.lock().may_be_slow();
        let Some(timeouts) = self.timeouts.as_ref().filter(|it| !may_be_slow(it)) else {
            return connecting.await.map_err(Into::into);
        };
        let began = Instant::now();
        let Ok(connected) = timeout(FIRST_TIMEOUT, connecting).await else {
            timeouts.lock().record(began);
            return Err(io::Error::new(io::ErrorKind::TimedOut, NO_CONNECTION).into());
        };
        if connected.is_ok() {
            *timeouts.lock() = Timeouts::default();
        }
        connected.map_err(Into::into)
    }
}

impl Timeouts {
    /// Records that a connection that began at a time has taken too long.
    fn record(&mut self, began: Instant) {
        if self.last.is_none_or(|last| began >= last) {
            self.count += 1;
            self.last = Some(Instant::now());
        }
    }

    fn may_be_slow(&self) -> bool {
        self.count >= TIMEOUTS_MAX
    }
}

/// The time of a first connection: far above the round trips of a slow network, with TLS.
const FIRST_TIMEOUT: Duration = Duration::from_secs(4);

/// After this many connections in a row that took too long, the network may be slow. Until then a
/// link may be away for half a minute.
const TIMEOUTS_MAX: u32 = 8;

const NO_CONNECTION: &str = "no connection within 4 seconds";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_of_one_moment_count_once() {
        let mut timeouts = Timeouts::default();
        for round in 1..=TIMEOUTS_MAX {
            assert!(!timeouts.may_be_slow(), "after {round} rounds");
            let began = Instant::now();
            (0..25).for_each(|_| timeouts.record(began));
            assert_eq!(timeouts.count, round);
        }
        assert!(timeouts.may_be_slow());
    }
}
