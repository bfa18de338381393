//! The facts about a server that a response shows.

use std::time::{SystemTime, UNIX_EPOCH};

use floe_transfer::HttpServer;
use reqwest::Response;
use reqwest::header::DATE;
use reqwest::tls::TlsInfo;
use x509_cert::Certificate;
use x509_cert::der::{Decode as _, SliceReader};

/// Returns the facts about the server of a response that has just arrived.
pub(super) fn of_response(response: &Response) -> HttpServer {
    let tls = response.extensions().get::<TlsInfo>();
    let date = response.headers().get(DATE);
    let date = date.and_then(|date| httpdate::parse_http_date(date.to_str().ok()?).ok());
    HttpServer {
        version: format!("{:?}", response.version()),
        certificate_end: tls.and_then(|tls| certificate_end(tls.peer_certificate()?)),
        clock_ahead: date.map(|date| seconds(date) - seconds(SystemTime::now())),
    }
}

/// Returns when a certificate in DER ends to be valid.
fn certificate_end(der: &[u8]) -> Option<SystemTime> {
    let mut reader = SliceReader::new(der).ok()?;
    let certificate = Certificate::decode(&mut reader).ok()?;
    let end = certificate.tbs_certificate().validity().not_after;
    UNIX_EPOCH.checked_add(end.to_unix_duration())
}

fn seconds(time: SystemTime) -> i64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    since.as_secs().cast_signed()
}
