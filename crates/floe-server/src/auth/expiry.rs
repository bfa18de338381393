//! The time at which a login expires, as text.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::clock::utc_time;

/// The time from which on a login is invalid, in whole seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Expiry {
    /// Seconds since 1970.
    seconds: u64,
}

impl Expiry {
    /// Parses a date such as `2027-01-31`, which means its first second in UTC, or a time such as
    /// `2027-01-31T12:00:00Z`.
    pub fn parse(text: &str) -> Option<Expiry> {
        let (date, time) = match text.split_once('T') {
            Some((date, time)) => (date, time.strip_suffix('Z')?),
            None => (text, "00:00:00"),
        };
        let [year, month, day] = numbers(date, '-', [4, 2, 2])?;
        let [hour, minute, second] = numbers(time, ':', [2, 2, 2])?;
        if !(1970..=9999).contains(&year) || hour > 23 || minute > 59 || second > 59 {
            return None;
        }
        let days = days_since_1970(year, month, day)?;
        Some(Expiry {
            seconds: days * DAY + hour * 3600 + minute * 60 + second,
        })
    }

    /// Returns the time that is `duration` after `now`, or nothing after the year 9999.
    pub fn after(now: SystemTime, duration: Duration) -> Option<Expiry> {
        let since = now.duration_since(UNIX_EPOCH).ok()?;
        let seconds = since.checked_add(duration)?.as_secs();
        (seconds < YEAR_10000).then_some(Expiry { seconds })
    }

    /// Whether a login with this expiry is invalid at a time.
    pub fn is_past(self, now: SystemTime) -> bool {
        now >= UNIX_EPOCH + Duration::from_secs(self.seconds)
    }
}

/// The date alone if the time is midnight.
impl fmt::Display for Expiry {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = UNIX_EPOCH + Duration::from_secs(self.seconds);
        let text = utc_time(&httpdate::fmt_http_date(time)).unwrap_or_default();
        formatter.write_str(text.strip_suffix("T00:00:00Z").unwrap_or(&text))
    }
}

/// Parses three numbers, each with an exact number of digits.
fn numbers(text: &str, separator: char, digits: [usize; 3]) -> Option<[u64; 3]> {
    let mut parts = text.split(separator);
    let mut numbers = [0; 3];
    for (number, digits) in numbers.iter_mut().zip(digits) {
        let part = parts.next()?;
        let is_number = part.len() == digits && part.bytes().all(|byte| byte.is_ascii_digit());
        *number = is_number.then(|| part.parse().ok())??;
    }
    parts.next().is_none().then_some(numbers)
}

/// Returns nothing if the month has no such day.
fn days_since_1970(year: u64, month: u64, day: u64) -> Option<u64> {
    let is_leap = match year.is_multiple_of(100) {
        true => year.is_multiple_of(400),
        false => year.is_multiple_of(4),
    };
    let lengths = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let index = usize::try_from(month.checked_sub(1)?).ok()?;
    let leap_day = u64::from(is_leap);
    let length = lengths.get(index)? + if month == 2 { leap_day } else { 0 };
    if day == 0 || day > length {
        return None;
    }
    let months: u64 = lengths.iter().take(index).sum();
    let this_leap_day = if month > 2 { leap_day } else { 0 };
    let before = year - 1;
    let leap_days = before / 4 - before / 100 + before / 400 - LEAP_DAYS_BEFORE_1970;
    Some((year - 1970) * 365 + leap_days + months + this_leap_day + day - 1)
}

const DAY: u64 = 24 * 60 * 60;

/// The leap days from the year 1 to the year 1969.
const LEAP_DAYS_BEFORE_1970: u64 = 1969 / 4 - 1969 / 100 + 1969 / 400;

/// The first second of the year 10000, which has no text in RFC 3339.
const YEAR_10000: u64 = 253_402_300_800;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(seconds: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(seconds)
    }

    #[test]
    fn date_means_its_first_second() {
        let expiry = Expiry::parse("2027-01-31").unwrap();
        assert_eq!(Expiry::parse("2027-01-31T00:00:00Z"), Some(expiry));
        let midnight = at(1_801_353_600);
        assert!(expiry.is_past(midnight));
        assert!(!expiry.is_past(midnight - Duration::from_secs(1)));
        let day = Duration::from_secs(DAY);
        assert_eq!(Expiry::after(midnight - day, day), Some(expiry));
        assert_eq!(Expiry::after(midnight, Duration::MAX), None);
    }

    #[test]
    fn times_that_do_not_exist_are_rejected() {
        for text in [
            "",
            "2027",
            "2027-1-31",
            "2027-02-29",
            "2100-02-29",
            "2027-04-31",
            "2027-13-01",
            "2027-00-01",
            "2027-01-00",
            "1969-12-31",
            "+027-01-31",
            "2027-01-31T24:00:00Z",
            "2027-01-31T12:00:60Z",
            "2027-01-31T12:00:00",
            "2027-01-31T12:00:00+01:00",
            "2027-01-31-01",
        ] {
            assert_eq!(Expiry::parse(text), None, "{text}");
        }
        assert!(Expiry::parse("2024-02-29").is_some());
        assert!(Expiry::parse("2000-02-29T23:59:59Z").is_some());
    }

    proptest! {
        #[test]
        fn printed_expiry_parses_to_itself(seconds in 0..YEAR_10000, days in 0..YEAR_10000 / DAY) {
            for seconds in [seconds, days * DAY] {
                let expiry = Expiry { seconds };
                prop_assert_eq!(Expiry::parse(&expiry.to_string()), Some(expiry));
            }
        }
    }
}
