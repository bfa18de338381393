//! The errors of S3, which are small XML documents.

use quick_xml::Reader;
use quick_xml::escape::unescape;
use quick_xml::events::{BytesText, Event};

use crate::request::Explanation;

/// Returns the cause of a refusal, if the body of the reply has it.
pub(super) fn explain(body: &[u8]) -> Option<Explanation> {
    let (code, message) = parse(body)?;
    Some(Explanation {
        advice: advice(&code),
        // A bucket that must not be listed hides what it does not have.
        is_denial: code == "AccessDenied",
        message: if message.is_empty() {
            code
        } else {
            format!("{code}: {message}")
        },
    })
}

/// Returns the code and the message of the first error in a document. A service of credentials
/// wraps its error in another element.
fn parse(body: &[u8]) -> Option<(String, String)> {
    let mut reader = Reader::from_str(std::str::from_utf8(body).ok()?);
    let (mut is_in_error, mut code, mut message) = (false, None, String::new());
    // If the document breaks off, the parts before count.
    while let Ok(event) = reader.read_event() {
        match event {
            Event::Start(tag) => match tag.local_name().as_ref() {
                b"Error" => is_in_error = true,
                b"Code" if is_in_error => code = Some(text(&reader.read_text(tag.name()).ok()?)?),
                b"Message" if is_in_error => {
                    message = text(&reader.read_text(tag.name()).ok()?)?;
                }
                _ => {}
            },
            Event::End(tag) if tag.local_name().as_ref() == b"Error" => break,
            Event::Eof => break,
            _ => {}
        }
    }
    Some((code?, message))
}

fn text(raw: &BytesText<'_>) -> Option<String> {
    let raw = raw.decode().ok()?;
    Some(unescape(&raw).ok()?.trim().to_owned())
}

/// Returns what the user can do about an error with a code, as the end of a sentence. The text is
/// empty if the error needs no advice.
fn advice(code: &str) -> &'static str {
    match code {
        "AuthorizationHeaderMalformed" | "IllegalLocationConstraintException" => {
            "; name the region of the bucket with region= in the URL"
        }
        "PermanentRedirect" => "; name the region of the bucket with region= or endpoint=",
        "InvalidAccessKeyId" | "SignatureDoesNotMatch" => "; check the credentials",
        "ExpiredToken" | "InvalidToken" => "; get new credentials",
        "NoSuchBucket" => "; check the name of the bucket",
        "RequestTimeTooSkewed" => "; set the clock of this machine",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(body: &str) -> Option<String> {
        Some(explain(body.as_bytes())?.message)
    }

    #[test]
    fn code_and_message_are_found() {
        for (body, expected) in [
            ("<Error><Code>A</Code></Error>", "A"),
            (
                "<?xml version=\"1.0\"?>\n<Error><Code>A</Code><Message> b </Message></Error>",
                "A: b",
            ),
            (
                "<Error><Code>A</Code><Message>&#34;b&#34; &amp;lt;</Message></Error>",
                "A: \"b\" &lt;",
            ),
            (
                "<R xmlns=\"https://x\"><Error><Type/><Code>A</Code></Error><Code>B</Code></R>",
                "A",
            ),
            ("<Error><Code>A</Code><Mess", "A"),
        ] {
            assert_eq!(message(body).as_deref(), Some(expected), "{body}");
        }
        for body in ["<Error><Code>", "<html>", "<R><Code>A</Code></R>", "", "no"] {
            assert_eq!(message(body), None, "{body}");
        }
    }

    #[test]
    fn known_codes_have_advice() {
        let cause = |code: &str| {
            let body = format!("<Error><Code>{code}</Code><Message>m</Message></Error>");
            explain(body.as_bytes()).unwrap()
        };
        assert_eq!(
            cause("NoSuchBucket").advice,
            "; check the name of the bucket"
        );
        assert!(cause("AccessDenied").is_denial);
        let unknown = cause("Unknown");
        assert!(unknown.advice.is_empty() && !unknown.is_denial);
    }
}
