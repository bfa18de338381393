//! Queries of many paths in one source.

use std::sync::mpsc::{RecvTimeoutError, channel};

use floe_format::StorePath;
use floe_transfer::{
    CANCEL_POLL, CachePolicy, Cancel, Error, NarInfoResult, PathSpec, QUERIES_MAX, Source,
};

/// Queries paths, with up to [`QUERIES_MAX`] queries in flight. Calls `receive` for each reply.
///
/// Errors: [`Error::Cancelled`].
pub(crate) fn query_all<'a>(
    source: &dyn Source,
    paths: impl IntoIterator<Item = &'a StorePath>,
    (policy, cancel): (CachePolicy, &Cancel),
    receive: &mut dyn FnMut(StorePath, NarInfoResult),
) -> Result<(), Error> {
    let (sender, replies) = channel();
    let (mut unsent, mut pending) = (paths.into_iter(), 0);
    loop {
        while pending < QUERIES_MAX
            && let Some(path) = unsent.next()
        {
            pending += 1;
            let (sender, path) = (sender.clone(), path.clone());
            let spec = PathSpec::Path(path.clone());
            let reply = Box::new(move |result| {
                // The receiver is gone only after an error.
                let _: Result<(), _> = sender.send((path, result));
            });
            source.query(&spec, policy, reply);
        }
        if pending == 0 {
            return Ok(());
        }
        match replies.recv_timeout(CANCEL_POLL) {
            Ok((path, result)) => {
                pending -= 1;
                receive(path, result);
            }
            Err(RecvTimeoutError::Timeout) if !cancel.is_raised() => {}
            Err(_) => return Err(Error::Cancelled),
        }
    }
}
