//! Times as users read them, in the time zone of the machine.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};

/// `2026-11-25`.
pub(crate) fn date(time: SystemTime) -> String {
    format(time, "%Y-%m-%d")
}

/// `2026-11-25 21:00:00`, as nix-env prints it.
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
