//! Paths that a cache need not have, because its clients get them from other caches.

use std::collections::BTreeSet;
use std::sync::mpsc::{RecvTimeoutError, channel};

use floe_format::StorePath;
use floe_transfer::{CANCEL_POLL, CachePolicy, Cancel, Error, PathSpec, Source};

/// Returns those of the paths that one of the caches has. All queries to a cache are in flight at
/// once, as far as it takes them.
///
/// Errors: [`Error::Cancelled`].
pub(crate) fn present_in(
    upstreams: &[std::sync::Arc<dyn Source>],
    paths: &[StorePath],
    cancel: &Cancel,
) -> Result<Vec<StorePath>, Error> {
    let mut unknown: BTreeSet<&StorePath> = paths.iter().collect();
    let mut present = Vec::new();
    for upstream in upstreams {
        let (sender, replies) = channel();
        for path in &unknown {
            let (sender, path) = (sender.clone(), (*path).clone());
            let spec = PathSpec::Path(path.clone());
            let reply = Box::new(move |result| {
                // The receiver is gone only after an error.
                let _: Result<(), _> = sender.send((path, result));
            });
            upstream.query(&spec, CachePolicy::Use, reply);
        }
        let mut pending = unknown.len();
        while pending > 0 {
            let (path, result) = match replies.recv_timeout(CANCEL_POLL) {
                Ok(replied) => replied,
                Err(RecvTimeoutError::Timeout) if !cancel.is_raised() => continue,
                Err(_) => return Err(Error::Cancelled),
            };
            pending -= 1;
            // The target gets the paths of which a cache says nothing.
            let narinfo = result.ok().and_then(|reply| reply.narinfo);
            if narinfo.is_some_and(|narinfo| narinfo.info.path == path) {
                unknown.remove(&path);
                present.push(path);
            }
        }
    }
    Ok(present)
}
