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

/// Removes credentials from a text that may be a URL, correct or not, also from URLs in its
/// parameters.
pub fn redact_credentials(text: &str) -> String {
    let redacted = redact_base(text);
    match redacted.split_once('?') {
        Some((base, query)) => format!("{base}?{}", redact_query(query)),
        None => redacted,
    }
}

/// Removes the login before the host.
fn redact_base(text: &str) -> String {
    match text.split_once("://") {
        Some((scheme, rest)) => format!("{scheme}://{}", without_login(rest)),
        None => without_login_of_no_url(text),
    }
}

/// Removes the login from the part of a URL behind `://`.
fn without_login(rest: &str) -> &str {
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let port = rest[..end].rsplit_once(':').map(|(_, port)| port);
    let is_port = |port: &str| port.bytes().all(|byte| byte.is_ascii_digit());
    // A slash in a password should be %2F. If it is not, the password continues to the @.
    let is_cut_short = !rest[..end].contains('@') && port.is_some_and(|port| !is_port(port));
    let end = if is_cut_short { rest.len() } else { end };
    match rest[..end].rfind('@') {
        Some(at) => &rest[at + 1..],
        None => rest,
    }
}

/// Removes the login from a text such as `USER:PASSWORD@HOST` or `http:/USER:PASSWORD@HOST`, which
/// a user may write for a URL.
fn without_login_of_no_url(text: &str) -> String {
    let is_directory = text.starts_with(['/', '.', '~']);
    let (base, query) = text.split_once('?').unwrap_or((text, ""));
    let Some(at) = base.rfind('@').filter(|_| !is_directory) else {
        return text.to_owned();
    };
    let login = &base[..at];
    let (scheme, login) = match login.split_once(":/") {
        Some((scheme, login)) => (format!("{scheme}:/"), login),
        None => (String::new(), login),
    };
    if !login.contains(':') {
        return text.to_owned();
    }
    let mark = if text.contains('?') { "?" } else { "" };
    format!("{scheme}{}{mark}{query}", &base[at + 1..])
}

/// Removes the logins from the URLs in the values of parameters, such as `endpoint`.
fn redact_query(query: &str) -> String {
    let redact = |part: &str| {
        let Some((name, value)) = part.split_once('=') else {
            return part.to_owned();
        };
        let decoded = percent_decode_str(value).decode_utf8_lossy();
        // Not the parameters of this URL, too: the text may come from a server.
        let redacted = redact_base(&decoded);
        if redacted == decoded {
            part.to_owned()
        } else {
            format!("{name}={redacted}")
        }
    };
    let parts: Vec<String> = query.split('&').map(redact).collect();
    parts.join("&")
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
            ("me:pass@host", "host"),
            ("me:pa/ss@host/b?c=d", "host/b?c=d"),
            ("http:/me:pass@host", "http:/host"),
            ("./a:b@c", "./a:b@c"),
            (
                "s3://b?endpoint=http://me:pass@host&region=r",
                "s3://b?endpoint=http://host&region=r",
            ),
            (
                "s3://b?endpoint=http%3A%2F%2Fme%3Apass%40host",
                "s3://b?endpoint=http://host",
            ),
            ("s3://b?profile=a%20b", "s3://b?profile=a%20b"),
            (&"?a=".repeat(100_000), &"?a=".repeat(100_000)),
        ] {
            assert_eq!(redact_credentials(text), shown);
        }
    }
}
