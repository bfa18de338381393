//! Times as users read them.

use std::fmt;
use std::time::Duration;

/// A time with two or three digits: `0.05 s`, `3.4 s`, `34 s`, `2 min 5 s`, `3 h 12 min`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Elapsed(pub(crate) Duration);

impl fmt::Display for Elapsed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.as_secs_f64();
        let digits = match seconds {
            _ if seconds < 0.995 => 2,
            _ if seconds < 9.95 => 1,
            _ => 0,
        };
        if seconds < 60.0 {
            return write!(f, "{seconds:.digits$} s");
        }
        let minutes = (seconds / 60.0) as u64;
        match minutes {
            0..60 => write!(f, "{minutes} min {} s", seconds as u64 % 60),
            _ => write!(f, "{} h {} min", minutes / 60, minutes % 60),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_name_two_units_at_most() {
        let texts = [
            (0.049, "0.05 s"),
            (3.44, "3.4 s"),
            (9.96, "10 s"),
            (59.4, "59 s"),
            (60.0, "1 min 0 s"),
            (125.0, "2 min 5 s"),
            (11_520.0, "3 h 12 min"),
        ];
        for (seconds, text) in texts {
            assert_eq!(Elapsed(Duration::from_secs_f64(seconds)).to_string(), text);
        }
    }
}
