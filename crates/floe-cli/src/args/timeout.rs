//! Timeouts on the command line.

use std::time::Duration;

use floe_config::{TIMEOUT_MAX, seconds};

use crate::exit::UsageError;
use crate::messages::arguments;

/// Parses a number of seconds, with or without a fraction.
pub(crate) fn parse_seconds(text: &str) -> Result<Duration, UsageError> {
    let number = text.parse().ok().and_then(seconds);
    number.ok_or_else(|| UsageError(arguments::not_seconds(text, TIMEOUT_MAX)))
}

/// Parses a timeout: a number of seconds above 0.
pub(crate) fn parse_timeout(text: &str) -> Result<Duration, UsageError> {
    match parse_seconds(text)? {
        Duration::ZERO => Err(UsageError(arguments::ZERO_SECONDS.into())),
        time => Ok(time),
    }
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
