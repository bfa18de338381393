//! Repeats a request that failed for a reason that may pass.

use floe_transfer::{Error, backoff_delay};
use tokio::time::sleep;

use crate::options::NetworkOptions;

/// Wraps a request: runs it until it succeeds, fails for good, or has had all its attempts.
pub(super) async fn retry<T, F>(
    options: &NetworkOptions,
    mut request: impl FnMut() -> F,
) -> Result<T, Error>
where
    F: Future<Output = Result<T, Error>>,
{
    let mut attempt = 1;
    loop {
        match request().await {
            Err(error) if error.is_transient() && attempt < options.attempts => {
                options.events.retrying(&error);
                sleep(backoff_delay(attempt, &error)).await;
                attempt += 1;
            }
            result => return result,
        }
    }
}
