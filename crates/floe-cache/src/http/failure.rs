//! The cause of a failed request in the words of a user, from the errors of the libraries.

use std::error::Error;
use std::io;

use rustls::InvalidMessage;

use crate::network::client::INVALID_CERT_TEXT;
use crate::network::tls::lacks_issuer;

/// Describes why a request failed. The outermost error says only that it failed, and the layers of
/// the libraries say nothing that a user could change.
pub(super) fn describe(error: &reqwest::Error) -> String {
    let (mut causes, mut next) = (Vec::new(), error.source());
    while let Some(cause) = next {
        causes.push(cause);
        next = cause.source();
    }
    if let Some(text) = causes.iter().find_map(|cause| tls_failure(*cause)) {
        return text;
    }
    let texts = causes.iter().map(ToString::to_string);
    let mut texts: Vec<String> = texts.filter(|text| !LAYERS.contains(&&**text)).collect();
    if texts.is_empty() {
        let last = causes.last().map(ToString::to_string);
        return last.unwrap_or_else(|| error.to_string());
    }
    for text in &mut texts {
        match &**text {
            "dns error" => *text = "cannot look up the host name".into(),
            "tls handshake eof" => *text = TLS_END.into(),
            other => *text = other.trim_start_matches(LOOKUP_PREFIX).to_owned(),
        }
    }
    texts.dedup();
    texts.join(": ")
}

/// Describes an error of TLS that the user may correct.
fn tls_failure(mut cause: &(dyn Error + 'static)) -> Option<String> {
    // An error of the system hides the error in it from the chain of causes.
    while let Some(inner) = cause.downcast_ref().and_then(io::Error::get_ref) {
        cause = inner;
    }
    let error: &rustls::Error = cause.downcast_ref()?;
    match error {
        // The server replied with something else, nearly always with HTTP.
        rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType) => Some(NO_TLS.into()),
        rustls::Error::InvalidCertificate(reason) => {
            let text = match lacks_issuer(error) {
                true => NO_ISSUER.to_owned(),
                false => reason.to_string(),
            };
            Some(format!("{INVALID_CERT_TEXT}: {text}"))
        }
        _ => None,
    }
}

pub(super) const NO_ISSUER: &str = "no trusted authority has issued it";

const NO_TLS: &str = "the server does not speak TLS on this port; try http://";

const TLS_END: &str = "the server ended the connection at the beginning of TLS; if it does not \
                       speak TLS, try http://";

/// The texts of library layers that only add "it failed here" to the next cause.
const LAYERS: [&str; 8] = [
    "client error (Connect)",
    "client error (SendRequest)",
    "tcp connect error",
    "tcp open error",
    "error resolving DNS",
    "connection error",
    "error reading a body from connection",
    "request or response body error",
];

/// The prefix of the system's errors about names.
const LOOKUP_PREFIX: &str = "failed to lookup address information: ";
