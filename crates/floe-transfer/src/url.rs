//! URLs, and texts of URLs without credentials.

use ::url::Url;
use percent_encoding::percent_decode_str;

use crate::error::Error;

/// Parses a URL. The error hides the credentials of `text`.
///
/// Errors: [`Error::InvalidStoreUri`].
pub fn parse_url(text: &str) -> Result<Url, Error> {
    Url::parse(text).map_err(|error| Error::InvalidStoreUri {
        text: redact_credentials(text),
        reason: error.to_string(),
    })
}

/// Returns the text of a URL without credentials.
pub fn redact(url: &Url) -> String {
    let mut url = url.clone();
    // Both calls fail for URLs that cannot have credentials.
    let _: Result<(), ()> = url.set_username("");
    let _: Result<(), ()> = url.set_password(None);
    url.to_string()
}

/// Removes credentials from a text that may be a URL, correct or not.
pub fn redact_credentials(text: &str) -> String {
    let Some((scheme, rest)) = text.split_once("://") else {
        return text.to_owned();
    };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let port = rest[..end].rsplit_once(':').map(|(_, port)| port);
    let is_port = |port: &str| port.bytes().all(|byte| byte.is_ascii_digit());
    // A slash in a password should be %2F. If it is not, the password continues to the @.
    let is_cut_short = !rest[..end].contains('@') && port.is_some_and(|port| !is_port(port));
    let end = if is_cut_short { rest.len() } else { end };
    match rest[..end].rfind('@') {
        Some(at) => format!("{scheme}://{}", &rest[at + 1..]),
        None => text.to_owned(),
    }
}

/// Decodes a percent-encoded part of a URL.
pub fn percent_decode(text: &str) -> Result<Vec<u8>, String> {
    // percent_encoding keeps a `%` that begins no escape. floe refuses it.
    let is_escape = |text: &str| text.bytes().take(2).filter(u8::is_ascii_hexdigit).count() == 2;
    if !text.split('%').skip(1).all(is_escape) {
        return Err(format!("{text:?} has a % without two hexadecimal digits"));
    }
    Ok(percent_decode_str(text).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percent_decode_malformed_escape_is_refused() {
        for (text, bytes) in [
            ("", &b""[..]),
            ("a+b é", "a+b é".as_bytes()),
            ("%2F%2f%00%fF", b"//\0\xff"),
            ("%252F%25", b"%2F%"),
            ("a%20b%", b""),
            ("%", b""),
            ("%2", b""),
            ("%%32", b""),
            ("%2%41", b""),
            ("%g0", b""),
            ("%0g", b""),
            ("%+1", b""),
            ("% 1", b""),
            ("%1é", b""),
        ] {
            match percent_decode(text) {
                Ok(decoded) => assert_eq!(decoded, bytes, "{text:?}"),
                Err(reason) => {
                    assert!(
                        bytes.is_empty() && reason.contains("hexadecimal"),
                        "{text:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn redact_credentials_removes_user_and_keeps_at_in_path() {
        for (text, shown) in [
            ("https://a.example/b@c", "https://a.example/b@c"),
            (
                "https://me:pass@a.example:80/b@c",
                "https://a.example:80/b@c",
            ),
            ("https://me@a.example?b@c", "https://a.example?b@c"),
            ("https://me:pa/ss@a.example/b", "https://a.example/b"),
            ("https://me:p@ss@a.example", "https://a.example"),
            ("https://[::1]:80/b@c", "https://[::1]:80/b@c"),
            ("a@b", "a@b"),
        ] {
            assert_eq!(redact_credentials(text), shown);
        }
    }
}
