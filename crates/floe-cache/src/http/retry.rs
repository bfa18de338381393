//! Repeats a request that failed for a reason that may pass.

use floe_transfer::{Error, NetworkEvents, backoff_delay};
use tokio::time::sleep;

/// How often a request is repeated, and who is told.
#[derive(Clone, Copy, Debug)]
pub(super) struct Retry<'a> {
    /// How many attempts a request gets in all.
    pub(super) attempts: u32,
    pub(super) events: &'a NetworkEvents,
}

impl Retry<'_> {
    /// Wraps a request: runs it until it succeeds, fails for good, or has had all its attempts.
    pub(super) async fn run<T, F>(&self, mut request: impl FnMut() -> F) -> Result<T, Error>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let mut attempt = 1;
        loop {
            match request().await {
                Err(error) if error.is_transient() && attempt < self.attempts => {
                    self.events.retrying(&error);
                    sleep(backoff_delay(attempt, &error)).await;
                    attempt += 1;
                }
                result => return result,
            }
        }
    }
}
