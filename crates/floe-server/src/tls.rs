//! TLS for the listeners of a server: certificates, keys, and the state of one connection.
//!
//! [`TlsAcceptor`] has the settings for new connections, which a reload exchanges as a whole.
//! [`stream::TlsStream`] is one connection. It has no socket of its own: `net::transport` moves the
//! encrypted bytes.

mod credentials;
mod sni;
pub mod stream;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use rustls::crypto::CryptoProvider;
use rustls::crypto::ring::{Ticketer, default_provider};
use rustls::pki_types::CertificateDer;
use rustls::server::{
    NoServerSessionStorage, ProducesTickets, UnbufferedServerConnection, WebPkiClientVerifier,
};
use rustls::{RootCertStore, ServerConfig};

use crate::config::{TlsOptions, Warn};
use crate::error::TlsError;
use credentials::{Credentials, Validity, read_client_ca, unusable};
use sni::CertificatesByName;
use stream::TlsStream;

/// Begins the TLS connections of a server.
pub struct TlsAcceptor {
    options: Mutex<TlsOptions>,
    warn: Warn,
    current: Mutex<Arc<Settings>>,
}

/// The settings for new connections.
#[derive(Debug)]
pub(crate) struct Settings {
    config: Arc<ServerConfig>,
    /// When each certificate is valid, by its file.
    validities: BTreeMap<String, Validity>,
    /// The certificates that may issue those of clients; none if clients need none.
    client_ca: Vec<CertificateDer<'static>>,
    /// Encrypts session tickets.
    ticketer: Arc<dyn ProducesTickets>,
}

impl TlsAcceptor {
    /// Reads the certificates and keys.
    ///
    /// Errors: [`TlsError`], which names the file.
    pub fn new(options: TlsOptions, warn: Warn) -> Result<TlsAcceptor, TlsError> {
        let settings = Arc::new(Settings::read(&options, None, &warn)?);
        let current = Mutex::new(settings);
        Ok(TlsAcceptor {
            options: Mutex::new(options),
            warn,
            current,
        })
    }

    /// Begins a connection as the server. `None` if the library refuses its own settings.
    pub fn accept(&self) -> Option<TlsStream> {
        let config = self.settings().config.clone();
        let connection = UnbufferedServerConnection::new(config).ok()?;
        Some(TlsStream::new(connection))
    }

    /// Returns the settings for new connections.
    pub(crate) fn settings(&self) -> Arc<Settings> {
        self.current.lock().clone()
    }

    /// Reads all files anew, or those of other options, for [`TlsAcceptor::replace`]. The settings
    /// in use do not change.
    ///
    /// Errors: [`TlsError`], which names the file.
    pub(crate) fn read_again(&self, other: Option<&TlsOptions>) -> Result<Settings, TlsError> {
        let options = other
            .cloned()
            .unwrap_or_else(|| self.options.lock().clone());
        Settings::read(&options, Some(&self.settings()), &self.warn)
    }

    /// Whether settings accept the certificates of other clients than the present ones.
    pub(crate) fn has_other_authorities(&self, settings: &Settings) -> bool {
        self.settings().client_ca != settings.client_ca
    }

    /// Uses other settings for new connections. Present connections keep theirs.
    pub(crate) fn replace(&self, settings: Settings, other: Option<&TlsOptions>) {
        if let Some(options) = other {
            *self.options.lock() = options.clone();
        }
        *self.current.lock() = Arc::new(settings);
    }
}

impl fmt::Debug for TlsAcceptor {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "TlsAcceptor({:?})", self.options)
    }
}

impl Settings {
    /// Returns when each certificate expires, as the time since 1970, by its file.
    pub(crate) fn expiries(&self) -> BTreeMap<String, Duration> {
        let all = self.validities.iter();
        all.map(|(name, validity)| (name.clone(), validity.end))
            .collect()
    }

    fn read(
        options: &TlsOptions,
        earlier: Option<&Settings>,
        warn: &Warn,
    ) -> Result<Settings, TlsError> {
        let provider = Arc::new(default_provider());
        let now = SystemTime::now();
        let mut credentials = Vec::with_capacity(options.certificates.len());
        let mut validities = BTreeMap::new();
        for files in &options.certificates {
            let read = Credentials::read(files, &provider)?;
            let (file, name) = (&files.certificate, files.certificate.display().to_string());
            // A reload must not replace a certificate by one that clients refuse. The one in use
            // may have expired: a reload of the logins does not wait for its renewal.
            let is_accepted = match earlier {
                None => options.accepts_invalid_now,
                Some(earlier) => earlier.validities.get(&name) == Some(&read.validity),
            };
            match read.validity.fault(now) {
                Some((fault, remedy)) if is_accepted => warn(&format!(
                    "serving with the certificate {name}, which {fault}, so clients refuse it; \
                     {remedy}, and send SIGHUP"
                )),
                Some((fault, remedy)) => {
                    let reason = format!("the certificate {fault}; {remedy}");
                    return Err(unusable(file, reason));
                }
                None => {}
            }
            validities.insert(name, read.validity);
            credentials.push(read);
        }
        let client_ca = options.client_ca.as_deref();
        let client_ca = client_ca
            .map(read_client_ca)
            .transpose()?
            .unwrap_or_default();
        // A client that resumes a session does not show its certificate again. So tickets that
        // were issued under other authorities must lose their validity.
        let ticketer = match earlier {
            Some(earlier) if earlier.client_ca == client_ca => earlier.ticketer.clone(),
            _ => Ticketer::new()?,
        };
        let config = server_config(&provider, credentials, &client_ca, &ticketer)?;
        Ok(Settings {
            config: Arc::new(config),
            validities,
            client_ca,
            ticketer,
        })
    }
}

fn server_config(
    provider: &Arc<CryptoProvider>,
    credentials: Vec<Credentials>,
    client_ca: &[CertificateDer<'static>],
    ticketer: &Arc<dyn ProducesTickets>,
) -> Result<ServerConfig, TlsError> {
    let config = ServerConfig::builder_with_provider(provider.clone());
    let config = config.with_safe_default_protocol_versions()?;
    let config = match client_ca {
        [] => config.with_no_client_auth(),
        authorities => {
            let mut roots = RootCertStore::empty();
            roots.add_parsable_certificates(authorities.iter().cloned());
            let verifier =
                WebPkiClientVerifier::builder_with_provider(roots.into(), provider.clone());
            config.with_client_cert_verifier(verifier.build()?)
        }
    };
    let keys = credentials.into_iter().map(|credentials| credentials.key);
    let mut config = config.with_cert_resolver(Arc::new(CertificatesByName::new(keys)));
    config.alpn_protocols = ALPN_PROTOCOLS.map(Into::into).into();
    config.ticketer = ticketer.clone();
    // Tickets need no memory in the server, and they outlive a reload.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    Ok(config)
}

/// The protocols that the server speaks.
const ALPN_PROTOCOLS: [&[u8]; 2] = [b"http/1.1", b"http/1.0"];
