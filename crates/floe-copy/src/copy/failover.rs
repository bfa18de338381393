//! Other places for a path whose source has failed or lied.

use floe_transfer::{Error, ErrorKind, PathSpec, PlannedPath};

use super::ClosureCopy;
use super::trust::check_trust;

/// Whether a failure is one of the source, so that another one may do better.
pub(super) fn is_source_fault(error: &Error) -> bool {
    match error.kind() {
        ErrorKind::Network | ErrorKind::Untrusted => true,
        // A cache in a directory that lacks a NAR.
        ErrorKind::Failed => matches!(error, Error::File { .. }),
        ErrorKind::NoSpace | ErrorKind::Interrupted | ErrorKind::Usage => false,
    }
}

/// Where to look: once more at the source itself, which may say something else than it did when
/// the move began or in an earlier one, and then at all others.
pub(super) fn candidates(
    copy: &ClosureCopy<'_>,
    item: &PlannedPath,
) -> impl Iterator<Item = usize> + use<> {
    let (own, count) = (item.source, copy.sources.list.len());
    std::iter::once(own).chain((0..count).filter(move |source| *source != own))
}

/// The path at one of them, if it has it and can be trusted with it, and it is not what has failed
/// already. It must refer to the same paths, as it was planned for those.
pub(super) fn query_alternative(
    copy: &ClosureCopy<'_>,
    item: &PlannedPath,
    source: usize,
) -> Option<PlannedPath> {
    let path = &item.narinfo.info.path;
    let candidate = &copy.sources.list[source];
    if !candidate.is_for(copy.target.store_dir()) {
        return None;
    }
    // Why this source does not help either is worth less than why the first one failed.
    let narinfo = candidate.query_path_info(path.hash_part(), &copy.options.cancel);
    let narinfo = narinfo.ok().flatten()?;
    let has_failed = source == item.source && narinfo == item.narinfo;
    let has_same_references = narinfo.info.references == item.narinfo.info.references;
    if has_failed || !has_same_references {
        return None;
    }
    check_trust(copy, source, &PathSpec::Path(path.clone()), narinfo).ok()
}
