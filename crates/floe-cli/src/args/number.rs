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

/// Parses a number of bytes to free, such as `10G`. A negative number is 0, as for Nix: scripts
/// subtract the free space.
pub(crate) fn parse_freed(text: &str) -> Result<ByteSize, UsageError> {
    match text.strip_prefix('-') {
        Some(digits) if digits.parse::<u64>().is_ok() => Ok(ByteSize(0)),
        _ => parse_bytes(text),
    }
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

/// Parses a time span: a number of seconds, or one with the unit s, m, h or d.
pub(crate) fn parse_time_span(text: &str) -> Result<Duration, UsageError> {
    let units = [("s", 1), ("m", 60), ("h", 3600), ("d", 24 * 3600)];
    let found = units
        .into_iter()
        .find_map(|(unit, seconds)| Some((text.strip_suffix(unit)?, seconds)));
    let (number, unit) = found.unwrap_or((text, 1));
    let seconds = number
        .parse()
        .ok()
        .and_then(|number: u64| number.checked_mul(unit));
    match seconds.filter(|seconds| (1..=SECONDS_MAX).contains(seconds)) {
        Some(seconds) => Ok(Duration::from_secs(seconds)),
        None => Err(UsageError(
            "it is not a time from 1s to 30d, such as 60s, 5m or 1h".into(),
        )),
    }
}

/// Parses a number that fits into the type.
pub(crate) fn parse_number<T: FromStr>(text: &str) -> Result<T, UsageError> {
    text.parse()
        .map_err(|_| UsageError("it is not a whole number".into()))
}

fn parse_value<T: Value>(text: &str) -> Result<T, UsageError> {
    T::parse(text.as_bytes()).ok_or_else(|| UsageError(T::refusal(text)))
}

/// The longest time span, in seconds.
const SECONDS_MAX: u64 = 30 * 24 * 3600;

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

    #[test]
    fn time_spans_have_units() {
        for (text, seconds) in [
            ("60", 60),
            ("60s", 60),
            ("5m", 300),
            ("1h", 3600),
            ("2d", 172_800),
        ] {
            assert_eq!(parse_time_span(text).unwrap(), Duration::from_secs(seconds));
        }
        for text in [
            "",
            "0",
            "0s",
            "-1",
            "1.5h",
            "s",
            "31d",
            "1w",
            "99999999999999999999",
        ] {
            assert!(parse_time_span(text).is_err(), "{text}");
        }
    }
}
