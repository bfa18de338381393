//! What is said of a move, in words for people.

use std::path::Path;

use floe_engine::{CopySummary, Error, Shortage};
use floe_format::StorePath;
use indicatif::HumanBytes;

/// What came of `--reuse`, and of what a run had left that ended early.
pub(crate) fn reuse_summary(outcome: &CopySummary) -> String {
    let things = if outcome.reused == 1 { "path" } else { "paths" };
    format!(
        "{} {things} taken from this machine, {} unpacked, instead of being fetched",
        outcome.reused,
        HumanBytes(outcome.reused_nar_bytes)
    )
}

/// What an interrupted move has not fetched in vain.
pub(crate) fn kept_for_resume(paths: usize) -> String {
    let (things, them) = match paths {
        1 => ("path has", "it"),
        _ => ("paths have", "them"),
    };
    format!(
        "{paths} {things} come and cannot be valid yet: the next run that wants {them} takes {them}"
    )
}

/// Why a path is not taken from a store that has it.
pub(crate) fn not_reused(path: &StorePath, place: &Path, error: &Error) -> String {
    let place = place.display();
    format!("{path} is not taken from {place}, but brought from elsewhere: {error}")
}

/// What a user should know of damage that this move has found.
pub(crate) fn damaged_link(path: &StorePath, link: &str) -> String {
    format!(
        "a file of {path} is whole, but .links/{link} was not and was replaced; \
         `floe verify` finds the paths that have the same damage"
    )
}

/// What is said of too little room, where the work goes on.
pub(crate) fn low_space(shortage: &Shortage) -> String {
    match shortage.is_certain {
        true => format!("{shortage}; it cannot fit"),
        false => format!("{shortage}; it may not fit"),
    }
}

pub(crate) fn retrying(path: Option<&StorePath>, error: &Error) -> String {
    match path {
        Some(path) => format!("retrying {path}: {error}"),
        None => format!("retrying: {error}"),
    }
}

/// For what this process waits that another one has.
pub(crate) fn waiting_for_resource(what: &str) -> String {
    format!("floe: waiting for {what}")
}

pub(crate) fn waiting_for_lock(path: &StorePath) -> String {
    format!("waiting for whoever has locked {path}")
}

pub(crate) fn plan(paths: usize, nar_bytes: u64, download_bytes: u64) -> String {
    let unpacked = HumanBytes(nar_bytes);
    let things = if paths == 1 { "path" } else { "paths" };
    match download_bytes {
        0 => format!("moving {paths} {things}, {unpacked} unpacked"),
        bytes => format!(
            "moving {paths} {things}: {} to fetch, {unpacked} unpacked",
            HumanBytes(bytes)
        ),
    }
}
