//! The fields of responses that say which body, and which part of it, a server sends.

use std::time::Duration;

use reqwest::header::{
    ACCEPT_RANGES, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, DATE, ETAG, HeaderMap,
    LAST_MODIFIED, TRANSFER_ENCODING,
};

/// Whether a response names another version of the body than a validator, although the client
/// asked for this one.
pub(super) fn is_of_another_body(headers: &HeaderMap, validator: &str) -> bool {
    let tag = headers.get(ETAG).and_then(|tag| tag.to_str().ok());
    let is_tag = validator.starts_with('"');
    is_tag && tag.is_some_and(|tag| tag != validator)
}

/// Returns the strong validator of a body: a later response with the same one has the same bytes.
pub(super) fn validator(headers: &HeaderMap) -> Option<String> {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    let has_end = headers.contains_key(CONTENT_LENGTH) || headers.contains_key(TRANSFER_ENCODING);
    if !has_end || text(ACCEPT_RANGES) == Some("none") {
        return None;
    }
    let strong = text(ETAG).filter(|tag| !tag.starts_with("W/"));
    let changed = text(LAST_MODIFIED).zip(text(DATE));
    let old = changed.filter(|(changed, now)| is_strong_date(changed, now));
    strong
        .or(old.map(|(changed, _)| changed))
        .map(str::to_owned)
}

/// Whether the body surely has the bytes that the server sent. The client removes the length of a
/// body that it decodes, and keeps the field of an encoding that it does not know.
pub(super) fn is_unencoded(headers: &HeaderMap) -> bool {
    headers.contains_key(CONTENT_LENGTH) && !headers.contains_key(CONTENT_ENCODING)
}

/// Whether a modification time is old enough to be a strong validator. A file may change twice in
/// the same second. RFC 9110, section 8.8.2.2.
pub(super) fn is_strong_date(changed: &str, now: &str) -> bool {
    let [changed, now] = [changed, now].map(httpdate::parse_http_date);
    let (Ok(changed), Ok(now)) = (changed, now) else {
        return false;
    };
    now.duration_since(changed)
        .is_ok_and(|age| age >= STRONG_DATE_AGE)
}

/// Parses the Content-Range of a part: its first position, and the length of the whole body or a
/// lower bound.
pub(super) fn content_range(headers: &HeaderMap) -> Option<(u64, u64)> {
    let range = headers.get(CONTENT_RANGE)?.to_str().ok()?;
    let (piece, whole) = range.strip_prefix("bytes ")?.split_once('/')?;
    let (first, last) = piece.split_once('-')?;
    let end = last.parse::<u64>().ok()?.checked_add(1)?;
    // A server that does not know the length sends `*`.
    let len = whole.parse().map_or(end, |len: u64| len.max(end));
    Some((first.parse().ok()?, len))
}

/// How much the clocks of a server's machines may differ; the example of the RFC.
const STRONG_DATE_AGE: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use reqwest::header::{HeaderName, HeaderValue};

    use super::*;

    fn validator_of(fields: &[(HeaderName, &'static str)]) -> Option<String> {
        let of_body = |end| validator(&header_map(&[fields, &[end]].concat()));
        let found = of_body((CONTENT_LENGTH, "1000"));
        assert_eq!(of_body((TRANSFER_ENCODING, "chunked")), found);
        // The client may have decoded such a body.
        assert_eq!(validator(&header_map(fields)), None);
        found
    }

    fn header_map(fields: &[(HeaderName, &'static str)]) -> HeaderMap {
        let fields = fields.iter().cloned();
        fields
            .map(|(name, value)| (name, HeaderValue::from_static(value)))
            .collect()
    }

    #[test]
    fn part_with_another_etag_is_of_another_body() {
        let is_other = |tag, validator| is_of_another_body(&header_map(&[(ETAG, tag)]), validator);
        assert!(!is_other("\"x\"", "\"x\""));
        assert!(is_other("\"y\"", "\"x\""));
        assert!(is_other("W/\"x\"", "\"x\""));
        // The validator is a date.
        assert!(!is_other("\"y\"", "Sun, 06 Nov 1994 08:49:37 GMT"));
        assert!(!is_of_another_body(&HeaderMap::new(), "\"x\""));
    }

    #[test]
    fn content_range_gives_whole_length() {
        let whole = |range: &'static str| {
            let range = HeaderValue::from_static(range);
            let headers = [(CONTENT_RANGE, range)].into_iter().collect();
            content_range(&headers).map(|(_, len)| len)
        };
        assert_eq!(whole("bytes 10-19/100"), Some(100));
        assert_eq!(whole("bytes 10-19/*"), Some(20));
        assert_eq!(whole("bytes 10-19/15"), Some(20));
        for none in ["bytes */100", "10-19/100", "bytes 10-x/100", "bytes 10/100"] {
            assert_eq!(whole(none), None, "{none}");
        }
        assert_eq!(whole("bytes 0-18446744073709551615/*"), None);
    }

    #[test]
    fn validator_requires_strong_etag_or_old_date() {
        let changed = (LAST_MODIFIED, "Sun, 06 Nov 1994 08:49:37 GMT");
        let soon = (DATE, "Sun, 06 Nov 1994 08:50:36 GMT");
        let later = (DATE, "Sun, 06 Nov 1994 08:50:37 GMT");
        let (strong, weak) = ((ETAG, "\"a\""), (ETAG, "W/\"a\""));
        assert_eq!(validator_of(&[]), None);
        assert_eq!(
            validator_of(&[strong.clone(), changed.clone()]).as_deref(),
            Some("\"a\"")
        );
        assert_eq!(validator_of(std::slice::from_ref(&weak)), None);
        assert_eq!(validator_of(std::slice::from_ref(&changed)), None);
        assert_eq!(validator_of(&[changed.clone(), soon]), None);
        assert_eq!(
            validator_of(&[weak, changed.clone(), later]).as_deref(),
            Some(changed.1)
        );
        assert_eq!(validator_of(&[strong, (ACCEPT_RANGES, "none")]), None);
    }

    #[test]
    fn body_is_unencoded_only_with_length_and_without_encoding() {
        let len = (CONTENT_LENGTH, "1000");
        assert!(is_unencoded(&header_map(std::slice::from_ref(&len))));
        assert!(!is_unencoded(&header_map(&[])));
        assert!(!is_unencoded(&header_map(&[
            len,
            (CONTENT_ENCODING, "compress")
        ])));
    }
}
