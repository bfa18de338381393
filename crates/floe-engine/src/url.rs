//! URLs, and what of them may be shown.

use reqwest::Url;

use crate::error::Error;

pub(crate) fn parse_url(text: &str) -> Result<Url, Error> {
    Url::parse(text).map_err(|error| Error::Location {
        text: without_credentials(text),
        reason: error.to_string(),
    })
}

/// A URL that may be shown: without the password that it may carry.
pub(crate) fn redact(url: &Url) -> String {
    let mut url = url.clone();
    // These fail for URLs that cannot have credentials.
    let _: Result<(), ()> = url.set_username("");
    let _: Result<(), ()> = url.set_password(None);
    url.to_string()
}

/// The same for a text that may be no URL, or one that was written wrongly.
pub fn without_credentials(text: &str) -> String {
    let Some((scheme, rest)) = text.split_once("://") else {
        return text.to_owned();
    };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let port = rest[..end].rsplit_once(':').map(|(_, port)| port);
    let is_port = |port: &str| port.bytes().all(|byte| byte.is_ascii_digit());
    // A slash that somebody forgot to write as %2F belongs to the password, which goes on to the @.
    let is_cut_short = !rest[..end].contains('@') && port.is_some_and(|port| !is_port(port));
    let end = if is_cut_short { rest.len() } else { end };
    match rest[..end].rfind('@') {
        Some(at) => format!("{scheme}://{}", &rest[at + 1..]),
        None => text.to_owned(),
    }
}

/// The bytes that a part of a URL stands for.
pub(crate) fn percent_decode(text: &str) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        rest = tail;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let digit = |byte: &u8| char::from(*byte).to_digit(16);
        match tail {
            [high, low, after @ ..] => match (digit(high), digit(low)) {
                (Some(high), Some(low)) => {
                    bytes.push((high * 16 + low) as u8);
                    rest = after;
                }
                _ => return Err(format!("{text:?} has a % without two hexadecimal digits")),
            },
            _ => return Err(format!("{text:?} has a % without two hexadecimal digits")),
        }
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_is_not_shown_and_an_at_in_a_path_is() {
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
            assert_eq!(without_credentials(text), shown);
        }
    }
}
