//! Times on the command line.

use std::time::Duration;

use crate::failure::Usage;

/// A number of seconds, with or without a fraction.
pub(crate) fn seconds(text: &str) -> Result<Duration, Usage> {
    let number = text.parse().ok().filter(|seconds: &f64| *seconds >= 0.0);
    number
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        .filter(|time| *time <= TIMEOUT_MAX)
        .ok_or_else(|| {
            Usage(format!(
                "{text:?} is not a number of seconds up to {}",
                TIMEOUT_MAX.as_secs()
            ))
        })
}

/// As [`seconds`], but not zero: nothing could be done in no time.
pub(crate) fn some_seconds(text: &str) -> Result<Duration, Usage> {
    match seconds(text)? {
        Duration::ZERO => Err(Usage("a time to wait must be more than 0 seconds".into())),
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
        assert_eq!(seconds("2.5").unwrap(), Duration::from_millis(2500));
        assert_eq!(seconds("0").unwrap(), Duration::ZERO);
        for text in ["-1", "x", "", "NaN", "inf", "1e300"] {
            assert!(seconds(text).is_err(), "{text}");
        }
        assert!(some_seconds("0").is_err());
    }
}
