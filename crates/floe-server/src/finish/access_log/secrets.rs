//! Removes secrets from the text of clients: the login in a URL, and tokens of floe.

use std::borrow::Cow;

use crate::auth::token::PREFIX;

/// Returns a target or a URL without the login before its host, and without tokens.
pub(super) fn without_secrets(text: &str) -> Cow<'_, str> {
    let is_url = !text.starts_with('/') && text.contains("://");
    if !is_url && !text.contains(PREFIX) {
        return Cow::Borrowed(text);
    }
    let text = match is_url {
        true => without_login(text),
        false => text.to_owned(),
    };
    Cow::Owned(without_tokens(&text))
}

fn without_login(text: &str) -> String {
    let Some((scheme, rest)) = text.split_once("://") else {
        return text.to_owned();
    };
    let end = rest.find(['/', '?', '#', ' ']).unwrap_or(rest.len());
    let (authority, rest) = rest.split_at(end);
    let host = authority
        .rsplit_once('@')
        .map_or(authority, |(_, host)| host);
    format!("{scheme}://{host}{rest}")
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

/// A shorter word, such as one in the name of a package, is no token. A token that is cut at the
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
            ("/floe_server/floe_x", "/floe_server/floe_x"),
            (&format!("/x?token={token}&y"), "/x?token=floe_...&y"),
            (&format!("{token}{token}"), "floe_...floe_..."),
            (
                &format!("http://{token}@host/{token}"),
                "http://host/floe_...",
            ),
        ] {
            assert_eq!(without_secrets(text), shown, "{text}");
        }
    }
}
