//! Reads certificates and keys from PEM files (RFC 7468).

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use floe_store::read_regular_file;
use httpdate::fmt_http_date;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use x509_cert::Certificate;
use x509_cert::der::{Decode as _, SliceReader};

use crate::config::CertificateFiles;
use crate::error::TlsError;

/// A certificate with those of its issuers, and its key.
#[derive(Debug)]
pub(super) struct Credentials {
    pub(super) key: Arc<CertifiedKey>,
    /// The end of the validity, as the time since 1970.
    pub(super) expires: Duration,
}

impl Credentials {
    /// Reads a certificate and its key. The certificate may have expired.
    pub(super) fn read(
        files: &CertificateFiles,
        provider: &CryptoProvider,
    ) -> Result<Credentials, TlsError> {
        let chain = read_certificates(&files.certificate)?;
        let expires = expiry(&files.certificate, &chain)?;
        let key = read_key(&files.key)?;
        let key = CertifiedKey::from_der(chain, key, provider).map_err(|error| match error {
            rustls::Error::InconsistentKeys(_) => TlsError::Mismatch {
                certificate: files.certificate.clone(),
                key: files.key.clone(),
            },
            rustls::Error::InvalidCertificate(error) => {
                unusable(&files.certificate, format!("{error:?}"))
            }
            error => TlsError::Key {
                path: files.key.clone(),
                reason: error.to_string(),
            },
        })?;
        let key = Arc::new(key);
        Ok(Credentials { key, expires })
    }

    /// Returns since when the certificate has expired, as text.
    pub(super) fn expired_on(&self, now: SystemTime) -> Option<String> {
        let end = SystemTime::UNIX_EPOCH + self.expires;
        (end <= now).then(|| fmt_http_date(end))
    }
}

/// Reads the certificates of the authorities that may issue those of clients.
pub(super) fn read_client_ca(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let authorities = read_certificates(path)?;
    for authority in &authorities {
        parse(path, authority)?;
    }
    Ok(authorities)
}

/// Returns when the first certificate of a chain expires, as the time since 1970.
fn expiry(path: &Path, chain: &[CertificateDer<'_>]) -> Result<Duration, TlsError> {
    let ends = chain.iter().map(|certificate| parse(path, certificate));
    let ends: Result<Vec<Duration>, TlsError> = ends.collect();
    let earliest = ends?.into_iter().min();
    earliest.ok_or_else(|| unusable(path, NO_CERTIFICATE.into()))
}

/// Parses a certificate, and returns the end of its validity, as the time since 1970.
fn parse(path: &Path, certificate: &CertificateDer<'_>) -> Result<Duration, TlsError> {
    let parsed = SliceReader::new(certificate).and_then(|mut der| Certificate::decode(&mut der));
    let parsed = parsed.map_err(|error| unusable(path, format!("{error}; {TRY_COPY}")))?;
    let validity = parsed.tbs_certificate().validity();
    Ok(validity.not_after.to_unix_duration())
}

fn read_certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let pem = read(path)?;
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    match certificates {
        Ok(certificates) if certificates.is_empty() => Err(unusable(path, NO_CERTIFICATE.into())),
        Ok(certificates) => Ok(certificates),
        Err(error) => Err(unusable(path, format!("{}; {TRY_COPY}", pem_fault(&error)))),
    }
}

/// Returns the fault of a PEM file. The library's own texts contain bytes of the file.
fn pem_fault(error: &pem::Error) -> &'static str {
    match error {
        pem::Error::MissingSectionEnd { .. } => "a section has no end",
        pem::Error::IllegalSectionStart { .. } => "a section begins with an invalid line",
        pem::Error::Base64Decode(_) => "a section is not Base64",
        _ => "it is not a PEM file",
    }
}

fn read_key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    PrivateKeyDer::from_pem_slice(&read(path)?).map_err(|error| TlsError::Key {
        path: path.into(),
        reason: match error {
            pem::Error::NoItemsFound => "it has no private key".into(),
            error => pem_fault(&error).into(),
        },
    })
}

fn read(path: &Path) -> Result<Vec<u8>, TlsError> {
    read_regular_file(path, FILE_LEN_MAX).map_err(|source| TlsError::Read {
        path: path.into(),
        source,
    })
}

pub(super) fn unusable(path: &Path, reason: String) -> TlsError {
    TlsError::Certificates {
        path: path.into(),
        reason,
    }
}

const NO_CERTIFICATE: &str = "it has no certificate; try a PEM file that begins with \
                              -----BEGIN CERTIFICATE-----";
const TRY_COPY: &str = "try to copy the file again";

/// The largest file. A bundle of all public authorities has 200 KiB.
const FILE_LEN_MAX: u64 = 4 * 1024 * 1024;
