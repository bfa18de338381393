//! Pins: signed names in a binary cache. docs/formats.md describes them.

mod check;
mod publish;
mod query;
mod seen;

use std::fmt;
use std::time::Duration;

use floe_format::TrustedKeys;
use floe_format::pin::{PIN_GENERATIONS_FOLDER, PINS_FOLDER};
use floe_transfer::url::{parse_url, redact_credentials};

use crate::cache_file::now;
pub use check::{PinRefusal, check_pin};
pub use publish::{NewPin, PinError, Pinned, expected_version, parse_info, pin, unpin};
pub(crate) use query::{query, seen_reply};
pub use seen::{SeenPin, SeenPins};

/// The cache of a source of pins: `pins+https://…`, `pins+s3://…` or `pins+file:///…`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PinsUri {
    /// The URI of the cache.
    pub cache: String,
    /// Whether the user has named the cache as the source of a copy, and not as a name source. Then
    /// it need not have pins.
    pub is_implicit: bool,
}

impl PinsUri {
    /// Parses the text after `pins+`.
    ///
    /// Errors: the text says which part is wrong.
    pub(crate) fn parse(text: &str) -> Result<PinsUri, String> {
        let scheme = text.split_once("://").map_or("", |(scheme, _)| scheme);
        if !["http", "https", "s3", "file"].contains(&scheme) {
            return Err("pins+ takes the URL of a binary cache, such as pins+https://HOST".into());
        }
        Ok(PinsUri {
            cache: text.to_owned(),
            is_implicit: false,
        })
    }

    /// Returns the pins of a cache that the user has named as the source of a copy; `None` for
    /// another store.
    pub fn of_cache(cache: &str) -> Option<PinsUri> {
        let uri = PinsUri::parse(cache).ok()?;
        Some(PinsUri {
            is_implicit: true,
            ..uri
        })
    }

    /// Returns the URI of the cache without credentials, by which its pins are remembered. Another
    /// spelling of the host and the port is the same cache.
    pub fn shown(&self) -> String {
        let shown = redact_credentials(&self.cache);
        let (address, parameters) = shown.split_once('?').unwrap_or((&shown, ""));
        let address = parse_url(address).map_or_else(|_| address.to_owned(), |url| url.to_string());
        let address = address.trim_end_matches('/');
        // Of the parameters, only the server makes another cache.
        let mut parameters = parameters.split('&');
        match parameters.find(|parameter| parameter.starts_with("endpoint=")) {
            Some(endpoint) => format!("{address}?{endpoint}"),
            None => address.to_owned(),
        }
    }
}

impl fmt::Display for PinsUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pins+{}", redact_credentials(&self.cache))
    }
}

/// The demands on pins.
#[derive(Clone, Debug, Default)]
pub struct PinPolicy {
    /// The keys that may sign pins.
    pub keys: TrustedKeys,
    /// The greatest age of a pin, if there is a limit.
    pub max_age: Option<Duration>,
    /// Whether a pin may have a lower serial number than one that was seen.
    pub allows_downgrade: bool,
    /// Whether the pin that was seen last is used if the cache does not reply.
    pub uses_seen: bool,
}

impl PinPolicy {
    /// Returns the age of a pin and the greatest age in seconds if the pin is too old.
    pub(crate) fn excess_age(&self, time: u64) -> Option<(u64, u64)> {
        let age = now().saturating_sub(time);
        let max = self.max_age?.as_secs();
        (age > max).then_some((age, max))
    }
}

/// Returns the name of the object of a pin.
pub fn pin_object(name: &str) -> String {
    format!("{PINS_FOLDER}{name}")
}

/// Returns the name of the object that records a generation of a pin.
pub fn generation_object(name: &str, serial: u64) -> String {
    format!("{PIN_GENERATIONS_FOLDER}{name}@{serial}")
}

/// The object with the identifier of the cache.
pub const PINS_INFO: &str = "pins-info";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pins_are_remembered_by_the_address_of_their_cache() {
        for (text, shown) in [
            ("https://H.example:443/x/?priority=1", "https://h.example/x"),
            ("https://user:word@h.example", "https://h.example"),
            ("file:///a/./b/", "file:///a/b"),
            ("s3://bucket/p?region=eu&profile=x", "s3://bucket/p"),
            (
                "s3://bucket?region=eu&endpoint=minio:9000&scheme=http",
                "s3://bucket?endpoint=minio:9000",
            ),
        ] {
            assert_eq!(PinsUri::parse(text).unwrap().shown(), shown);
        }
    }
}
