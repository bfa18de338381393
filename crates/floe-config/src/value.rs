//! The types of settings, parsed and printed as Nix does.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use floe_format::{PublicKey, nix_conf};
use floe_store::canon_path;
use floe_transfer::redact_credentials;
use serde_json::{Value as Json, json};

/// The value of a setting.
pub trait Value: Clone {
    /// Whether `extra-NAME` appends to the value.
    const IS_LIST: bool = false;
    /// Describes the values that the setting takes, for an error message.
    fn allowed() -> String;
    /// Parses a value; `None` if the text is not one.
    fn parse(text: &[u8]) -> Option<Self>;
    /// Returns the part of an invalid text that an error message may show.
    fn shown(text: &[u8]) -> String {
        String::from_utf8_lossy(text).into_owned()
    }
    /// Appends another list.
    fn append(&mut self, _more: Self) {}
    /// Returns the value as nix.conf would hold it.
    fn text(&self) -> String;
    /// Returns the value as `nix config show --json` prints it.
    fn json(&self) -> Json;
}

impl Value for bool {
    fn allowed() -> String {
        "true or false, which may also be written yes and no or 1 and 0".into()
    }

    fn parse(text: &[u8]) -> Option<bool> {
        match text {
            b"true" | b"yes" | b"1" => Some(true),
            b"false" | b"no" | b"0" => Some(false),
            _ => None,
        }
    }

    fn text(&self) -> String {
        self.to_string()
    }

    fn json(&self) -> Json {
        (*self).into()
    }
}

impl Value for u32 {
    fn allowed() -> String {
        whole_number(u32::MAX.into())
    }

    fn parse(text: &[u8]) -> Option<u32> {
        parse_number(text)?.try_into().ok()
    }

    fn text(&self) -> String {
        self.to_string()
    }

    fn json(&self) -> Json {
        (*self).into()
    }
}

impl Value for u64 {
    fn allowed() -> String {
        whole_number(u64::MAX)
    }

    fn parse(text: &[u8]) -> Option<u64> {
        parse_number(text)
    }

    fn text(&self) -> String {
        self.to_string()
    }

    fn json(&self) -> Json {
        (*self).into()
    }
}

fn whole_number(max: u64) -> String {
    format!("a whole number from 0 to {max}, which may end in K, M, G or T")
}

/// Parses a number, which may end in a binary unit as in Nix since 2.9.
///
/// A number that is too large is an error here. In Nix it wraps around.
fn parse_number(text: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(text).ok()?;
    let unit = text.chars().last()?.to_ascii_uppercase();
    let shift = match unit {
        'K' => 10,
        'M' => 20,
        'G' => 30,
        'T' => 40,
        _ => 0,
    };
    let digits = match shift {
        0 => text,
        _ => &text[..text.len() - 1],
    };
    digits.parse::<u64>().ok()?.checked_mul(1 << shift)
}

/// A text in UTF-8.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Text(pub String);

impl Value for Text {
    fn allowed() -> String {
        UTF_8.into()
    }

    fn parse(text: &[u8]) -> Option<Text> {
        String::from_utf8(text.to_vec()).ok().map(Text)
    }

    fn text(&self) -> String {
        self.0.clone()
    }

    fn json(&self) -> Json {
        self.0.as_str().into()
    }
}

/// Store URIs, in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UrlList(pub Vec<String>);

impl Value for UrlList {
    const IS_LIST: bool = true;

    fn allowed() -> String {
        UTF_8.into()
    }

    fn parse(text: &[u8]) -> Option<UrlList> {
        words(text).map(UrlList)
    }

    fn append(&mut self, more: UrlList) {
        self.0.extend(more.0);
    }

    fn text(&self) -> String {
        shown_urls(&self.0).join(" ")
    }

    fn json(&self) -> Json {
        shown_urls(&self.0).into()
    }
}

/// Store URIs without an order, sorted as in Nix.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UrlSet(pub BTreeSet<String>);

impl Value for UrlSet {
    const IS_LIST: bool = true;

    fn allowed() -> String {
        UTF_8.into()
    }

    fn parse(text: &[u8]) -> Option<UrlSet> {
        words(text).map(|words| UrlSet(words.into_iter().collect()))
    }

    fn append(&mut self, more: UrlSet) {
        self.0.extend(more.0);
    }

    fn text(&self) -> String {
        shown_urls(&self.0).join(" ")
    }

    fn json(&self) -> Json {
        shown_urls(&self.0).into()
    }
}

/// Public keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PublicKeys(pub Vec<PublicKey>);

impl PublicKeys {
    fn texts(&self) -> Vec<String> {
        self.0.iter().map(PublicKey::to_string).collect()
    }
}

impl Value for PublicKeys {
    const IS_LIST: bool = true;

    fn allowed() -> String {
        "public keys, NAME:BASE64, separated by spaces".into()
    }

    fn parse(text: &[u8]) -> Option<PublicKeys> {
        let keys = words(text)?.into_iter();
        let keys = keys.map(|key| PublicKey::parse(&key).ok());
        keys.collect::<Option<_>>().map(PublicKeys)
    }

    /// Returns only the name of the first invalid key: the text may be a secret key.
    fn shown(text: &[u8]) -> String {
        let keys = words(text).unwrap_or_default();
        let wrong = keys.iter().find(|key| PublicKey::parse(key).is_err());
        let name = wrong.and_then(|key| Some(key.split_once(':')?.0));
        name.map_or_else(|| "…".to_owned(), |name| format!("{name}:…"))
    }

    fn append(&mut self, more: PublicKeys) {
        self.0.extend(more.0);
    }

    fn text(&self) -> String {
        self.texts().join(" ")
    }

    fn json(&self) -> Json {
        self.texts().into()
    }
}

/// Files. Nix takes only one, whose name may have spaces.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileList(pub Vec<PathBuf>);

impl Value for FileList {
    const IS_LIST: bool = true;

    fn allowed() -> String {
        "absolute paths, separated by spaces".into()
    }

    fn parse(text: &[u8]) -> Option<FileList> {
        let files = nix_conf::words(text).map(absolute);
        files.collect::<Option<_>>().map(FileList)
    }

    fn append(&mut self, more: FileList) {
        self.0.extend(more.0);
    }

    fn text(&self) -> String {
        let files: Vec<_> = self.0.iter().map(|file| file.to_string_lossy()).collect();
        files.join(" ")
    }

    fn json(&self) -> Json {
        self.0.iter().map(|file| file.to_string_lossy()).collect()
    }
}

/// A file, or no file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OptionalFile(pub Option<PathBuf>);

impl Value for OptionalFile {
    fn allowed() -> String {
        "an absolute path, or nothing".into()
    }

    fn parse(text: &[u8]) -> Option<OptionalFile> {
        match text {
            b"" => Some(OptionalFile(None)),
            _ => absolute(text).map(|file| OptionalFile(Some(file))),
        }
    }

    fn text(&self) -> String {
        let file = self.0.as_deref().unwrap_or(Path::new(""));
        file.to_string_lossy().into_owned()
    }

    fn json(&self) -> Json {
        json!(self.0.as_ref().map(|file| file.to_string_lossy()))
    }
}

fn words(text: &[u8]) -> Option<Vec<String>> {
    nix_conf::words(text)
        .map(|word| String::from_utf8(word.to_vec()).ok())
        .collect()
}

/// Parses an absolute path, and removes `.`, `..` and needless slashes.
fn absolute(text: &[u8]) -> Option<PathBuf> {
    let path = Path::new(OsStr::from_bytes(text));
    path.is_absolute().then(|| canon_path(path))
}

/// Returns URLs without user names and passwords.
fn shown_urls<'a>(urls: impl IntoIterator<Item = &'a String>) -> Vec<String> {
    urls.into_iter()
        .map(|url| redact_credentials(url))
        .collect()
}

/// The values of a setting that takes any text.
const UTF_8: &str = "text in UTF-8";

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
            assert_eq!(UrlList(vec![url.into()]).text(), shown);
            assert_eq!(UrlSet([url.to_owned()].into()).json(), json!([shown]));
        }
    }

    #[test]
    fn invalid_key_is_not_repeated() {
        assert_eq!(PublicKeys::shown(b"own-1:secret"), "own-1:…");
        assert_eq!(PublicKeys::shown(b"secret"), "…");
    }
}
