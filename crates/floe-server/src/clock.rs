//! The time as answers and logs write it, made once a second.

use std::time::{Duration, Instant, SystemTime};

/// The present second, as texts.
#[derive(Debug)]
pub(crate) struct Clock {
    made: Option<Instant>,
    /// The header field `Date` with its line end.
    pub(crate) date_header: String,
    /// As in the log of Apache: `21/Nov/2026:07:00:00 +0000`.
    pub(crate) log_time: String,
}

impl Clock {
    pub(crate) fn new() -> Clock {
        let mut clock = Clock {
            made: None,
            date_header: String::new(),
            log_time: String::new(),
        };
        clock.tick(Instant::now());
        clock
    }

    /// Brings the texts up to date, if they are older than a part of a second.
    pub(crate) fn tick(&mut self, now: Instant) {
        if self
            .made
            .is_some_and(|made| now.duration_since(made) < MAX_AGE)
        {
            return;
        }
        self.made = Some(now);
        let date = httpdate::fmt_http_date(SystemTime::now());
        self.date_header = format!("Date: {date}\r\n");
        self.log_time = apache_time(&date).unwrap_or_default();
    }
}

/// From `Sat, 21 Nov 2026 07:00:00 GMT`, whose fields have fixed places.
fn apache_time(date: &str) -> Option<String> {
    let (day, month, year) = (date.get(5..7)?, date.get(8..11)?, date.get(12..16)?);
    Some(format!("{day}/{month}/{year}:{} +0000", date.get(17..25)?))
}

/// A date may be this wrong.
const MAX_AGE: Duration = Duration::from_millis(250);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn http_date_is_converted_to_the_log_format() {
        assert_eq!(
            apache_time("Sat, 21 Nov 2026 07:00:09 GMT").unwrap(),
            "21/Nov/2026:07:00:09 +0000"
        );
        let clock = Clock::new();
        assert!(clock.date_header.starts_with("Date: ") && clock.date_header.ends_with(" GMT\r\n"));
        assert_eq!(clock.log_time.len(), 26);
    }
}
