//! The errors of certificates and keys.

use std::io;
use std::path::PathBuf;

/// The reason why certificates or keys cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// A file of certificates cannot be used.
    #[error("cannot use the certificates in {}: {reason}", path.display())]
    Certificates {
        /// The file.
        path: PathBuf,
        /// The cause and the remedy.
        reason: String,
    },
    /// A file does not have a private key.
    #[error(
        "cannot use the key in {}: {reason}; try a PEM file of PKCS #8, PKCS #1 or SEC 1 without \
         a password", path.display()
    )]
    Key {
        /// The file.
        path: PathBuf,
        /// The cause.
        reason: String,
    },
    /// The key is not that of the certificate.
    #[error(
        "cannot use the certificate in {} with the key in {}: they do not belong together",
        certificate.display(), key.display()
    )]
    Mismatch {
        /// The file with the certificate.
        certificate: PathBuf,
        /// The file with the key.
        key: PathBuf,
    },
    /// The library refuses the settings.
    #[error("cannot set up TLS: {0}")]
    Library(#[from] rustls::Error),
    /// The authorities for certificates of clients cannot be used.
    #[error("cannot verify certificates of clients: {0}")]
    ClientVerifier(#[from] rustls::server::VerifierBuilderError),
}
