//! Repeats a request for a small object that failed for a reason that may pass.
//!
//! `download` resumes the body of a large NAR, and the workers of floe-copy repeat a whole NAR. All
//! three use the same delay.

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
