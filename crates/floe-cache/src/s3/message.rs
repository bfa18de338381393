//! The errors of S3, which are small XML documents.

use quick_xml::Reader;
use quick_xml::events::Event;

use crate::request::{ErrorDocument, Explanation};

/// Returns the cause of a refusal, if the body of the reply has it.
pub(super) fn explain(body: &[u8]) -> Option<Explanation> {
    let document = ErrorDocument::parse(body)?;
    Some(Explanation {
        advice: advice(&document.code),
        // A bucket that must not be listed hides what it does not have.
        is_denial: document.code == "AccessDenied",
        message: document.to_string(),
    })
}

/// Whether a document is an error, and not one about several objects.
pub(super) fn is_error(body: &[u8]) -> bool {
    let text = str::from_utf8(body).unwrap_or_default();
    let mut reader = Reader::from_str(text);
    loop {
        match reader.read_event() {
            Ok(Event::Start(tag)) => return tag.local_name().as_ref() == b"Error",
            Ok(Event::Eof) | Err(_) => return false,
            Ok(_) => {}
        }
    }
}

/// Returns what the user can do about an error with a code, as the end of a sentence. The text is
/// empty if the error needs no advice.
fn advice(code: &str) -> &'static str {
    match code {
        "AuthorizationHeaderMalformed" | "IllegalLocationConstraintException" => {
            "; name the region of the bucket with region= in the URL"
        }
        "PermanentRedirect" => "; name the region of the bucket with region= or endpoint=",
        // versitygw has the second code.
        "InvalidAccessKeyId" | "XAdminUserNotFound" | "SignatureDoesNotMatch" => {
            "; check the credentials"
        }
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
    fn errors_of_single_objects_are_no_error_of_the_request() {
        let error = "<Error><Code>AccessDenied</Code></Error>";
        assert!(is_error(
            format!("<?xml version=\"1.0\"?>\n{error}").as_bytes()
        ));
        for text in [
            &format!("<DeleteResult>{error}</DeleteResult>"),
            "",
            "<",
            "text",
        ] {
            assert!(!is_error(text.as_bytes()), "{text}");
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
