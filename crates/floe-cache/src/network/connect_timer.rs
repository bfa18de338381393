//! Measures how long connections take to open.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Instant;

use floe_transfer::{Event, EventSink as _, Events};
use tower_layer::Layer;
use tower_service::Service;

/// Wraps the connector of a client.
#[derive(Clone, Debug)]
pub(crate) struct ConnectTimer(pub(super) Events);

/// A connector that reports each open connection.
#[derive(Clone, Debug)]
pub(crate) struct TimedConnector<C> {
    connector: C,
    events: Events,
}

impl<C> Layer<C> for ConnectTimer {
    type Service = TimedConnector<C>;

    fn layer(&self, connector: C) -> TimedConnector<C> {
        TimedConnector {
            connector,
            events: self.0.clone(),
        }
    }
}

impl<C, R> Service<R> for TimedConnector<C>
where
    C: Service<R>,
    C::Future: Send + 'static,
    C::Response: 'static,
    C::Error: 'static,
{
    type Response = C::Response;
    type Error = C::Error;
    type Future = Pin<Box<dyn Future<Output = Result<C::Response, C::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), C::Error>> {
        self.connector.poll_ready(context)
    }

    fn call(&mut self, request: R) -> Self::Future {
        let (began, events) = (Instant::now(), self.events.clone());
        let connecting = self.connector.call(request);
        Box::pin(async move {
            let connection = connecting.await?;
            let time = began.elapsed();
            events.event(Event::Connected { time });
            Ok(connection)
        })
    }
}
