//! Single values on the command line.

use std::num::NonZeroUsize;
use std::str::FromStr;
use std::time::Duration;

use floe_config::{ByteSize, Value, seconds};

use crate::exit::UsageError;

/// Parses a number above 0.
pub(crate) fn parse_count(text: &str) -> Result<NonZeroUsize, UsageError> {
    parse_value(text)
}

/// Parses an amount of bytes, such as 10G.
pub(crate) fn parse_bytes(text: &str) -> Result<ByteSize, UsageError> {
    parse_value(text)
}

/// Parses a timeout: a number of seconds above 0, with or without a fraction.
pub(crate) fn parse_timeout(text: &str) -> Result<Duration, UsageError> {
    parse_value(text)
}

/// Parses a number of seconds, which may be 0.
pub(crate) fn parse_seconds(text: &str) -> Result<Duration, UsageError> {
    let time = text.parse().ok().and_then(seconds);
    time.ok_or_else(|| UsageError(Duration::refusal(text)))
}

/// Parses a number that fits into the type.
pub(crate) fn parse_number<T: FromStr>(text: &str) -> Result<T, UsageError> {
    text.parse()
        .map_err(|_| UsageError("it is not a whole number".into()))
}

fn parse_value<T: Value>(text: &str) -> Result<T, UsageError> {
    T::parse(text.as_bytes()).ok_or_else(|| UsageError(T::refusal(text)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_may_have_a_fraction_but_no_sign() {
        assert_eq!(parse_seconds("2.5").unwrap(), Duration::from_millis(2500));
        assert_eq!(parse_seconds("0").unwrap(), Duration::ZERO);
        for text in ["-1", "x", "", "NaN", "inf", "1e300"] {
            assert!(parse_seconds(text).is_err(), "{text}");
        }
        assert!(parse_timeout("0").is_err());
    }
}
