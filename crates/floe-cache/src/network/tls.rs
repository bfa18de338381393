//! The certificates that TLS connections trust, and the client certificate that they present.

use std::fmt::Display;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use floe_store::open_regular_file;
use floe_transfer::Error as TransferError;
use rustls::client::WantsClientCert;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{
    CertificateError, ClientConfig, ConfigBuilder, DigitallySignedStruct, Error, OtherError,
    RootCertStore, SignatureScheme, WantsVerifier,
};

use crate::error::file_error;

/// The files of a client certificate, by which a server recognizes its client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientCertificate {
    /// The file of the certificate and its chain in PEM (`tls-certificate`).
    pub certificate: PathBuf,
    /// The file of the private key in PEM (`tls-private-key`).
    pub private_key: PathBuf,
}

impl ClientCertificate {
    /// Adds the certificate to a client configuration, which without one presents none.
    ///
    /// Errors: [`TransferError::File`] for a file that cannot be read or used.
    pub(crate) fn add(
        this: Option<&ClientCertificate>,
        client: ConfigBuilder<ClientConfig, WantsClientCert>,
    ) -> Result<ClientConfig, TransferError> {
        let Some(files) = this else {
            return Ok(client.with_no_client_auth());
        };
        let chain = open_regular_file(&files.certificate)
            .map_err(pem::Error::Io)
            .and_then(|file| CertificateDer::pem_reader_iter(file).collect::<Result<Vec<_>, _>>())
            .map_err(to_io)
            .and_then(|chain| {
                if chain.is_empty() {
                    Err(io::Error::other("it has no certificate in PEM"))
                } else {
                    Ok(chain)
                }
            })
            .map_err(file_error(
                "read the client certificate",
                &files.certificate,
            ))?;
        let key = open_regular_file(&files.private_key)
            .map_err(pem::Error::Io)
            .and_then(PrivateKeyDer::from_pem_reader)
            .map_err(to_io)
            .map_err(file_error("read the private key", &files.private_key))?;
        client
            .with_client_auth_cert(chain, key)
            .map_err(|error| files.unusable(error))
    }

    /// Returns the error of rustls as one about the file that it means.
    fn unusable(&self, error: rustls::Error) -> TransferError {
        if let rustls::Error::InvalidCertificate(fault) = &error {
            let fault = io::Error::other(certificate_fault(fault));
            return file_error("use the client certificate", &self.certificate)(fault);
        }
        file_error("use the private key", &self.private_key)(io::Error::other(error))
    }
}

/// Returns the reason why rustls refuses a certificate.
fn certificate_fault(error: &CertificateError) -> String {
    // rustls has this error of its library as a text only.
    if error.to_string().contains("UnsupportedCertVersion") {
        return "its version of X.509 is not 3; issue it with extensions, such as \
                basicConstraints=CA:FALSE"
            .into();
    }
    format!("{error:?}")
}

/// Returns the system's error about a PEM file, or an error about its text.
fn to_io(error: pem::Error) -> io::Error {
    match error {
        pem::Error::Io(error) => error,
        error => io::Error::other(error),
    }
}

/// Loads the certificates of a file, or without a file those of the system.
///
/// Errors: the file cannot be read, or has no certificates. The text says why.
pub(crate) fn load_certificates(
    file: Option<&Path>,
) -> Result<Vec<CertificateDer<'static>>, String> {
    let Some(path) = file else {
        return Ok(rustls_native_certs::load_native_certs().certs);
    };
    let fail = |reason: &dyn Display| {
        format!("cannot read certificates from {}: {reason}", path.display())
    };
    let found = open_regular_file(path).map_err(pem::Error::Io);
    let found =
        found.and_then(|file| CertificateDer::pem_reader_iter(file).collect::<Result<Vec<_>, _>>());
    match found {
        Ok(found) if found.is_empty() => Err(fail(&"it has none in PEM")),
        found => found.map_err(|error| fail(&error)),
    }
}

/// Makes a client configuration that trusts the listed certificates and the authorities. Without
/// any authority it trusts no server.
pub(crate) fn client_config(
    client: Builder,
    provider: Arc<CryptoProvider>,
    roots: RootCertStore,
    listed: Vec<CertificateDer<'static>>,
) -> ConfigBuilder<ClientConfig, WantsClientCert> {
    let chains = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build();
    match chains {
        Ok(chains) => client
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Verifier { chains, listed })),
        Err(_) => client.with_root_certificates(RootCertStore::empty()),
    }
}

/// A client configuration that so far has only the versions of TLS.
type Builder = ConfigBuilder<ClientConfig, WantsVerifier>;

/// Adds the authorities that browsers trust, if the machine has no certificates at all. A machine
/// with a few certificates was configured so, and gets no more.
pub(crate) fn add_mozilla_roots(roots: &mut RootCertStore) {
    if roots.is_empty() {
        roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
    }
}

/// Trusts a server if an authority issued its certificate, or if the certificate itself is listed.
/// Private servers often have a self-signed certificate, and curl accepts it from the file as well.
#[derive(Debug)]
struct Verifier {
    chains: Arc<WebPkiServerVerifier>,
    /// All certificates of the file or the system, but not those of Mozilla.
    listed: Vec<CertificateDer<'static>>,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let chains = &self.chains;
        match chains.verify_server_cert(certificate, intermediates, name, ocsp, now) {
            Err(error) if lacks_issuer(&error) && self.listed.contains(certificate) => {
                verify_server_name(&ParsedCertificate::try_from(certificate)?, name)?;
                Ok(ServerCertVerified::assertion())
            }
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.chains
            .verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.chains
            .verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.chains.supported_verify_schemes()
    }
}

/// Whether the only problem of a certificate is its issuer. rustls checks the dates first, so an
/// expired certificate fails with another error.
pub(crate) fn lacks_issuer(error: &Error) -> bool {
    match error {
        Error::InvalidCertificate(CertificateError::UnknownIssuer) => true,
        Error::InvalidCertificate(CertificateError::Other(OtherError(error))) => {
            error.downcast_ref() == Some(&webpki::Error::CaUsedAsEndEntity)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mozilla_roots_are_used_only_without_system_roots() {
        let mut roots = RootCertStore::empty();
        add_mozilla_roots(&mut roots);
        let all = roots.len();
        assert!(all > 50, "{all} certificates");
        let mut few = RootCertStore::empty();
        few.extend(webpki_roots::TLS_SERVER_ROOTS.iter().take(1).cloned());
        add_mozilla_roots(&mut few);
        assert_eq!(few.len(), 1);
    }
}
