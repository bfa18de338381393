//! The errors of S3, which are small XML documents.

/// Returns the code and the message in an error of S3, which is a small XML document.
pub(super) fn s3_message(body: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(body).ok()?;
    let (_, error) = text.split_once("<Error>")?;
    let value = |name: &str| {
        let (_, rest) = error.split_once(&format!("<{name}>"))?;
        Some(rest.split_once('<')?.0.trim())
    };
    let code = value("Code")?;
    Some(match value("Message") {
        Some(message) if !message.is_empty() => format!("{code}: {message}"),
        _ => code.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_and_message_are_found() {
        assert_eq!(s3_message(b"<Error><Code>A</Code></Error>").unwrap(), "A");
        let whole = b"<Error><Code>A</Code><Message> b </Message></Error>";
        assert_eq!(s3_message(whole).unwrap(), "A: b");
        assert_eq!(s3_message(b"<Error><Code>"), None);
        assert_eq!(s3_message(b"<html>"), None);
    }
}
