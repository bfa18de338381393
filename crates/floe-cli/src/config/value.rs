//! The types of settings, parsed and printed as Nix does it.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use floe_engine::redact_credentials;
use floe_format::signature::CACHE_NIXOS_ORG_KEY;
use floe_format::{PublicKey, TrustedKeys, nix_conf};
use floe_store::canon_path;
use serde_json::{Value as Json, json};

/// The value of a setting.
pub(crate) trait Value: Clone {
    /// Whether `extra-NAME` adds to it.
    const IS_LIST: bool = false;
    /// What a text must be to be such a value, for an error.
    fn allowed() -> String;
    /// The value that a text is, if it is one.
    fn parse(text: &[u8]) -> Option<Self>;
    /// As much of a text that is no such value as may be shown.
    fn shown(text: &[u8]) -> String {
        String::from_utf8_lossy(text).into_owned()
    }
    /// Adds another value; for lists.
    fn append(&mut self, _more: Self) {}
    /// As it would stand in nix.conf.
    fn text(&self) -> String;
    /// As Nix prints it for scripts.
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

/// A number, perhaps with a binary unit. Nix takes those since 2.9, and lets what is too large wrap
/// round, which nobody can want.
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

/// Any text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Text(pub(crate) String);

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

/// Stores and caches by address, in the order in which they are asked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct UrlList(pub(crate) Vec<String>);

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

/// Addresses without an order: sorted, as Nix keeps them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct UrlSet(pub(crate) BTreeSet<String>);

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
pub(crate) struct PublicKeys {
    /// As they were written, which is how they are printed.
    pub(crate) texts: Vec<String>,
    pub(crate) parsed: TrustedKeys,
}

impl PublicKeys {
    /// The key that Nix trusts without configuration.
    pub(crate) fn nix_default() -> PublicKeys {
        PublicKeys::parse(CACHE_NIXOS_ORG_KEY.as_bytes()).expect("the built-in key is a public key")
    }
}

impl Value for PublicKeys {
    const IS_LIST: bool = true;

    fn allowed() -> String {
        "public keys, NAME:BASE64, separated by spaces".into()
    }

    fn parse(text: &[u8]) -> Option<PublicKeys> {
        let texts = words(text)?;
        let keys = texts.iter().map(|key| PublicKey::parse(key));
        let parsed = keys.collect::<Result<_, _>>().ok()?;
        Some(PublicKeys { texts, parsed })
    }

    /// The name of the first that is none: it may be a secret key, given by mistake.
    fn shown(text: &[u8]) -> String {
        let keys = words(text).unwrap_or_default();
        let wrong = keys.iter().find(|key| PublicKey::parse(key).is_err());
        let name = wrong.and_then(|key| Some(key.split_once(':')?.0));
        name.map_or_else(|| "…".to_owned(), |name| format!("{name}:…"))
    }

    fn append(&mut self, more: PublicKeys) {
        self.texts.extend(more.texts);
        self.parsed.extend(more.parsed);
    }

    fn text(&self) -> String {
        self.texts.join(" ")
    }

    fn json(&self) -> Json {
        self.texts.as_slice().into()
    }
}

/// Files, which Nix takes only one of, and whose name may then have spaces.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FileList(pub(crate) Vec<PathBuf>);

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

/// A file, or none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct OptionalFile(pub(crate) Option<PathBuf>);

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

/// The path without `.`, `..` and needless slashes, if it is absolute.
fn absolute(text: &[u8]) -> Option<PathBuf> {
    let path = Path::new(OsStr::from_bytes(text));
    path.is_absolute().then(|| canon_path(path))
}

/// Addresses without the passwords that they may carry.
fn shown_urls<'a>(urls: impl IntoIterator<Item = &'a String>) -> Vec<String> {
    urls.into_iter()
        .map(|url| redact_credentials(url))
        .collect()
}

/// What is allowed where everything is.
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
    fn paths_are_absolute_and_made_canonical_without_the_disk() {
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
    fn credentials_in_an_address_are_not_shown() {
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
    fn a_key_that_is_none_is_not_repeated() {
        assert_eq!(PublicKeys::shown(b"own-1:secret"), "own-1:…");
        assert_eq!(PublicKeys::shown(b"secret"), "…");
    }
}
