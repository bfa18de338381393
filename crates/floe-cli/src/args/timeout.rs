//! Times on the command line.

use std::time::Duration;

use crate::exit::UsageError;

/// A number of seconds, with or without a fraction.
pub(crate) fn parse_seconds(text: &str) -> Result<Duration, UsageError> {
    let number = text.parse().ok().filter(|seconds: &f64| *seconds >= 0.0);
    number
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        .filter(|time| *time <= TIMEOUT_MAX)
        .ok_or_else(|| {
            UsageError(format!(
                "{text:?} is not a number of seconds up to {}",
                TIMEOUT_MAX.as_secs()
            ))
        })
}

/// As [`seconds`], but not zero: nothing could be done in no time.
pub(crate) fn parse_timeout(text: &str) -> Result<Duration, UsageError> {
    match parse_seconds(text)? {
        Duration::ZERO => Err(UsageError(
            "a time to wait must be more than 0 seconds".into(),
        )),
        time => Ok(time),
    }
}

/// A year. What is longer was meant otherwise.
const TIMEOUT_MAX: Duration = Duration::from_secs(365 * 24 * 60 * 60);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_may_have_a_fraction_and_are_never_negative() {
        assert_eq!(parse_seconds("2.5").unwrap(), Duration::from_millis(2500));
        assert_eq!(parse_seconds("0").unwrap(), Duration::ZERO);
        for text in ["-1", "x", "", "NaN", "inf", "1e300"] {
            assert!(parse_seconds(text).is_err(), "{text}");
        }
        assert!(parse_timeout("0").is_err());
    }
}
