//! The types of the settings of `floe serve`, read from TOML and written as TOML.

use std::fmt;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use floe_server::{Compress, Listen, TrustedProxy, address};
use toml::Value as Toml;
use toml::de::DeValue;

use super::choice::{AccessLogFormat, Choice, StderrFormat};
use crate::value::Value as _;

/// A type that a key of the configuration file takes.
pub(super) trait TomlValue: Sized {
    /// Reads a value.
    ///
    /// Errors: the type or the range is wrong. The text describes the right values.
    fn from_toml(value: &DeValue<'_>) -> Result<Self, String>;
    /// Returns the value in TOML; `None` if it contains a path that is not UTF-8.
    fn to_toml(&self) -> Option<Toml>;
}

/// A number of bytes, such as `500M` or `20G`. The letters K, M, G and T are powers of 1024.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByteSize(pub u64);

/// The text is not a number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a number of bytes; give one such as 500M or 20G")]
pub struct NoByteSize;

/// Returns a number of seconds as a time; `None` if it is negative or longer than
/// [`TIMEOUT_MAX`].
pub fn seconds(number: f64) -> Option<Duration> {
    let time = Duration::try_from_secs_f64(number).ok();
    time.filter(|time| *time <= TIMEOUT_MAX)
}

/// The longest timeout, a year. Larger values are surely mistakes.
pub const TIMEOUT_MAX: Duration = Duration::from_secs(365 * 24 * 60 * 60);

impl FromStr for ByteSize {
    type Err = NoByteSize;

    fn from_str(text: &str) -> Result<ByteSize, NoByteSize> {
        // The parser of Nix's settings accepts a plus sign.
        let bytes = u64::parse(text.as_bytes()).filter(|_| !text.starts_with('+'));
        bytes.map(ByteSize).ok_or(NoByteSize)
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = UNITS.iter().enumerate().rev();
        let mut units = units.map(|(power, letter)| (letter, 1024_u64.pow(power as u32 + 1)));
        match units.find(|(_, unit)| self.0 >= *unit && self.0.is_multiple_of(*unit)) {
            Some((letter, unit)) => write!(f, "{}{letter}", self.0 / unit),
            None => write!(f, "{}", self.0),
        }
    }
}

/// Units of bytes. Each is 1024 times the one before it.
const UNITS: [char; 4] = ['K', 'M', 'G', 'T'];

impl TomlValue for ByteSize {
    fn from_toml(value: &DeValue<'_>) -> Result<ByteSize, String> {
        let size = match value {
            DeValue::String(text) => text.parse().ok(),
            _ => integer(value).map(ByteSize),
        };
        takes(size, "a number of bytes, such as \"500M\" or \"20G\"")
    }

    fn to_toml(&self) -> Option<Toml> {
        Some(self.to_string().into())
    }
}

impl TomlValue for Duration {
    fn from_toml(value: &DeValue<'_>) -> Result<Duration, String> {
        let number = match value {
            DeValue::Float(number) => number.as_str().parse().ok(),
            _ => integer::<i32>(value).map(f64::from),
        };
        let time = number.and_then(seconds).filter(|time| !time.is_zero());
        let max = TIMEOUT_MAX.as_secs();
        takes(
            time,
            format_args!("a number of seconds above 0 and at most {max}"),
        )
    }

    fn to_toml(&self) -> Option<Toml> {
        let whole = i64::try_from(self.as_secs()).ok();
        Some(match whole.filter(|_| self.subsec_nanos() == 0) {
            Some(seconds) => seconds.into(),
            None => self.as_secs_f64().into(),
        })
    }
}

impl TomlValue for u16 {
    fn from_toml(value: &DeValue<'_>) -> Result<u16, String> {
        takes(integer(value), "a number from 0 to 65535")
    }

    fn to_toml(&self) -> Option<Toml> {
        Some(i64::from(*self).into())
    }
}

impl TomlValue for i32 {
    fn from_toml(value: &DeValue<'_>) -> Result<i32, String> {
        takes(
            integer(value),
            "a whole number from -2147483648 to 2147483647",
        )
    }

    fn to_toml(&self) -> Option<Toml> {
        Some(i64::from(*self).into())
    }
}

impl TomlValue for usize {
    fn from_toml(value: &DeValue<'_>) -> Result<usize, String> {
        takes(integer(value), "a whole number, at least 0")
    }

    fn to_toml(&self) -> Option<Toml> {
        // TOML has no larger numbers, and no machine has so many of anything.
        Some(i64::try_from(*self).unwrap_or(i64::MAX).into())
    }
}

impl TomlValue for NonZeroUsize {
    fn from_toml(value: &DeValue<'_>) -> Result<NonZeroUsize, String> {
        let number = integer(value).and_then(NonZeroUsize::new);
        takes(number, "a whole number above 0")
    }

    fn to_toml(&self) -> Option<Toml> {
        self.get().to_toml()
    }
}

impl TomlValue for bool {
    fn from_toml(value: &DeValue<'_>) -> Result<bool, String> {
        takes(value.as_bool(), "true or false")
    }

    fn to_toml(&self) -> Option<Toml> {
        Some((*self).into())
    }
}

impl TomlValue for String {
    fn from_toml(value: &DeValue<'_>) -> Result<String, String> {
        takes(value.as_str().map(str::to_owned), "a string")
    }

    fn to_toml(&self) -> Option<Toml> {
        Some(self.as_str().into())
    }
}

impl TomlValue for PathBuf {
    fn from_toml(value: &DeValue<'_>) -> Result<PathBuf, String> {
        let text = value.as_str().filter(|text| !text.is_empty());
        takes(text.map(PathBuf::from), "a path as a string")
    }

    fn to_toml(&self) -> Option<Toml> {
        self.to_str().map(Toml::from)
    }
}

impl TomlValue for Listen {
    fn from_toml(value: &DeValue<'_>) -> Result<Listen, String> {
        let text = takes(value.as_str(), "addresses as strings")?;
        address::parse(text).map_err(|error| error.0)
    }

    fn to_toml(&self) -> Option<Toml> {
        match self {
            Listen::Unix(path) => Some(format!("unix:{}", path.to_str()?).into()),
            Listen::Tcp { .. } => Some(self.to_string().into()),
        }
    }
}

impl TomlValue for TrustedProxy {
    fn from_toml(value: &DeValue<'_>) -> Result<TrustedProxy, String> {
        let text = takes(value.as_str(), "proxies as strings")?;
        text.parse::<TrustedProxy>()
            .map_err(|error| format!("{text:?} is {error}"))
    }

    fn to_toml(&self) -> Option<Toml> {
        Some(self.to_string().into())
    }
}

/// A single value, or an array.
impl<T: TomlValue> TomlValue for Vec<T> {
    fn from_toml(value: &DeValue<'_>) -> Result<Vec<T>, String> {
        match value.as_array() {
            Some(values) => values.iter().map(|it| T::from_toml(it.get_ref())).collect(),
            None => Ok(vec![T::from_toml(value)?]),
        }
    }

    fn to_toml(&self) -> Option<Toml> {
        let values = self.iter().map(T::to_toml);
        values.collect::<Option<_>>().map(Toml::Array)
    }
}

impl TomlValue for Compress {
    fn from_toml(value: &DeValue<'_>) -> Result<Compress, String> {
        choice(value)
    }

    fn to_toml(&self) -> Option<Toml> {
        Some(self.name().into())
    }
}

impl TomlValue for AccessLogFormat {
    fn from_toml(value: &DeValue<'_>) -> Result<AccessLogFormat, String> {
        choice(value)
    }

    fn to_toml(&self) -> Option<Toml> {
        Some(self.name().into())
    }
}

impl TomlValue for StderrFormat {
    fn from_toml(value: &DeValue<'_>) -> Result<StderrFormat, String> {
        choice(value)
    }

    fn to_toml(&self) -> Option<Toml> {
        Some(self.name().into())
    }
}

/// A table that floe does not look into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct IgnoredTable;

impl TomlValue for IgnoredTable {
    fn from_toml(value: &DeValue<'_>) -> Result<IgnoredTable, String> {
        takes(value.as_table().map(|_| IgnoredTable), "a table")
    }

    fn to_toml(&self) -> Option<Toml> {
        Some(Toml::Table(toml::Table::new()))
    }
}

fn choice<T: Choice>(value: &DeValue<'_>) -> Result<T, String> {
    let chosen = value.as_str().and_then(T::from_name);
    let names: Vec<String> = T::names().map(|name| format!("{name:?}")).collect();
    takes(chosen, format_args!("one of {}", names.join(", ")))
}

/// Returns the value, or the error for a value of the wrong type or range.
fn takes<T>(value: Option<T>, allowed: impl fmt::Display) -> Result<T, String> {
    value.ok_or_else(|| format!("it takes {allowed}"))
}

fn integer<T: TryFrom<i128>>(value: &DeValue<'_>) -> Option<T> {
    let DeValue::Integer(number) = value else {
        return None;
    };
    let number = i128::from_str_radix(number.as_str(), number.radix()).ok()?;
    number.try_into().ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read<T: TomlValue>(text: &str) -> Result<T, String> {
        let text = format!("key = {text}");
        let table = toml::de::DeTable::parse(&text).unwrap();
        T::from_toml(table.get_ref().values().next().unwrap().get_ref())
    }

    #[test]
    fn value_of_wrong_type_or_range_names_right_values() {
        fn check<T: TomlValue + fmt::Debug>(texts: &[&str], part: &str) {
            for text in texts {
                let reason = read::<T>(text).unwrap_err();
                assert!(reason.contains(part), "{text}: {reason}");
            }
        }
        check::<u16>(&["65536", "-1", "'80'", "1.0", "true"], "0 to 65535");
        check::<NonZeroUsize>(&["0", "-1", "'1'"], "above 0");
        check::<Duration>(
            &["0", "-1", "0.0", "nan", "inf", "31536001", "'1'"],
            "above 0",
        );
        check::<ByteSize>(&["-1", "'1GB'", "1.5", "''"], "500M");
        check::<Compress>(&["'on'", "1"], "\"off\", \"cached\", \"always\"");
        check::<PathBuf>(&["''", "1"], "path");
        check::<Vec<Listen>>(&["'5000'", "[':1', '5000']"], "HOST:PORT");
        check::<Vec<Listen>>(&["5000"], "strings");
        check::<Vec<TrustedProxy>>(&["'proxy.example'", "['10.0.0.0/33']"], "10.0.0.0/8");
        check::<bool>(&["'true'"], "true or false");
        check::<IgnoredTable>(&["3"], "table");
    }

    #[test]
    fn size_letters_are_powers_of_1024() {
        for (text, size) in [("10", 10), ("2k", 2048), ("3G", 3 << 30)] {
            assert_eq!(text.parse(), Ok(ByteSize(size)));
        }
        for text in ["", "G", "-1", "1.5G", "1GB", "99999999T", "1é", "+1"] {
            assert_eq!(text.parse::<ByteSize>(), Err(NoByteSize), "{text}");
        }
        assert_eq!(ByteSize(10 << 30).to_string(), "10G");
        assert_eq!(ByteSize(1025).to_string(), "1025");
        assert_eq!(ByteSize(0).to_string(), "0");
    }

    #[test]
    fn path_that_is_no_text_cannot_be_written() {
        use std::os::unix::ffi::OsStringExt as _;
        let path = PathBuf::from(std::ffi::OsString::from_vec(vec![0xff]));
        assert_eq!(path.to_toml(), None);
        assert_eq!(vec![path.clone()].to_toml(), None);
        assert_eq!(Listen::Unix(path).to_toml(), None);
    }

    #[track_caller]
    fn assert_reads_itself<T: TomlValue + PartialEq + fmt::Debug>(value: &T) {
        let text = value.to_toml().unwrap().to_string();
        assert_eq!(read::<T>(&text).as_ref(), Ok(value), "{text}");
    }

    proptest! {
        #[test]
        fn written_value_reads_as_itself(
            number in any::<i32>(),
            port in any::<u16>(),
            time in 1e-6_f64..3.1e7,
            bytes in any::<u64>(),
            unit in 0_u32..40,
            text in any::<String>(),
            flag in any::<bool>(),
        ) {
            assert_reads_itself(&number);
            assert_reads_itself(&port);
            assert_reads_itself(&seconds(time).unwrap());
            assert_reads_itself(&seconds(time.ceil()).unwrap());
            assert_reads_itself(&ByteSize(bytes));
            assert_reads_itself(&ByteSize(bytes >> 24 >> unit << unit));
            assert_reads_itself(&vec![text.clone(), String::new()]);
            assert_reads_itself(&Vec::<PathBuf>::new());
            assert_reads_itself(&PathBuf::from(format!("/{text}")));
            assert_reads_itself(&vec![Listen::Unix(format!("/{text}").into())]);
            assert_reads_itself(&flag);
            for (_, value, _) in Compress::CHOICES {
                assert_reads_itself(value);
            }
            for (_, value, _) in AccessLogFormat::CHOICES {
                assert_reads_itself(value);
            }
        }
    }
}
