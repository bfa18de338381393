//! The time at which a login expires, as text.

use std::fmt;
use std::time::{Duration, SystemTime};

use x509_cert::der::DateTime;

/// When a login expires, in whole seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Expiry(DateTime);

impl Expiry {
    /// Parses a date such as `2027-01-31`, which means its first second in UTC, or a time such as
    /// `2027-01-31T12:00:00Z`.
    pub fn parse(text: &str) -> Option<Expiry> {
        let time = if text.contains('T') {
            text.parse()
        } else {
            format!("{text}{MIDNIGHT}").parse()
        };
        time.ok().map(Expiry)
    }

    /// Returns the time that is `duration` after `now`, or nothing after the year 9999.
    pub fn after(now: SystemTime, duration: Duration) -> Option<Expiry> {
        let since = now.duration_since(SystemTime::UNIX_EPOCH).ok()?;
        let seconds = since.checked_add(duration)?.as_secs();
        let time = DateTime::from_unix_duration(Duration::from_secs(seconds));
        time.ok().map(Expiry)
    }

    /// Whether a login with this expiry is invalid at a time.
    pub fn is_past(self, now: SystemTime) -> bool {
        now >= SystemTime::UNIX_EPOCH + self.0.unix_duration()
    }
}

/// The date alone if the time is midnight.
impl fmt::Display for Expiry {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.0.to_string();
        formatter.write_str(text.strip_suffix(MIDNIGHT).unwrap_or(&text))
    }
}

const MIDNIGHT: &str = "T00:00:00Z";

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const DAY: u64 = 24 * 60 * 60;

    /// The first second of the year 10000, which has no text in RFC 3339.
    const YEAR_10000: u64 = 253_402_300_800;

    fn at(seconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
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
                let time = Duration::from_secs(seconds);
                let expiry = Expiry(DateTime::from_unix_duration(time).unwrap());
                prop_assert_eq!(Expiry::parse(&expiry.to_string()), Some(expiry));
            }
        }
    }
}
