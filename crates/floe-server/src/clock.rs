//! The current time as text, for responses and logs. It is formatted a few times per second, not
//! for each response.

use std::time::{Duration, Instant, SystemTime};

use x509_cert::der::DateTime;

/// The current second in three formats.
#[derive(Debug)]
pub(crate) struct Clock {
    updated: Option<Instant>,
    /// The header field `Date` with its line end.
    pub(crate) date_header: String,
    /// The format of Apache's log: `21/Nov/2026:07:00:00 +0000`.
    pub(crate) log_time: String,
    /// RFC 3339: `2026-11-21T07:00:00Z`.
    pub(crate) utc_time: String,
}

impl Clock {
    pub(crate) fn new() -> Clock {
        let mut clock = Clock {
            updated: None,
            date_header: String::new(),
            log_time: String::new(),
            utc_time: String::new(),
        };
        clock.tick(Instant::now());
        clock
    }

    /// Formats the time again if the texts are older than [`MAX_AGE`].
    pub(crate) fn tick(&mut self, now: Instant) {
        let age = self.updated.map(|updated| now.duration_since(updated));
        if age.is_some_and(|age| age < MAX_AGE) {
            return;
        }
        self.updated = Some(now);
        let time = SystemTime::now();
        let date = httpdate::fmt_http_date(time);
        self.date_header = format!("Date: {date}\r\n");
        self.log_time = apache_time(&date).unwrap_or_default();
        let since = time.duration_since(SystemTime::UNIX_EPOCH);
        let utc = DateTime::from_unix_duration(since.unwrap_or_default());
        self.utc_time = utc.map(|time| time.to_string()).unwrap_or_default();
    }
}

/// Converts `Sat, 21 Nov 2026 07:00:00 GMT`, whose fields have fixed positions.
fn apache_time(date: &str) -> Option<String> {
    let (day, month, year) = (date.get(5..7)?, date.get(8..11)?, date.get(12..16)?);
    Some(format!("{day}/{month}/{year}:{} +0000", date.get(17..25)?))
}

/// By how much the texts may be late.
const MAX_AGE: Duration = Duration::from_millis(250);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_the_formats_of_the_logs() {
        assert_eq!(
            apache_time("Sat, 21 Nov 2026 07:00:09 GMT").unwrap(),
            "21/Nov/2026:07:00:09 +0000"
        );
        let clock = Clock::new();
        assert!(clock.date_header.starts_with("Date: ") && clock.date_header.ends_with(" GMT\r\n"));
        assert_eq!(clock.log_time.len(), 26);
        let utc: DateTime = clock.utc_time.parse().unwrap();
        assert!(utc.year() >= 2026);
    }
}
