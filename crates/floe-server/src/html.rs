//! The frame of all HTML pages: one style sheet, and no scripts.

use std::sync::LazyLock;

use floe_format::Hash;

use crate::body::text::Text;
use crate::http::response::Response;

/// Returns a page.
pub(crate) fn page(title: &str, body: &str) -> String {
    let title = escaped(title);
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<title>{title}</title>\n\
         <style>{STYLE}</style>\n</head>\n<body>\n<main>\n{body}</main>\n</body>\n</html>\n"
    )
}

/// Responds with a page. `fields` tell how long a client may keep it.
pub(crate) fn respond(status: u16, fields: &str, page: impl Into<Text>) -> Response {
    let fields = format!("{FIELDS}{fields}Content-Security-Policy: {}\r\n", *POLICY);
    Response::text(status, fields, page)
}

/// Replaces the characters that have a meaning in HTML, and control characters.
pub(crate) fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for char in text.chars() {
        match char {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            '\n' => escaped.push('\n'),
            char if char.is_control() => escaped.push(char::REPLACEMENT_CHARACTER),
            char => escaped.push(char),
        }
    }
    escaped
}

/// The policy that lets a browser use the style of a page and its forms, and nothing else.
static POLICY: LazyLock<String> = LazyLock::new(|| {
    let digest = Hash::sha256(floe_hash::sha256(STYLE.as_bytes())).digest_base64();
    format!(
        "default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'self'; \
         frame-ancestors 'none'"
    )
});

const STYLE: &str = include_str!("page.css");

const FIELDS: &str = "Content-Type: text/html; charset=utf-8\r\n\
     X-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\n";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_stay_texts() {
        assert_eq!(
            escaped("<a href=\"x\">&'\u{1b}[31m\u{85}\n"),
            "&lt;a href=&quot;x&quot;&gt;&amp;&#39;\u{fffd}[31m\u{fffd}\n"
        );
    }
}
