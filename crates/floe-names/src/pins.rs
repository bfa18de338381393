//! Pins: signed names in a binary cache. docs/formats.md describes them.

mod check;
mod publish;
mod query;
mod seen;

use std::fmt;
use std::time::Duration;

use floe_format::TrustedKeys;
use floe_transfer::url::redact_credentials;

pub use check::{PinRefusal, check_pin};
pub use publish::{NewPin, PinError, pin, unpin};
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

    /// Returns the URI of the cache without credentials, by which its pins are remembered.
    pub(crate) fn shown(&self) -> String {
        let shown = redact_credentials(&self.cache);
        // Parameters do not make another cache.
        let shown = shown.split('?').next().unwrap_or(&shown);
        shown.trim_end_matches('/').to_owned()
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
}

/// Returns the name of the object of a pin.
pub fn pin_object(name: &str) -> String {
    format!("pins/{name}")
}

/// The object with the identifier of the cache.
pub const PINS_INFO: &str = "pins-info";
