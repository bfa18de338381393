//! Failover: fetching a path from another source after an error.

use std::time::Duration;

use floe_transfer::{Error, ErrorKind, PathSpec, PlannedPath};

use super::ClosureCopy;
use super::trust::check_trust;

/// Whether the source caused a failure, so that another source may have the path.
pub(super) fn is_source_fault(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Network | ErrorKind::Untrusted)
}

/// Returns the path as a source offers it, if it passes the trust check and is not the narinfo
/// that has failed. Its references must be those of the plan, because the plan already contains
/// what they need and the commit waits for them.
pub(super) fn query_alternative(
    copy: &ClosureCopy<'_>,
    item: &PlannedPath,
    source: usize,
    timeout: Option<Duration>,
) -> Option<PlannedPath> {
    let path = &item.narinfo.info.path;
    let candidate = &copy.sources.list[source];
    if !candidate.is_for(copy.target.store_dir()) {
        return None;
    }
    // The user sees the error of the first source, so the cause here is dropped.
    let narinfo = candidate.query_path_info_within(timeout, path.hash_part(), &copy.options.cancel);
    let narinfo = narinfo.ok().flatten()?;
    let has_failed = source == item.source && narinfo == item.narinfo;
    let has_same_references = narinfo.info.references == item.narinfo.info.references;
    if has_failed || !has_same_references {
        return None;
    }
    check_trust(copy, source, &PathSpec::Path(path.clone()), narinfo).ok()
}
