//! The cause of a failed request in the words of a user, from the errors of the libraries.

use std::error::Error as StdError;
use std::io;

use floe_transfer::Error;
use rustls::InvalidMessage;

use super::Request;
use super::client::CacheClient;
use crate::network::tls::lacks_issuer;

/// Why a request failed.
struct Failure {
    reason: String,
    /// The fault of a certificate, if that is the cause.
    certificate: Option<CertificateFault>,
}

/// A fault of a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CertificateFault {
    /// No trusted authority has issued that of the server.
    Issuer,
    /// Something else about that of the server, such as its name or its dates.
    Other,
    /// The server refuses that of the client, or wants one.
    Client,
}

/// Makes the error of a request. If no server was reached, the proxy may be the cause.
pub(crate) fn of_request(client: &CacheClient, request: &Request, error: &reqwest::Error) -> Error {
    let Failure {
        mut reason,
        certificate,
    } = describe(error);
    let proxy = client.options.proxies.for_url(&request.target.url);
    if let Some(proxy) = proxy.filter(|_| error.is_connect()) {
        reason += &format!(" ({} names the proxy {})", proxy.name, proxy.redacted());
    }
    match (certificate, &client.clients.certificate_error) {
        (None | Some(CertificateFault::Client), _) => {}
        (Some(_), Some(why)) => reason += &format!(" ({why})"),
        (Some(CertificateFault::Issuer), None) => reason += AUTHORITY_ADVICE,
        (Some(CertificateFault::Other), None) => {}
    }
    // Another attempt would have the same certificates.
    Error::fetch(&request.shown(), reason, certificate.is_none())
}

/// Makes the error of a body that breaks off.
pub(crate) fn of_body(shown: &str, error: &reqwest::Error) -> Error {
    let Failure {
        reason,
        certificate,
    } = describe(error);
    Error::fetch(shown, reason, certificate.is_none())
}

/// Describes why a request failed. The outermost error says only that it failed, and the layers of
/// the libraries say nothing that a user could change.
fn describe(error: &reqwest::Error) -> Failure {
    let (mut causes, mut next) = (Vec::new(), error.source());
    while let Some(cause) = next {
        causes.push(cause);
        next = cause.source();
    }
    let found = causes.iter().find_map(|cause| tls_failure(*cause));
    let found = found.or_else(|| causes.iter().find_map(|cause| refused_client(*cause)));
    found.unwrap_or_else(|| Failure {
        reason: describe_causes(error, &causes),
        certificate: None,
    })
}

fn describe_causes(error: &reqwest::Error, causes: &[&(dyn StdError + 'static)]) -> String {
    let texts = causes.iter().map(ToString::to_string);
    let mut texts: Vec<String> = texts.filter(|text| !LAYERS.contains(&&**text)).collect();
    if texts.is_empty() {
        let last = causes.last().map(ToString::to_string);
        return last.unwrap_or_else(|| error.to_string());
    }
    let is_refused = |cause: &&(dyn StdError + 'static)| {
        let error = cause.downcast_ref::<io::Error>();
        error.is_some_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
    };
    let advice = if causes.iter().any(is_refused) {
        "; check the port, and that a server runs there"
    } else if texts.iter().any(|text| text == "dns error") {
        "; check the host name and the network"
    } else {
        ""
    };
    for text in &mut texts {
        match &**text {
            "dns error" => *text = "cannot look up the host name".into(),
            "tls handshake eof" => *text = TLS_END.into(),
            other => *text = other.trim_start_matches(LOOKUP_PREFIX).to_owned(),
        }
    }
    texts.dedup();
    texts.join(": ") + advice
}

/// Describes an error of TLS that the user may correct.
fn tls_failure(mut cause: &(dyn StdError + 'static)) -> Option<Failure> {
    // An error of the system hides the error in it from the chain of causes.
    while let Some(inner) = cause.downcast_ref().and_then(io::Error::get_ref) {
        cause = inner;
    }
    let error: &rustls::Error = cause.downcast_ref()?;
    let (reason, certificate) = match error {
        // The server replied with something else, nearly always with HTTP.
        rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType) => (NO_TLS.into(), None),
        _ if lacks_issuer(error) => (
            format!("{INVALID_CERTIFICATE}: no trusted authority has issued it"),
            Some(CertificateFault::Issuer),
        ),
        rustls::Error::InvalidCertificate(reason) => (
            format!("{INVALID_CERTIFICATE}: {reason}"),
            Some(CertificateFault::Other),
        ),
        _ => return None,
    };
    Some(Failure {
        reason,
        certificate,
    })
}

/// Describes the refusal of a client because of its certificate, or because it has none. The
/// library for HTTP/2 keeps only the text of the error.
fn refused_client(cause: &(dyn StdError + 'static)) -> Option<Failure> {
    let text = cause.to_string();
    let (_, alert) = text.split_once(ALERT_PREFIX)?;
    let alert = CLIENT_ALERTS
        .iter()
        .find(|name| alert.starts_with(**name))?;
    let fault = match *alert {
        "CertificateRequired" => "the server requires a client certificate",
        _ => "the server refuses the client certificate",
    };
    Some(Failure {
        reason: format!("{fault} ({alert}); {CLIENT_ADVICE}"),
        certificate: Some(CertificateFault::Client),
    })
}

const INVALID_CERTIFICATE: &str = "invalid peer certificate";

const AUTHORITY_ADVICE: &str = "; name the file of the authority in SSL_CERT_FILE or ssl-cert-file";

const CLIENT_ADVICE: &str = "try ?tls-certificate=FILE&tls-private-key=FILE in the URL";

/// The beginning of the text of an alert of TLS in rustls.
const ALERT_PREFIX: &str = "received fatal alert: ";

/// The alerts about certificates (RFC 8446, section 6.2), in the spelling of rustls. A server sends
/// them only about those of clients.
const CLIENT_ALERTS: [&str; 8] = [
    "AccessDenied",
    "BadCertificate",
    "CertificateExpired",
    "CertificateRequired",
    "CertificateRevoked",
    "CertificateUnknown",
    "UnknownCA",
    "UnsupportedCertificate",
];

const NO_TLS: &str = "the server does not speak TLS on this port; try http://, for a bucket \
                      endpoint=http://HOST:PORT";

const TLS_END: &str = "the server ended the connection at the beginning of TLS; if it does not \
                       speak TLS, try http://, for a bucket endpoint=http://HOST:PORT";

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
