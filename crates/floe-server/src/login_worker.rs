//! The thread that verifies passwords, so that network threads never wait for a hash.
//!
//! There is one thread, whatever the number of cores: clients with wrong passwords can occupy this
//! thread, and nothing else.

use crate::auth::connection_login::Verdict;
use crate::net::login_queue::LoginQueue;
use crate::net::shared::ServerShared;

/// Verifies passwords until the server stops.
pub(crate) fn work(shared: &ServerShared, queue: &LoginQueue) {
    let logins = queue.logins();
    while let Some(check) = queue.next() {
        let verdict = shared.context.catch_panic(|| logins.verify(&check));
        let Some(attempt) = queue.finish() else {
            continue;
        };
        if let Some(Verdict::Accepted(..)) = verdict {
            logins.take_back(attempt.from);
        }
        for mut job in attempt.waiting {
            if let Some(verdict) = &verdict {
                job.connection.set_verdict(verdict.clone());
            }
            shared.return_connection(job, verdict.is_some());
        }
    }
}
