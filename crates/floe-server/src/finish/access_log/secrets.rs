//! Removes secrets from the text of clients: the login in a URL, and tokens of floe.

use std::borrow::Cow;

use percent_encoding::percent_decode_str;

use crate::auth::token::PREFIX;

/// Returns text of a client without the logins before the hosts of its URLs, and without tokens.
pub(super) fn without_secrets(text: &str) -> Cow<'_, str> {
    if text.contains('%')
        && let Some(shown) = without_encoded_tokens(text)
    {
        return Cow::Owned(shown);
    }
    if !text.contains('@') && !text.contains(PREFIX) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(without_tokens(&without_logins(text)))
}

/// Returns a text without tokens that percent signs hide, or `None` if it has none.
fn without_encoded_tokens(text: &str) -> Option<String> {
    let decoded = percent_decode_str(text).decode_utf8_lossy();
    let shown = without_tokens(&without_logins(&decoded));
    // Otherwise the text is shown as the client has written it.
    (without_tokens(&decoded) != decoded).then_some(shown)
}

/// Returns the first line of bytes that are not a valid request without the value of a field
/// `Authorization` or `Proxy-Authorization`, wherever it begins.
pub(super) fn without_credentials(line: Cow<'_, str>) -> Cow<'_, str> {
    let lower = line.to_ascii_lowercase();
    let mut names = lower.match_indices(AUTHORIZATION);
    let colon = names.find_map(|(at, name)| {
        let rest = lower[at + name.len()..].trim_start();
        rest.starts_with(':').then(|| lower.len() - rest.len() + 1)
    });
    match colon {
        Some(end) => Cow::Owned(format!("{} ...", &line[..end])),
        None => line,
    }
}

/// The end of the names of the fields with credentials.
const AUTHORIZATION: &str = "authorization";

/// Leaves out `USER:PASSWORD@` at the beginning of a word, and `USER@` after `//`.
fn without_logins(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for word in text.split_inclusive(WORD_ENDS) {
        let is_host = shown.ends_with("//");
        shown.push_str(match word.rsplit_once('@') {
            Some((login, rest)) if is_host || login.contains(':') => rest,
            _ => word,
        });
    }
    shown
}

fn without_tokens(text: &str) -> String {
    let mut parts = text.split(PREFIX);
    let mut shown = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let end = part.find(|c: char| !c.is_ascii_alphanumeric());
        let (token, rest) = part.split_at(end.unwrap_or(part.len()));
        shown.push_str(PREFIX);
        shown.push_str(if token.len() >= TOKEN_LEN_MIN {
            "..."
        } else {
            token
        });
        shown.push_str(rest);
    }
    shown
}

/// The characters that end a word of a target, of a URL or of a line.
const WORD_ENDS: [char; 10] = ['/', '?', '#', ' ', '&', '=', ',', ';', '"', '\''];

/// A shorter word, such as one in the name of a package, is not a token. A token that is cut at the
/// end of a line may have fewer characters than a whole one.
const TOKEN_LEN_MIN: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn login_and_token_in_a_url_are_removed() {
        let token = format!("{PREFIX}{}", "0a".repeat(26));
        for (text, shown) in [
            ("/nar/x.nar?a=b@c", "/nar/x.nar?a=b@c"),
            ("http://u:p@host/a@b?c", "http://host/a@b?c"),
            ("http://host/a@b", "http://host/a@b"),
            ("GET http://u:p@q@host HTTP/1.1", "GET http://host HTTP/1.1"),
            ("//u:p@host/", "//host/"),
            ("u:p@host/", "host/"),
            ("CONNECT u:p@host:443", "CONNECT host:443"),
            ("/x?u=http://u:p@host/&v", "/x?u=http://host/&v"),
            ("/floe_server/floe_x", "/floe_server/floe_x"),
            (&format!("/x?token={token}&y"), "/x?token=floe_...&y"),
            (&format!("{token}{token}"), "floe_...floe_..."),
            (
                &format!("/x?token={}", token.replace('_', "%5f")),
                "/x?token=floe_...",
            ),
            (&format!("/x?token=%66{}", &token[1..]), "/x?token=floe_..."),
            (
                &format!("/x?token={}", token.replacen('0', "%30", 1)),
                "/x?token=floe_...",
            ),
            ("/nar/a%2fb", "/nar/a%2fb"),
            (
                &format!("http://{token}@host/{token}"),
                "http://host/floe_...",
            ),
        ] {
            assert_eq!(without_secrets(text), shown, "{text}");
        }
    }

    #[test]
    fn credentials_in_a_first_line_are_removed() {
        for (line, shown) in [
            ("Authorization: Basic dTpw", "Authorization: ..."),
            ("PROXY-AUTHORIZATION: Bearer x", "PROXY-AUTHORIZATION: ..."),
            (" Authorization : Basic dTpw", " Authorization : ..."),
            ("x\rAuthorization: Basic dTpw", "x\rAuthorization: ..."),
            (
                "GET /authorization\rAuthorization: Basic dTpw",
                "GET /authorization\rAuthorization: ...",
            ),
            ("GET /authorization HTTP/9", "GET /authorization HTTP/9"),
            ("auth\u{e9}", "auth\u{e9}"),
        ] {
            assert_eq!(without_credentials(line.into()), shown);
        }
    }
}
