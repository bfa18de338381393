//! Other places for a path whose source has failed or lied.

use super::accept::accept;
use super::{Item, Mover};
use crate::error::{Error, ErrorKind};
use crate::path_spec::Root;

/// Whether a failure is one of the source, so that another one may do better.
pub(super) fn may_help(error: &Error) -> bool {
    match error.kind() {
        ErrorKind::Network | ErrorKind::Untrusted => true,
        // A cache in a directory that lacks a NAR.
        ErrorKind::Failed => matches!(error, Error::File { .. }),
        ErrorKind::NoSpace | ErrorKind::Interrupted | ErrorKind::Usage => false,
    }
}

/// Where to look: once more at the source itself, which may say something else than it did when
/// the move began or in an earlier one, and then at all others.
pub(super) fn sources(mover: &Mover<'_>, item: &Item) -> impl Iterator<Item = usize> + use<> {
    let (own, count) = (item.source, mover.sources.list.len());
    std::iter::once(own).chain((0..count).filter(move |source| *source != own))
}

/// The path at one of them, if it has it and can be trusted with it, and it is not what has failed
/// already. It must refer to the same paths, as it was planned for those.
pub(super) fn find(mover: &Mover<'_>, item: &Item, source: usize) -> Option<Item> {
    let path = &item.narinfo.info.path;
    let place = &mover.sources.list[source];
    if !place.is_for(mover.target.store_dir()) {
        return None;
    }
    // Why this source does not help either is worth less than why the first one failed.
    let narinfo = place.lookup(path.hash_part(), &mover.options.cancel);
    let narinfo = narinfo.ok().flatten()?;
    let has_failed = source == item.source && narinfo == item.narinfo;
    let refers_alike = narinfo.info.references == item.narinfo.info.references;
    if has_failed || !refers_alike {
        return None;
    }
    accept(mover, source, &Root::Path(path.clone()), narinfo).ok()
}
