//! The texts of `floe bench`.

use std::fmt::Display;
use std::path::Path;

use floe_transfer::Size;

pub(crate) const NO_ITERATIONS: &str = "cannot use --iters 0: it would measure nothing";

pub(crate) const INTERRUPTED: &str = "floe: interrupted; kept the measurements so far";

pub(crate) fn invalid_variant(text: &str, cause: impl Display) -> String {
    format!("cannot use --variant {text}: {cause}")
}

pub(crate) const NAME_TAKEN: &str = "another variant has this name";
pub(crate) const NO_NAME: &str = "it has no name";
pub(crate) const NOT_A_VARIANT: &str = "write NAME='COMMAND …', `nix` or `floe`";

pub(crate) fn mixed_signature_checks(checking: &str, trusting: &str) -> String {
    format!(
        "cannot compare the variants: `{checking}` checks signatures and `{trusting}` does not; \
         give both the same setting (--no-check-sigs, or trusted keys for all)"
    )
}

pub(crate) fn invalid_scenario(text: &str) -> String {
    format!(
        "cannot use --scenario {text}: write local-tmpfs, local-disk, cache-tmpfs=URL or \
         cache-disk=URL; local ones may name a store, as in local-disk=STORE"
    )
}

pub(crate) fn source(from: &str) -> String {
    format!("cannot open the source {from}")
}

pub(crate) fn directory_in(parent: &Path) -> String {
    format!("cannot create a directory in {}", parent.display())
}

pub(crate) fn report_file(file: &Path) -> String {
    format!("cannot write {}", file.display())
}

pub(crate) fn not_in_memory(directory: &str, medium: impl Display) -> String {
    format!("cannot use {directory}: it is on {medium}; give a directory in memory")
}

pub(crate) fn not_on_disk(directory: &str, medium: impl Display) -> String {
    format!("cannot use {directory}: it is on {medium}; give a directory on a disk")
}

pub(crate) fn no_journal(directory: &str, medium: impl Display) -> String {
    format!(
        "cannot use {directory}: it is on {medium}, where writing after a removal costs many \
         times what it costs with a journal; give a directory elsewhere, such as on an image made \
         with mkfs.ext4 and mounted with -o loop"
    )
}

pub(crate) fn unknown_medium(directory: &str, medium: impl Display) -> String {
    format!("floe: {directory} is on {medium}")
}

pub(crate) fn low_space(directory: &Path, free: u64, needed: u64) -> String {
    format!(
        "floe: {} has {} free, and the closure needs about {}",
        directory.display(),
        Size(free),
        Size(needed)
    )
}

pub(crate) fn skipped_perf(cause: &str) -> String {
    format!("floe: skipping perf: {cause}")
}

// The check of a result

pub(crate) fn not_valid(path: &str) -> String {
    format!("{path} is not valid")
}

pub(crate) fn other_nar(path: &str) -> String {
    format!("{path} has another NAR hash or size")
}

pub(crate) fn not_on_file_system(path: &str) -> String {
    format!("{path} is not on disk")
}

pub(crate) fn problems(count: usize) -> String {
    format!("floe verify finds {count} problems in it")
}
