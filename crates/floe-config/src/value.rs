//! The types of settings, parsed and printed as Nix does, and as TOML.

mod choice;
mod serve;

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::ops::Deref;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use floe_format::signature::SignatureError;
use floe_format::{PublicKey, nix_conf};
use floe_store::canon_path;
use floe_transfer::redact_credentials;
use serde_json::{Value as Json, json};
use toml::Value as Toml;
use toml::de::DeValue;

pub use choice::{AccessLogFormat, Choice, StderrFormat};
pub(crate) use serve::IgnoredTable;
pub use serve::{ByteSize, seconds};

/// The value of a setting.
pub trait Value: Clone {
    /// Whether `extra-NAME` appends to the value.
    const IS_LIST: bool = false;
    /// The values that the setting takes, for an error message.
    const ALLOWED: &'static str;
    /// The values that a key in TOML takes, for an error message.
    const ALLOWED_IN_TOML: &'static str = Self::ALLOWED;
    /// The types that a value has in TOML.
    const TOML: &'static [TomlType] = &[TomlType::String];
    /// Parses a value; `None` if the text is not one.
    fn parse(text: &[u8]) -> Option<Self>;
    /// Returns the part of an invalid text that an error message may show.
    fn shown(text: &[u8]) -> String {
        String::from_utf8_lossy(text).into_owned()
    }
    /// Returns why a flag does not take an invalid text.
    fn refusal(_text: &str) -> String {
        format!("it takes {}", Self::ALLOWED)
    }
    /// Returns the form on a command line.
    fn form() -> Form {
        Form::Text(check::<Self>)
    }
    /// Appends another list.
    fn append(&mut self, _more: Self) {}
    /// Returns the number of words in a list.
    fn word_count(&self) -> usize {
        1
    }
    /// Returns the value as `nix config show --json` prints it.
    fn json(&self) -> Json;
    /// Returns the value as nix.conf would hold it.
    fn text(&self) -> String {
        match self.json() {
            Json::Null => String::new(),
            Json::String(text) => text,
            Json::Array(words) => {
                let words: Vec<_> = words.iter().filter_map(Json::as_str).collect();
                words.join(" ")
            }
            other => other.to_string(),
        }
    }
    /// Reads a value in TOML.
    ///
    /// Errors: the type or the range is wrong. The text describes the right values.
    fn from_toml(value: &DeValue<'_>) -> Result<Self, String> {
        let text = TomlType::text(value, Self::TOML);
        let parsed = text.and_then(|text| Self::parse(text.as_bytes()));
        parsed.ok_or_else(|| format!("it takes {}", Self::ALLOWED_IN_TOML))
    }
    /// Returns the value in TOML; `None` if it contains a path that is not UTF-8.
    fn to_toml(&self) -> Option<Toml> {
        Some(serve::toml_of(self.json()))
    }
}

/// Checks a word of a command line. The error describes the right words.
pub type Check = fn(&str) -> Result<(), String>;

fn check<T: Value>(text: &str) -> Result<(), String> {
    match T::parse(text.as_bytes()) {
        Some(_) => Ok(()),
        None => Err(T::refusal(text)),
    }
}

/// The form of a value on a command line.
#[derive(Clone, Debug)]
pub enum Form {
    /// The flag has no value.
    Switch,
    /// A text, with its check.
    Text(Check),
    /// A number, which may be negative, with the check.
    SignedNumber(Check),
    /// A path, which may be any bytes.
    Path,
    /// One of several words, each with its meaning.
    Choice(Vec<(&'static str, &'static str)>),
}

/// A type in TOML.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TomlType {
    /// A string.
    String,
    /// A whole number.
    Integer,
    /// A number with a fraction.
    Float,
    /// `true` or `false`.
    Bool,
}

/// A setting without a value does not appear in a file.
impl<T: Value> Value for Option<T> {
    const IS_LIST: bool = T::IS_LIST;
    const ALLOWED: &'static str = T::ALLOWED;

    fn parse(text: &[u8]) -> Option<Option<T>> {
        T::parse(text).map(Some)
    }

    fn shown(text: &[u8]) -> String {
        T::shown(text)
    }

    fn refusal(text: &str) -> String {
        T::refusal(text)
    }

    fn form() -> Form {
        T::form()
    }

    fn append(&mut self, more: Option<T>) {
        match (self.as_mut(), more) {
            (Some(value), Some(more)) => value.append(more),
            (None, more) => *self = more,
            (Some(_), None) => {}
        }
    }

    fn json(&self) -> Json {
        self.as_ref().map_or(Json::Null, T::json)
    }

    fn from_toml(value: &DeValue<'_>) -> Result<Option<T>, String> {
        T::from_toml(value).map(Some)
    }

    fn to_toml(&self) -> Option<Toml> {
        self.as_ref().and_then(T::to_toml)
    }
}

impl Value for bool {
    const ALLOWED: &'static str = "true or false, which may also be written yes and no or 1 and 0";
    const ALLOWED_IN_TOML: &'static str = "true or false";
    const TOML: &'static [TomlType] = &[TomlType::Bool];

    fn form() -> Form {
        Form::Switch
    }

    fn parse(text: &[u8]) -> Option<bool> {
        nix_conf::parse_bool(text)
    }

    fn json(&self) -> Json {
        (*self).into()
    }
}

impl Value for u32 {
    const ALLOWED: &'static str =
        "a whole number from 0 to 4294967295, which may end in K, M, G or T";

    fn parse(text: &[u8]) -> Option<u32> {
        u64::parse(text)?.try_into().ok()
    }

    fn json(&self) -> Json {
        (*self).into()
    }
}

impl Value for u64 {
    const ALLOWED: &'static str =
        "a whole number from 0 to 18446744073709551615, which may end in K, M, G or T";

    /// Parses a number, which may end in a binary unit as in Nix since 2.9.
    ///
    /// A number that is too large is an error here. In Nix it wraps around.
    fn parse(text: &[u8]) -> Option<u64> {
        let text = std::str::from_utf8(text).ok()?;
        let shift = match text.chars().last()?.to_ascii_uppercase() {
            'K' => 10,
            'M' => 20,
            'G' => 30,
            'T' => 40,
            _ => return text.parse().ok(),
        };
        let digits = &text[..text.len() - 1];
        digits.parse::<u64>().ok()?.checked_mul(1 << shift)
    }

    fn json(&self) -> Json {
        (*self).into()
    }
}

impl Value for String {
    const ALLOWED: &'static str = "text in UTF-8";
    const ALLOWED_IN_TOML: &'static str = "a string";

    fn parse(text: &[u8]) -> Option<String> {
        String::from_utf8(text.to_vec()).ok()
    }

    fn json(&self) -> Json {
        self.as_str().into()
    }
}

/// The URI of a store or a cache. It is shown without credentials.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UriText(pub String);

impl Deref for UriText {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl From<&str> for UriText {
    fn from(text: &str) -> UriText {
        UriText(text.to_owned())
    }
}

impl Value for UriText {
    const ALLOWED: &'static str = <String as Value>::ALLOWED;
    const ALLOWED_IN_TOML: &'static str = <String as Value>::ALLOWED_IN_TOML;

    fn parse(text: &[u8]) -> Option<UriText> {
        <String as Value>::parse(text).map(UriText)
    }

    fn json(&self) -> Json {
        redact_credentials(self).into()
    }
}

/// A file of nix.conf, or no file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OptionalFile(pub Option<PathBuf>);

impl Value for OptionalFile {
    const ALLOWED: &'static str = "an absolute path, or nothing";

    fn parse(text: &[u8]) -> Option<OptionalFile> {
        let file = match text {
            b"" => None,
            _ => Some(PathBuf::from_word(text)?),
        };
        Some(OptionalFile(file))
    }

    fn json(&self) -> Json {
        json!(self.0.as_ref().map(Word::shown))
    }
}

/// The words of a collection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct List<C>(pub C);

/// Store URIs, in their order.
pub type UrlList = List<Vec<String>>;

/// Store URIs without an order, sorted as in Nix.
pub type UrlSet = List<BTreeSet<String>>;

/// Public keys.
pub type PublicKeys = List<Vec<PublicKey>>;

/// Files. Nix takes only one, whose name may have spaces.
pub type FileList = List<Vec<PathBuf>>;

impl<C> Value for List<C>
where
    C: Clone + Extend<C::Item> + FromIterator<C::Item> + IntoIterator<Item: Word>,
{
    const IS_LIST: bool = true;
    const ALLOWED: &'static str = C::Item::ALLOWED;

    fn parse(text: &[u8]) -> Option<List<C>> {
        let words = nix_conf::words(text).map(C::Item::from_word);
        words.collect::<Option<C>>().map(List)
    }

    fn shown(text: &[u8]) -> String {
        C::Item::shown_list(text)
    }

    fn append(&mut self, more: List<C>) {
        self.0.extend(more.0);
    }

    fn word_count(&self) -> usize {
        self.0.clone().into_iter().count()
    }

    fn json(&self) -> Json {
        let words = self.0.clone().into_iter();
        words.map(|word| word.shown()).collect()
    }
}

/// A word of a list.
pub trait Word: Sized {
    /// The lists that the setting takes, for an error message.
    const ALLOWED: &'static str;
    /// Parses a word; `None` if it is invalid.
    fn from_word(word: &[u8]) -> Option<Self>;
    /// Returns the text of the word, without credentials.
    fn shown(&self) -> String;
    /// Returns the part of an invalid list that an error message may show.
    fn shown_list(text: &[u8]) -> String {
        String::from_utf8_lossy(text).into_owned()
    }
}

/// A store URI.
impl Word for String {
    const ALLOWED: &'static str = <String as Value>::ALLOWED;

    fn from_word(word: &[u8]) -> Option<String> {
        <String as Value>::parse(word)
    }

    fn shown(&self) -> String {
        redact_credentials(self)
    }
}

impl Word for PublicKey {
    const ALLOWED: &'static str = "public keys, NAME:BASE64, separated by spaces";

    fn from_word(word: &[u8]) -> Option<PublicKey> {
        PublicKey::parse(std::str::from_utf8(word).ok()?).ok()
    }

    fn shown(&self) -> String {
        self.to_string()
    }

    /// Returns only the name of the first invalid key: the text may be a secret key.
    fn shown_list(text: &[u8]) -> String {
        let text = std::str::from_utf8(text).unwrap_or_default();
        let mut words = nix_conf::words(text.as_bytes());
        let wrong = words.find(|key| PublicKey::from_word(key).is_none());
        let wrong = wrong.and_then(|key| std::str::from_utf8(key).ok());
        let wrong = wrong.unwrap_or_default();
        match (wrong.split_once(':'), PublicKey::parse(wrong)) {
            (Some((name, _)), Err(SignatureError::OtherKey { .. })) => {
                format!("{name}:… (a secret key)")
            }
            (Some((name, _)), _) => format!("{name}:…"),
            (None, _) => "…".to_owned(),
        }
    }
}

impl Word for PathBuf {
    const ALLOWED: &'static str = "absolute paths, separated by spaces";

    /// Parses an absolute path, and removes `.`, `..` and needless slashes.
    fn from_word(word: &[u8]) -> Option<PathBuf> {
        let path = Path::new(OsStr::from_bytes(word));
        path.is_absolute().then(|| canon_path(path))
    }

    fn shown(&self) -> String {
        self.to_string_lossy().into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_whole_and_may_have_a_binary_unit() {
        for (text, number) in [
            ("0", 0),
            ("007", 7),
            ("+7", 7),
            ("1k", 1024),
            ("3M", 3 << 20),
            ("1G", 1 << 30),
            ("16777215T", 16_777_215 << 40),
        ] {
            assert_eq!(u64::parse(text.as_bytes()), Some(number), "{text}");
        }
        for text in [
            "",
            "K",
            "-1",
            "1e3",
            "0x1",
            " 1",
            "1 0",
            "1KB",
            "16777216T",
            "1µ",
        ] {
            assert_eq!(u64::parse(text.as_bytes()), None, "{text}");
        }
        assert_eq!(u32::parse(b"4294967295"), Some(u32::MAX));
        assert_eq!(u32::parse(b"4294967296"), None);
        assert_eq!(u32::parse(b"4G"), None, "Nix would make 0 of it");
    }

    #[test]
    fn paths_are_absolute_and_normalized_without_the_disk() {
        let file = |text: &str| OptionalFile::parse(text.as_bytes()).map(|file| file.text());
        assert_eq!(file("/a/./../b//c/").as_deref(), Some("/b/c"));
        assert_eq!(file("/../a b").as_deref(), Some("/a b"));
        assert_eq!(file("").as_deref(), Some(""));
        assert_eq!(file("a"), None);
        let files = |text: &str| FileList::parse(text.as_bytes()).map(|files| files.text());
        assert_eq!(files(" /a  /b/ ").as_deref(), Some("/a /b"));
        assert_eq!(files("/a b"), None);
    }

    #[test]
    fn credentials_in_urls_are_not_shown() {
        for (url, shown) in [
            ("https://u:p@h/x@y", "https://h/x@y"),
            ("https://h/x?y=a@b", "https://h/x?y=a@b"),
            ("https://a@b:p@h:1", "https://h:1"),
            ("file:///a@b", "file:///a@b"),
            ("auto", "auto"),
        ] {
            assert_eq!(List(vec![url.to_owned()]).text(), shown);
            assert_eq!(
                List(BTreeSet::from([url.to_owned()])).json(),
                json!([shown])
            );
        }
    }

    #[test]
    fn invalid_key_is_not_repeated() {
        assert_eq!(PublicKeys::shown(b"own-1:secret"), "own-1:…");
        assert_eq!(PublicKeys::shown(b"secret"), "…");
        let secret = floe_format::SecretKey::from_seed("own-1", [7; 32])
            .unwrap()
            .to_text();
        let shown = PublicKeys::shown(secret.as_bytes());
        assert_eq!(shown, "own-1:… (a secret key)");
    }
}
