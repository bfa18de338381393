//! The cancellation of a session, as tasks on the network threads see it.
//!
//! Requests that read simply end, because no worker waits for them any more. A request that writes
//! may be the last one of a path, and usually takes a moment. So it goes on for a short time, and a
//! second attempt never begins.

use std::time::{Duration, Instant};

use floe_transfer::{CANCEL_POLL, Cancel, Error};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::{sleep, sleep_until};

/// When the session was cancelled, if it was.
#[derive(Clone, Debug)]
pub(crate) struct Cancellation(watch::Receiver<Option<Instant>>);

impl Cancellation {
    /// Watches the flag of a session, on a network thread.
    pub(crate) fn watch(cancel: &Cancel, network: &Handle) -> Cancellation {
        let (sender, receiver) = watch::channel(None);
        let cancel = cancel.clone();
        network.spawn(async move {
            while !cancel.is_raised() {
                sleep(CANCEL_POLL).await;
            }
            sender.send_replace(Some(Instant::now()));
            // The receivers would take the end of the task for a cancellation.
            sender.closed().await;
        });
        Cancellation(receiver)
    }

    /// Runs a future until it ends or the session is cancelled.
    ///
    /// Errors: [`Error::Cancelled`].
    pub(crate) async fn or_end<T>(&self, future: impl Future<Output = T>) -> Result<T, Error> {
        self.or_end_after(Duration::ZERO, future).await
    }

    /// Runs a future until it ends or some time after the session was cancelled.
    ///
    /// Errors: [`Error::Cancelled`].
    pub(crate) async fn or_end_after<T>(
        &self,
        grace: Duration,
        future: impl Future<Output = T>,
    ) -> Result<T, Error> {
        tokio::select! {
            biased;
            ended = future => Ok(ended),
            () = self.wait(grace) => Err(Error::Cancelled),
        }
    }

    async fn wait(&self, grace: Duration) {
        let mut receiver = self.0.clone();
        let since = match receiver.wait_for(Option::is_some).await {
            Ok(since) => *since,
            // The network threads end, and this task with it.
            Err(_) => None,
        };
        if let Some(since) = since {
            sleep_until((since + grace).into()).await;
        } else {
            std::future::pending().await
        }
    }
}

/// How long a request that writes may go on after a cancellation.
pub(crate) const WRITE_GRACE: Duration = Duration::from_secs(1);

/// The same for a request that deletes what would stay half-written otherwise.
pub(crate) const DELETE_GRACE: Duration = Duration::from_millis(1700);

#[cfg(test)]
mod tests {
    use super::*;

    fn block_on<T>(future: impl Future<Output = T>) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build();
        runtime.unwrap().block_on(future)
    }

    #[test]
    fn cancellation_ends_waits_after_their_grace() {
        block_on(async {
            let cancel = Cancel::default();
            let cancellation = Cancellation::watch(&cancel, &Handle::current());
            assert_eq!(cancellation.or_end(async { 1 }).await.unwrap(), 1);
            let began = Instant::now();
            cancel.raise();
            let forever = std::future::pending::<()>;
            let ended = cancellation.or_end(forever()).await;
            assert!(matches!(ended, Err(Error::Cancelled)));
            // A future that ends within the grace keeps its result.
            let grace = Duration::from_secs(60);
            let short = sleep(Duration::from_millis(1));
            cancellation.or_end_after(grace, short).await.unwrap();
            let grace = Duration::from_millis(300);
            let ended = cancellation.or_end_after(grace, forever()).await;
            assert!(matches!(ended, Err(Error::Cancelled)));
            assert!(began.elapsed() >= grace);
        });
    }
}
