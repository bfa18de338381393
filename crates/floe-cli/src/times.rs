//! Times as users and log collectors read them.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};

/// UTC in the form of RFC 3339 with milliseconds, as in `2026-11-22T14:33:36.120Z`.
pub(crate) fn rfc3339(time: Timestamp) -> String {
    format!("{time:.3}")
}

/// `2026-11-25`, in the time zone of the machine.
pub(crate) fn date(time: SystemTime) -> String {
    format(time, "%Y-%m-%d")
}

/// `2026-11-25 21:00:00` in the time zone of the machine, as nix-env prints it.
pub(crate) fn date_and_time(time: SystemTime) -> String {
    format(time, "%Y-%m-%d %H:%M:%S")
}

fn format(time: SystemTime, format: &str) -> String {
    let timestamp = Timestamp::try_from(time).unwrap_or(Timestamp::UNIX_EPOCH);
    let zoned: Zoned = timestamp.to_zoned(TimeZone::system());
    zoned.strftime(format).to_string()
}

/// Returns the time of a number of seconds since 1970.
pub(crate) fn from_seconds(seconds: u64) -> SystemTime {
    UNIX_EPOCH
        .checked_add(Duration::from_secs(seconds))
        .unwrap_or(UNIX_EPOCH)
}

/// Returns the seconds since 1970.
pub(crate) fn seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_match_those_of_date() {
        // Computed by `date -u -d @N`.
        for (milliseconds, expected) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (1, "1970-01-01T00:00:00.001Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (1_709_251_199_999, "2024-02-29T23:59:59.999Z"),
        ] {
            let time = Timestamp::from_millisecond(milliseconds).unwrap();
            assert_eq!(rfc3339(time), expected);
        }
    }
}
