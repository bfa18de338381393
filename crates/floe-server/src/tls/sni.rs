//! Chooses the certificate for a client by the server name that it asks for (RFC 6066).

use std::sync::Arc;

use rustls::pki_types::ServerName;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use webpki::EndEntityCert;

/// The certificates of a server, in the order of the settings.
#[derive(Debug)]
pub(super) struct CertificatesByName {
    keys: Vec<Arc<CertifiedKey>>,
}

impl CertificatesByName {
    pub(super) fn new(keys: impl Iterator<Item = Arc<CertifiedKey>>) -> CertificatesByName {
        let keys = keys.collect();
        CertificatesByName { keys }
    }
}

impl ResolvesServerCert for CertificatesByName {
    /// Returns the first certificate for the name. If there is none, the first one of all: the
    /// client then tells its user which name the certificate has.
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let schemes = hello.signature_schemes();
        let is_usable = |key: &&Arc<CertifiedKey>| key.key.choose_scheme(schemes).is_some();
        let mut usable = self.keys.iter().filter(is_usable);
        let name = hello.server_name().map(ServerName::try_from);
        let Some(Ok(name)) = name.filter(|_| self.keys.len() > 1) else {
            return usable.next().cloned();
        };
        let named = usable.clone().find(|key| is_for(key, &name));
        named.or_else(|| usable.next()).cloned()
    }
}

fn is_for(key: &CertifiedKey, name: &ServerName<'_>) -> bool {
    let certificate = key.cert.first().map(EndEntityCert::try_from);
    certificate.is_some_and(|certificate| {
        certificate.is_ok_and(|it| it.verify_is_valid_for_subject_name(name).is_ok())
    })
}
