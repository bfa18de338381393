//! The texts about the causes of errors.

use std::collections::BTreeSet;
use std::io;

use floe_format::StorePath;

/// Returns the text of the system's error without its number.
pub(super) fn describe_io(error: &io::Error) -> String {
    let text = error.to_string();
    match text.split_once(" (os error") {
        Some((text, _)) => text.to_owned(),
        None => text,
    }
}

/// Explains why a path is not trusted. The remedy differs if there is no signature, no key for one,
/// or a key that does not fit.
pub(super) fn explain(signed_by: &[String], trusted: &[String]) -> String {
    if signed_by.is_empty() {
        return "it has no signature; try --no-check-sigs if you trust the source completely, or \
                sign the path (nix store sign, or floe copy into a cache with secret-key=FILE)"
            .to_owned();
    }
    if let Some(name) = signed_by.iter().find(|name| trusted.contains(name)) {
        return format!(
            "its signature by {name} does not fit the trusted key {name}: it is another key of \
             this name, or the metadata of the path was changed; compare the key with the one \
             that the operator of the cache publishes"
        );
    }
    let keys = match trusted {
        [] => "no key is trusted".to_owned(),
        names => format!("the trusted keys are {}", names.join(", ")),
    };
    format!(
        "it is signed by {}, {keys}; if you trust its maker, add the key with \
         --extra-trusted-public-keys NAME:KEY, or for good in nix.conf: \
         extra-trusted-public-keys = NAME:KEY",
        signed_by.join(", ")
    )
}

/// Returns the base names of the first paths, and the number of the others.
pub(super) fn list(paths: &BTreeSet<StorePath>) -> String {
    let first: Vec<_> = paths
        .iter()
        .take(LISTED_MAX)
        .map(StorePath::as_str)
        .collect();
    let first = first.join(", ");
    match paths.len().saturating_sub(LISTED_MAX) {
        0 => first,
        others => format!("{first} and {others} more"),
    }
}

/// How many paths an error lists. One narinfo can have thousands of references.
const LISTED_MAX: usize = 20;
