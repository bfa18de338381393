//! The last lines of `floe install` and `floe copy`.

use std::fmt::Display;
use std::path::Path;
use std::time::Duration;

use floe_copy::CopySummary;
use floe_transfer::Size;

use super::{Elapsed, counted};

/// The work that a copy has done. `present` is the number of paths that were there before.
pub(crate) fn done(
    participle: &str,
    (summary, present): (&CopySummary, u64),
    time: Duration,
    target: impl Display,
) -> String {
    let copied = usize::try_from(summary.copied).unwrap_or(usize::MAX);
    if copied == 0 {
        return nothing_to_do(present);
    }
    let unpacked = Size(summary.nar_bytes);
    let amount = match summary.download_bytes {
        0 => format!("{unpacked} unpacked"),
        bytes => format!("{} fetched, {unpacked} unpacked", Size(bytes)),
    };
    let (paths, time) = (counted(copied, "path"), Elapsed(time));
    format!("{participle} {paths} ({amount}) in {time} into {target}")
}

fn nothing_to_do(present: u64) -> String {
    match present {
        0 => "nothing to do".into(),
        1 => "nothing to do: the path is present".into(),
        paths => format!("nothing to do: all {paths} paths are present"),
    }
}

/// The work that a dry run has found.
pub(crate) fn would_do(participle: &str, summary: &CopySummary, target: impl Display) -> String {
    let nar_bytes = summary.planned.iter().map(|(_, size, _)| size).sum();
    match summary.planned.len() {
        0 => "nothing to do".into(),
        paths => format!(
            "{} ({} unpacked) would be {participle} into {target}",
            counted(paths, "path"),
            Size(nar_bytes)
        ),
    }
}

/// Follows [`done`] in the same line.
pub(crate) const NO_ROOT: &str =
    "; nothing protects them from garbage collection yet (use --out-link or --profile)";

/// A link to a path of a store whose files are elsewhere.
pub(crate) fn dangling_link(link: &Path, place: &Path, options: &str) -> String {
    let (link, place) = (link.display(), place.display());
    format!(
        "{link} names a path whose files are in {place}; run its program by \
         floe run {options}{link}"
    )
}

/// The work that an interrupted copy has done.
pub(crate) fn interrupted(participle: &str, registered: usize, planned: usize) -> String {
    match planned {
        0 => format!("{participle} no paths before the interrupt"),
        _ => format!(
            "{participle} {registered} of {} before the interrupt",
            counted(planned, "path")
        ),
    }
}

pub(crate) fn failed(count: usize) -> String {
    format!("failed to copy {}", counted(count, "path"))
}
