//! Texts about single values of the command line. clap, and the parser of nix-serve's options, put
//! the name of the option before them.

use std::time::Duration;

pub(crate) fn not_seconds(text: &str, max: Duration) -> String {
    let max = max.as_secs();
    format!("{text:?} is not a number of seconds; give at most {max}")
}

pub(crate) const ZERO_SECONDS: &str = "the time must be more than 0 seconds";

pub(crate) fn not_bytes(text: &str) -> String {
    format!("{text:?} is not a number of bytes; give one such as 500M or 20G")
}
