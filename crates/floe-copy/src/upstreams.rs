//! Paths that a cache need not have, because its clients get them from other caches.

use std::collections::BTreeSet;

use floe_format::StorePath;
use floe_transfer::{CachePolicy, Cancel, Error, Source};

use crate::queries::query_all;

/// Returns those of the paths that one of the caches has.
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
        let found = present.len();
        let policy = (CachePolicy::Use, cancel);
        query_all(
            &**upstream,
            unknown.iter().copied(),
            policy,
            &mut |path, result| {
                // The target gets the paths of which a cache says nothing.
                let narinfo = result.ok().and_then(|reply| reply.narinfo);
                if narinfo.is_some_and(|narinfo| narinfo.info.path == path) {
                    present.push(path);
                }
            },
        )?;
        for path in &present[found..] {
            unknown.remove(path);
        }
    }
    Ok(present)
}
