//! The types of the settings of `floe serve`.

use std::fmt;
use std::num::NonZeroUsize;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::time::Duration;

use floe_server::{Compress, Listen, NoProxy, TrustedProxy, address};
use serde_json::{Value as Json, json};
use toml::Value as Toml;
use toml::de::DeValue;

use super::choice::{AccessLogFormat, Choice, StderrFormat};
use super::{Form, TomlType, Value, check};

impl TomlType {
    /// Returns the text of a value that has one of these types.
    pub(super) fn text(value: &DeValue<'_>, types: &[TomlType]) -> Option<String> {
        let (own, text) = match value {
            DeValue::String(text) => (TomlType::String, text.clone().into_owned()),
            DeValue::Integer(number) => {
                let number = i128::from_str_radix(number.as_str(), number.radix()).ok()?;
                (TomlType::Integer, number.to_string())
            }
            DeValue::Float(number) => (TomlType::Float, number.as_str().to_owned()),
            DeValue::Boolean(value) => (TomlType::Bool, value.to_string()),
            _ => return None,
        };
        types.contains(&own).then_some(text)
    }
}

/// Returns a value of JSON in TOML.
pub(super) fn toml_of(json: Json) -> Toml {
    match json {
        Json::Bool(value) => value.into(),
        Json::String(text) => text.into(),
        Json::Array(values) => Toml::Array(values.into_iter().map(toml_of).collect()),
        Json::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(number), _) => number.into(),
            // TOML has no larger numbers, and no machine has so many of anything.
            (None, Some(_)) => i64::MAX.into(),
            (None, None) => number.as_f64().unwrap_or_default().into(),
        },
        Json::Null | Json::Object(_) => Toml::Table(toml::Table::new()),
    }
}

/// A number of bytes, such as `500M` or `20G`. The letters K, M, G and T are powers of 1024.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByteSize(pub u64);

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

impl Value for ByteSize {
    const ALLOWED: &'static str = "a number of bytes, such as \"500M\" or \"20G\"";
    const TOML: &'static [TomlType] = &[TomlType::String, TomlType::Integer];

    fn parse(text: &[u8]) -> Option<ByteSize> {
        // The parser of Nix's settings accepts a plus sign.
        let bytes = u64::parse(text).filter(|_| !text.starts_with(b"+"));
        bytes.map(ByteSize)
    }

    fn refusal(text: &str) -> String {
        format!("{text:?} is not a number of bytes; give one such as 500M or 20G")
    }

    fn json(&self) -> Json {
        self.to_string().into()
    }
}

/// Returns a number of seconds as a time; `None` if it is negative or more than a year.
pub fn seconds(number: f64) -> Option<Duration> {
    let time = Duration::try_from_secs_f64(number).ok();
    time.filter(|time| *time <= TIMEOUT_MAX)
}

/// The longest timeout, a year. Larger values are surely mistakes.
const TIMEOUT_MAX: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// A number of seconds above 0.
impl Value for Duration {
    const ALLOWED: &'static str = "a number of seconds above 0 and at most 31536000";
    const TOML: &'static [TomlType] = &[TomlType::Integer, TomlType::Float];

    fn parse(text: &[u8]) -> Option<Duration> {
        let time = seconds(number(text)?);
        time.filter(|time| !time.is_zero())
    }

    fn refusal(text: &str) -> String {
        match text.parse().ok().and_then(seconds) {
            Some(_) => "the time must be more than 0 seconds".into(),
            None => {
                let max = TIMEOUT_MAX.as_secs();
                format!("{text:?} is not a number of seconds; give at most {max}")
            }
        }
    }

    fn json(&self) -> Json {
        match self.subsec_nanos() {
            0 => self.as_secs().into(),
            _ => self.as_secs_f64().into(),
        }
    }
}

/// Implements [`Value`] for types of whole numbers, with the text for TOML and that for flags.
macro_rules! numbers {
    ($($type:ty: $form:path, $allowed:literal, $refusal:literal;)*) => {$(
        impl Value for $type {
            const ALLOWED: &'static str = $allowed;
            const TOML: &'static [TomlType] = &[TomlType::Integer];

            fn parse(text: &[u8]) -> Option<$type> {
                number(text)
            }

            fn refusal(_text: &str) -> String {
                $refusal.into()
            }

            fn form() -> Form {
                $form(check::<$type>)
            }

            fn json(&self) -> Json {
                json!(*self)
            }
        }
    )*};
}

numbers! {
    u16: Form::Text,
        "a number from 0 to 65535", "it is not a port; give a number from 0 to 65535";
    i32: Form::SignedNumber,
        "a whole number from -2147483648 to 2147483647", "it is not a whole number";
    usize: Form::Text,
        "a whole number, at least 0", "it is not a whole number";
    NonZeroUsize: Form::Text,
        "a whole number above 0", "it is not a whole number above 0";
}

fn number<T: std::str::FromStr>(text: &[u8]) -> Option<T> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// A path, which may be relative.
impl Value for PathBuf {
    const ALLOWED: &'static str = "a path as a string";

    fn parse(text: &[u8]) -> Option<PathBuf> {
        let path = std::ffi::OsStr::from_bytes(text);
        (!path.is_empty()).then(|| path.into())
    }

    fn form() -> Form {
        Form::Path
    }

    fn json(&self) -> Json {
        self.to_string_lossy().into()
    }

    fn to_toml(&self) -> Option<Toml> {
        self.to_str().map(Toml::from)
    }
}

impl Value for Listen {
    const ALLOWED: &'static str = "addresses as strings";

    fn parse(text: &[u8]) -> Option<Listen> {
        address::parse(std::str::from_utf8(text).ok()?).ok()
    }

    fn refusal(text: &str) -> String {
        let error = address::parse(text).err();
        error.map_or(String::new(), |error| error.0)
    }

    fn json(&self) -> Json {
        self.to_string().into()
    }

    fn from_toml(value: &DeValue<'_>) -> Result<Listen, String> {
        let text = value.as_str();
        let text = text.ok_or_else(|| format!("it takes {}", Self::ALLOWED))?;
        address::parse(text).map_err(|error| error.0)
    }

    fn to_toml(&self) -> Option<Toml> {
        match self {
            Listen::Unix(path) => Some(format!("unix:{}", path.to_str()?).into()),
            Listen::Tcp { .. } => Some(self.to_string().into()),
        }
    }
}

impl Value for TrustedProxy {
    const ALLOWED: &'static str = "proxies as strings";

    fn parse(text: &[u8]) -> Option<TrustedProxy> {
        number(text)
    }

    fn refusal(_text: &str) -> String {
        NoProxy.to_string()
    }

    fn json(&self) -> Json {
        self.to_string().into()
    }

    fn from_toml(value: &DeValue<'_>) -> Result<TrustedProxy, String> {
        let text = value.as_str();
        let text = text.ok_or_else(|| format!("it takes {}", Self::ALLOWED))?;
        let proxy = text.parse::<TrustedProxy>();
        proxy.map_err(|error| format!("{text:?} is {error}"))
    }
}

/// A single value, or an array.
impl<T: Value> Value for Vec<T> {
    const IS_LIST: bool = true;
    const ALLOWED: &'static str = T::ALLOWED;

    fn parse(text: &[u8]) -> Option<Vec<T>> {
        T::parse(text).map(|value| vec![value])
    }

    fn refusal(text: &str) -> String {
        T::refusal(text)
    }

    fn form() -> Form {
        T::form()
    }

    fn append(&mut self, more: Vec<T>) {
        self.extend(more);
    }

    fn json(&self) -> Json {
        self.iter().map(T::json).collect()
    }

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

/// Implements [`Value`] for types whose values are words.
macro_rules! choices {
    ($($type:ty),*) => {$(
        impl Value for $type {
            const ALLOWED: &'static str = "one of several words";

            fn parse(text: &[u8]) -> Option<$type> {
                <$type>::from_name(std::str::from_utf8(text).ok()?)
            }

            fn form() -> Form {
                Form::Choice(<$type>::CHOICES.iter().map(|it| (it.0, it.2)).collect())
            }

            fn json(&self) -> Json {
                self.name().into()
            }

            fn from_toml(value: &DeValue<'_>) -> Result<$type, String> {
                let chosen = value.as_str().and_then(<$type>::from_name);
                chosen.ok_or_else(|| {
                    let names = <$type>::names().map(|name| format!("{name:?}"));
                    format!("it takes one of {}", names.collect::<Vec<_>>().join(", "))
                })
            }
        }
    )*};
}

choices!(Compress, AccessLogFormat, StderrFormat);

/// A table that floe does not look into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IgnoredTable;

impl Value for IgnoredTable {
    const ALLOWED: &'static str = "a table";

    fn parse(_text: &[u8]) -> Option<IgnoredTable> {
        None
    }

    fn json(&self) -> Json {
        json!({})
    }

    fn from_toml(value: &DeValue<'_>) -> Result<IgnoredTable, String> {
        let table = value.as_table().map(|_| IgnoredTable);
        table.ok_or_else(|| format!("it takes {}", Self::ALLOWED))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read<T: Value>(text: &str) -> Result<T, String> {
        let text = format!("key = {text}");
        let table = toml::de::DeTable::parse(&text).unwrap();
        T::from_toml(table.get_ref().values().next().unwrap().get_ref())
    }

    #[test]
    fn value_of_wrong_type_or_range_names_right_values() {
        fn check<T: Value + fmt::Debug>(texts: &[&str], part: &str) {
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
            assert_eq!(ByteSize::parse(text.as_bytes()), Some(ByteSize(size)));
        }
        for text in ["", "G", "-1", "1.5G", "1GB", "99999999T", "1é", "+1"] {
            assert_eq!(ByteSize::parse(text.as_bytes()), None, "{text}");
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
    fn assert_reads_itself<T: Value + PartialEq + fmt::Debug>(value: &T) {
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
