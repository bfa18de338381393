//! URLs, and what of them may be shown.

use reqwest::Url;

use crate::error::Error;

pub(super) fn parse_url(text: &str) -> Result<Url, Error> {
    Url::parse(text).map_err(|error| Error::Location {
        text: without_credentials(text),
        reason: error.to_string(),
    })
}

/// A URL that may be shown: without the password that it may carry.
pub(super) fn redact(url: &Url) -> String {
    let mut url = url.clone();
    // These fail for URLs that cannot have credentials.
    let _: Result<(), ()> = url.set_username("");
    let _: Result<(), ()> = url.set_password(None);
    url.to_string()
}

/// The same for a text that may be no URL.
pub(crate) fn without_credentials(text: &str) -> String {
    match (text.find("://"), text.rfind('@')) {
        (Some(scheme), Some(at)) if at > scheme => {
            format!("{}{}", &text[..scheme + 3], &text[at + 1..])
        }
        _ => text.to_owned(),
    }
}
