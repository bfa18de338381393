//! The errors of S3, which are small XML documents.

use crate::request::Explanation;

/// Returns the cause of a refusal, if the body of the reply has it.
pub(super) fn explain(body: &[u8]) -> Option<Explanation> {
    let message = s3_message(body)?;
    let code = message.split(':').next().unwrap_or_default();
    Some(Explanation {
        advice: advice(code),
        // A bucket that must not be listed hides what it does not have.
        is_denial: code == "AccessDenied",
        message,
    })
}

/// Returns the code and the message in an error of S3, which is a small XML document.
fn s3_message(body: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(body).ok()?;
    let (_, error) = text.split_once("<Error>")?;
    let value = |name: &str| {
        let (_, rest) = error.split_once(&format!("<{name}>"))?;
        Some(rest.split_once('<')?.0.trim())
    };
    let code = value("Code")?;
    Some(match value("Message") {
        Some(message) if !message.is_empty() => format!("{code}: {}", unescape(message)),
        _ => code.to_owned(),
    })
}

/// Replaces the entities of XML.
fn unescape(text: &str) -> String {
    let mut text = text.to_owned();
    // The ampersand is the last, because it may begin another entity.
    for (entity, character) in [
        ("&#34;", "\""),
        ("&quot;", "\""),
        ("&#39;", "'"),
        ("&apos;", "'"),
        ("&lt;", "<"),
        ("&gt;", ">"),
        ("&amp;", "&"),
    ] {
        text = text.replace(entity, character);
    }
    text
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

    #[test]
    fn code_and_message_are_found() {
        assert_eq!(s3_message(b"<Error><Code>A</Code></Error>").unwrap(), "A");
        let whole = b"<Error><Code>A</Code><Message> b </Message></Error>";
        assert_eq!(s3_message(whole).unwrap(), "A: b");
        let escaped = b"<Error><Code>A</Code><Message>&#34;b&#34; &amp;lt;</Message></Error>";
        assert_eq!(s3_message(escaped).unwrap(), "A: \"b\" &lt;");
        assert_eq!(s3_message(b"<Error><Code>"), None);
        assert_eq!(s3_message(b"<html>"), None);
    }
}
