//! The XML document in which S3, and servers that follow it, say why they refuse a request.

use std::fmt;

use floe_transfer::plain_text;
use quick_xml::Reader;
use quick_xml::escape::unescape;
use quick_xml::events::{BytesText, Event};

/// The first error of a document.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ErrorDocument {
    /// The kind of the error, such as `AccessDenied`.
    pub(crate) code: String,
    /// The words of the server; empty if it has none.
    message: String,
}

impl ErrorDocument {
    /// Reads a document. A service of credentials wraps its error in another element.
    pub(crate) fn parse(body: &[u8]) -> Option<ErrorDocument> {
        let mut reader = Reader::from_str(std::str::from_utf8(body).ok()?);
        // Not every server escapes its words.
        reader.config_mut().allow_dangling_amp = true;
        let (mut is_in_error, mut code, mut message) = (false, None, String::new());
        // If the document breaks off, the parts before count.
        while let Ok(event) = reader.read_event() {
            match event {
                Event::Start(tag) => {
                    let is_code = tag.local_name().as_ref() == b"Code";
                    let is_message = tag.local_name().as_ref() == b"Message";
                    is_in_error |= tag.local_name().as_ref() == b"Error";
                    if is_in_error && (is_code || is_message) {
                        let Some(words) =
                            reader.read_text(tag.name()).ok().and_then(|it| text(&it))
                        else {
                            break;
                        };
                        if is_code {
                            code = Some(words);
                        } else {
                            message = words;
                        }
                    }
                }
                Event::End(tag) if tag.local_name().as_ref() == b"Error" => break,
                Event::Eof => break,
                _ => {}
            }
        }
        Some(ErrorDocument {
            code: code?,
            message,
        })
    }
}

impl fmt::Display for ErrorDocument {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.code)?;
        if !self.message.is_empty() {
            write!(f, ": {}", self.message)?;
        }
        Ok(())
    }
}

/// Returns a text as a part of a message, without escapes, unless it has unknown ones.
fn text(raw: &BytesText<'_>) -> Option<String> {
    let raw = raw.decode().ok()?;
    let text = unescape(&raw).unwrap_or_else(|_| raw.clone());
    Some(plain_text(&text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(body: &str) -> Option<String> {
        Some(ErrorDocument::parse(body.as_bytes())?.to_string())
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
            (
                "<Error><Code>A</Code><Message>x\r\nfloe: all is well</Message></Error>",
                "A: x floe: all is well",
            ),
            ("<Error><Code>A</Code><Mess", "A"),
            ("<Error><Code>A</Code><Message>b", "A"),
            (
                "<Error><Code>A</Code><Message>b & c</Message></Error>",
                "A: b & c",
            ),
            (
                "<Error><Code>A</Code><Message>b&nbsp;c</Message></Error>",
                "A: b&nbsp;c",
            ),
        ] {
            assert_eq!(message(body).as_deref(), Some(expected), "{body}");
        }
        for body in ["<Error><Code>", "<html>", "<R><Code>A</Code></R>", "", "no"] {
            assert_eq!(message(body), None, "{body}");
        }
    }
}
