//! Reads certificates and keys from PEM files (RFC 7468).

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use floe_store::read_regular_file;
use httpdate::fmt_http_date;
use rustls::CertificateError;
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
    pub(super) validity: Validity,
}

impl Credentials {
    /// Reads a certificate and its key. The certificate need not be valid now.
    pub(super) fn read(
        files: &CertificateFiles,
        provider: &CryptoProvider,
    ) -> Result<Credentials, TlsError> {
        let chain = read_certificates(&files.certificate)?;
        let validity = validity(&files.certificate, &chain)?;
        let key = read_key(&files.key)?;
        let key = CertifiedKey::from_der(chain, key, provider).map_err(|error| match error {
            rustls::Error::InconsistentKeys(_) => TlsError::Mismatch {
                certificate: files.certificate.clone(),
                key: files.key.clone(),
            },
            rustls::Error::InvalidCertificate(error) => unusable(&files.certificate, fault(&error)),
            error => TlsError::Key {
                path: files.key.clone(),
                reason: error.to_string(),
            },
        })?;
        let key = Arc::new(key);
        Ok(Credentials { key, validity })
    }
}

/// Returns the reason why rustls refuses a certificate.
fn fault(error: &CertificateError) -> String {
    // rustls has this error of its library as a text only.
    if error.to_string().contains("UnsupportedCertVersion") {
        return "its version of X.509 is not 3; issue it with extensions, such as \
                basicConstraints=CA:FALSE"
            .into();
    }
    format!("{error:?}")
}

/// When all certificates of a chain are valid, as times since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Validity {
    begin: Duration,
    pub(super) end: Duration,
}

impl Validity {
    /// Returns why clients refuse the certificate now, and what to do about it.
    pub(super) fn fault(self, now: SystemTime) -> Option<(String, &'static str)> {
        let [begin, end] = [self.begin, self.end].map(|it| SystemTime::UNIX_EPOCH + it);
        if end <= now {
            Some((format!("expired on {}", fmt_http_date(end)), "renew it"))
        } else if begin > now {
            let fault = format!("is not valid before {}", fmt_http_date(begin));
            Some((fault, "correct the clock, or use another certificate"))
        } else {
            None
        }
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

/// Returns when all certificates of a chain are valid.
fn validity(path: &Path, chain: &[CertificateDer<'_>]) -> Result<Validity, TlsError> {
    let all = chain.iter().map(|certificate| parse(path, certificate));
    let all = all.collect::<Result<Vec<Validity>, TlsError>>()?;
    let common = all.into_iter().reduce(|one, other| Validity {
        begin: one.begin.max(other.begin),
        end: one.end.min(other.end),
    });
    common.ok_or_else(|| unusable(path, NO_CERTIFICATE.into()))
}

/// Parses a certificate, and returns when it is valid.
fn parse(path: &Path, certificate: &CertificateDer<'_>) -> Result<Validity, TlsError> {
    let parsed = SliceReader::new(certificate).and_then(|mut der| Certificate::decode(&mut der));
    let parsed = parsed.map_err(|error| unusable(path, format!("{error}; {TRY_COPY}")))?;
    let validity = parsed.tbs_certificate().validity();
    Ok(Validity {
        begin: validity.not_before.to_unix_duration(),
        end: validity.not_after.to_unix_duration(),
    })
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
