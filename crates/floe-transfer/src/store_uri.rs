//! The URI of a store or binary cache, split into its parts as Nix's `StoreReference` is.

use std::fmt;
use std::path::PathBuf;

use floe_format::nix_conf;

use crate::error::Error;
use crate::url::{percent_decode, redact_credentials};

/// The parts of a store URI. A directory stands for `local://DIRECTORY`, and `file:/DIRECTORY` for
/// `file:///DIRECTORY`.
///
/// A text is a directory if it begins with `/`, `./`, `../` or `~/`. Any other text without `://`
/// has no scheme: it may name a directory that exists, which this type does not find out.
///
/// The parts are not checked: each kind of store knows its own parameters. See `resolve_store_uri`
/// of floe-copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreUri {
    /// The scheme, such as `https`; for a URI that is one word, that word, such as `auto`; `local`
    /// for a directory; empty for a text that is none of them.
    pub scheme: String,
    /// The text between `://` and `?`; the directory; empty for a URI that is one word.
    pub address: String,
    /// The parameters in their order, percent-decoded.
    pub parameters: Vec<(String, String)>,
}

impl StoreUri {
    /// Splits a store URI.
    ///
    /// Errors: [`Error::InvalidStoreUri`] for an empty text and for parameters that are not
    /// `NAME=VALUE`.
    pub fn parse(text: &str) -> Result<StoreUri, Error> {
        let (base, query) = text.split_once('?').unwrap_or((text, ""));
        let (scheme, address) = match base.split_once("://") {
            Some(parts) => parts,
            None if base.is_empty() => return Err(invalid(text, "it is empty")),
            None if WORDS.contains(&base) => (base, ""),
            None if is_directory(base) => ("local", base),
            None => match base.strip_prefix("file:") {
                Some(path) => ("file", path),
                None => ("", base),
            },
        };
        Ok(StoreUri {
            scheme: scheme.into(),
            address: address.into(),
            parameters: parse_query(query).map_err(|reason| invalid(text, reason))?,
        })
    }

    /// Returns the error for a URI that names no usable store. It hides credentials.
    pub fn invalid(&self, reason: impl Into<String>) -> Error {
        invalid(&self.to_string(), reason)
    }
}

impl fmt::Display for StoreUri {
    /// Prints the URI without parameters. It may contain credentials.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&*self.scheme, &*self.address) {
            (word, "") if WORDS.contains(&word) => f.write_str(word),
            ("", text) => f.write_str(text),
            (scheme, address) => write!(f, "{scheme}://{address}"),
        }
    }
}

/// Parses the value of a parameter that is a number, such as `priority`.
pub fn parse_number(name: &str, value: &str) -> Result<i32, String> {
    let parsed = value.parse();
    parsed.map_err(|_| format!("{name} is not a number: {value:?}"))
}

/// Parses the value of a parameter that is a boolean, in the words of Nix's settings.
pub fn parse_bool(name: &str, value: &str) -> Result<bool, String> {
    let parsed = nix_conf::parse_bool(value.as_bytes());
    parsed.ok_or_else(|| format!("{name} is neither true nor false: {value:?}"))
}

/// Makes a path absolute.
pub fn absolute(text: &str) -> Result<PathBuf, String> {
    std::path::absolute(text).map_err(|error| format!("cannot use the path {text:?}: {error}"))
}

/// Decodes a percent-encoded part of a URI that must be UTF-8.
pub fn percent_decode_text(text: &str) -> Result<String, String> {
    String::from_utf8(percent_decode(text)?).map_err(|_| format!("{text:?} is not UTF-8"))
}

/// Whether a text can only be a directory.
fn is_directory(text: &str) -> bool {
    matches!(text, "." | ".." | "~")
        || ["/", "./", "../", "~/"]
            .iter()
            .any(|it| text.starts_with(it))
}

fn invalid(text: &str, reason: impl Into<String>) -> Error {
    Error::InvalidStoreUri {
        text: redact_credentials(text),
        reason: reason.into(),
    }
}

fn parse_query(query: &str) -> Result<Vec<(String, String)>, String> {
    let parts = query.split('&').filter(|part| !part.is_empty());
    let parse = |part: &str| {
        let (name, value) = part
            .split_once('=')
            .ok_or_else(|| format!("the parameter {part:?} has no ="))?;
        Ok((percent_decode_text(name)?, percent_decode_text(value)?))
    };
    parts.map(parse).collect()
}

/// URIs that consist of one word.
const WORDS: [&str; 3] = ["auto", "local", "daemon"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn store_uri_splits_into_its_parts() {
        for (text, scheme, address) in [
            ("auto", "auto", ""),
            ("local?root=/mnt", "local", ""),
            ("/mnt?state=%2Fvar", "local", "/mnt"),
            ("..", "local", ".."),
            ("./a:b", "local", "./a:b"),
            ("~/s", "local", "~/s"),
            ("file:/c?trusted=1", "file", "/c"),
            ("file:c", "file", "c"),
            ("s3:bucket", "", "s3:bucket"),
            ("cache.example.org/x", "", "cache.example.org/x"),
            ("file:///c", "file", "/c"),
            ("https://h/x/?a=b&&c=%20d", "https", "h/x/"),
            ("ssh-ng://user@host", "ssh-ng", "user@host"),
        ] {
            let uri = StoreUri::parse(text).unwrap();
            assert_eq!((&*uri.scheme, &*uri.address), (scheme, address), "{text}");
        }
        let uri = StoreUri::parse("https://h/x?a=b&&c=%20d").unwrap();
        let parameters = [("a", "b"), ("c", " d")].map(|(n, v)| (n.into(), v.into()));
        assert_eq!(uri.parameters, parameters);
    }

    #[test]
    fn malformed_store_uri_names_the_cause() {
        for (text, cause) in [
            ("", "empty"),
            ("?root=/x", "empty"),
            ("file:///c?compression", "has no ="),
            ("/a?b=%z", "hexadecimal"),
            ("/a?b=%ff", "not UTF-8"),
        ] {
            let message = StoreUri::parse(text).unwrap_err().to_string();
            assert!(message.contains(cause), "{text}: {message}");
        }
    }

    #[test]
    fn store_uri_error_hides_credentials() {
        let uri = StoreUri::parse("https://user:secret@c?x=y").unwrap();
        let messages = [
            uri.invalid("unknown parameter x"),
            StoreUri::parse("https://user:secret@c?x").unwrap_err(),
        ];
        for message in messages.map(|error| error.to_string()) {
            assert!(!message.contains("secret"), "{message}");
        }
    }
}
