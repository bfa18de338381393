//! Why a server did not take an object, and what the user can do.

use floe_transfer::Error;
use reqwest::header::CONTENT_TYPE;
use reqwest::{StatusCode, Url};

use crate::error::CacheError;
use crate::request::{Explanation, Reply};

/// Makes the error of a write out of one of a request.
pub(super) fn of_request(error: Error) -> Error {
    match error {
        Error::Fetch {
            url,
            reason,
            status,
            transient,
            ..
        } => {
            let advice = match status {
                Some(429) => {
                    "; try again later, or with fewer connections (--option http-connections 4)"
                }
                Some(503) => "; try again later",
                Some(507) => "; free some space there",
                _ => "",
            };
            CacheError::Write {
                url,
                reason: format!("{reason}{advice}"),
                transient,
            }
            .into()
        }
        error => error,
    }
}

/// Makes the error of a status that no other attempt would change. `has_directories` tells whether
/// the server keeps objects as files, as far as is known.
pub(super) fn of_reply(
    url: &Url,
    reply: &Reply,
    (explanation, has_directories): (Option<Explanation>, bool),
) -> Error {
    let reason = match plain_text(reply) {
        // The text of the server has its own advice.
        Some(words) if explanation.is_none() => {
            format!("the server answered {}: {words}", reply.status)
        }
        _ => reason(reply.status, explanation, has_directories),
    };
    CacheError::Write {
        url: floe_transfer::url::redact(url),
        reason,
        transient: false,
    }
    .into()
}

/// Returns the words of a server such as `floe serve`, which are one line of text and no page.
fn plain_text(reply: &Reply) -> Option<&str> {
    let content_type = reply.headers.get(CONTENT_TYPE)?.to_str().ok()?;
    let text = std::str::from_utf8(&reply.body).ok()?.trim_end();
    let is_line =
        !text.is_empty() && text.len() <= WORDS_LEN_MAX && !text.contains(char::is_control);
    (content_type.starts_with("text/plain") && is_line).then_some(text)
}

/// The longest words of a server that are shown, in bytes.
const WORDS_LEN_MAX: usize = 1024;

/// Makes the error of a server that has replied to a part of an object.
pub(super) fn too_early(url: &Url) -> Error {
    CacheError::Write {
        url: floe_transfer::url::redact(url),
        reason: "the server replied before the end of the object".into(),
        transient: true,
    }
    .into()
}

/// Returns why a server did not do what floe wanted, and what the user can do.
pub(crate) fn reason(
    status: StatusCode,
    explanation: Option<Explanation>,
    has_directories: bool,
) -> String {
    let advice = match status {
        StatusCode::UNAUTHORIZED => {
            "; add a user and a password for it to a netrc file, or check those that are there"
        }
        StatusCode::FORBIDDEN => "; check whether this user may write there",
        // A server of files needs the directory of a new file.
        StatusCode::NOT_FOUND | StatusCode::CONFLICT
            if explanation.is_none() && has_directories =>
        {
            "; create the directory on the server"
        }
        StatusCode::NOT_FOUND => "; check the URL",
        StatusCode::METHOD_NOT_ALLOWED | StatusCode::NOT_IMPLEMENTED => {
            "; the server takes no uploads (PUT) at this URL"
        }
        StatusCode::CONFLICT => "; another writer may be changing the object, so try again",
        StatusCode::LENGTH_REQUIRED => {
            "; the server requires Content-Length, but floe uploads a large NAR while it \
             compresses it"
        }
        StatusCode::PAYLOAD_TOO_LARGE => {
            "; raise the limit of the server or of the proxy before it (client_max_body_size with \
             nginx)"
        }
        StatusCode::INSUFFICIENT_STORAGE => "; free some space there",
        _ => "",
    };
    match explanation {
        None => format!("the server answered {status}{advice}"),
        Some(Explanation {
            message,
            advice: own,
            ..
        }) => {
            let advice = if own.is_empty() { advice } else { own };
            format!("the server answered {status} ({message}){advice}")
        }
    }
}

#[cfg(test)]
mod tests {
    use reqwest::header::{HeaderMap, HeaderValue};

    use super::*;

    fn text_of(status: u16, body: &str) -> String {
        text_of_type(status, "text/html", body)
    }

    fn text_of_type(status: u16, content_type: &'static str, body: &str) -> String {
        let url = Url::parse("https://user:secret@cache.example.org/nar/a").unwrap();
        let reply = Reply {
            status: StatusCode::from_u16(status).unwrap(),
            headers: HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static(content_type))]),
            body: body.into(),
        };
        of_reply(&url, &reply, (None, true)).to_string()
    }

    #[test]
    fn statuses_have_their_own_advice_and_no_secret() {
        for (status, advice) in [
            (401, "netrc"),
            (403, "may write there"),
            (404, "create the directory"),
            (405, "takes no uploads"),
            (409, "create the directory"),
            (411, "requires Content-Length"),
            (413, "client_max_body_size"),
            (507, "free some space"),
        ] {
            let text = text_of(status, "<html>no</html>");
            assert!(text.starts_with("cannot write https://cache"), "{text}");
            assert!(text.contains(advice), "{text}");
            assert!(!text.contains("secret"), "{text}");
        }
    }

    #[test]
    fn lines_of_the_server_are_shown() {
        let plain = |status, body| text_of_type(status, "text/plain; charset=utf-8", body);
        let text = plain(403, "no key has signed it; sign it\n");
        assert!(
            text.ends_with("403 Forbidden: no key has signed it; sign it"),
            "{text}"
        );
        for body in ["", "two\nlines", "\u{1b}[31m"] {
            assert!(plain(507, body).contains("free some space"), "{body:?}");
        }
        let page = text_of(507, "a word");
        assert!(page.contains("free some space"), "{page}");
    }

    #[test]
    fn words_of_the_server_are_shown() {
        let explain = |advice| {
            let explanation = Explanation {
                message: "NotThere: It does not exist".into(),
                advice,
                is_denial: false,
            };
            reason(StatusCode::NOT_FOUND, Some(explanation), true)
        };
        let text = "the server answered 404 Not Found (NotThere: It does not exist)";
        let own = "; check the name";
        assert_eq!(explain(own), format!("{text}{own}"));
        assert_eq!(explain(""), format!("{text}; check the URL"));
    }
}
