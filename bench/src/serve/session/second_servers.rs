//! Second servers of a variant: one that sends NARs compressed by zstd, and one with TLS. They
//! start with the first row that needs them.

use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};

use super::Session;
use crate::serve::checks::Checks;
use crate::serve::peers::{Launch, Mode};
use crate::serve::rows::Work;
use crate::serve::workload::Workload;
use crate::server::{Endpoint, Server};
use crate::tls;

/// Where a server sends NARs compressed by zstd.
pub(super) struct ZstdServer {
    pub(super) endpoint: Endpoint,
    /// A second server for this alone, which compresses in the background.
    pub(super) own: Option<Server>,
}

/// A second server with TLS.
pub(super) struct TlsServer<'a> {
    pub(super) server: Server,
    checks: Checks<'a>,
    /// The TLS version and the cipher suite.
    pub(super) negotiated: String,
    /// The same for connections that always make a full handshake; none before their row.
    pub(super) full_handshake: Option<String>,
}

/// Floe compresses 100 MB of NARs per second in the background, so its cache is full by then.
const CACHE_FILL_TIMEOUT: Duration = Duration::from_secs(60);

impl<'a> Session<'a> {
    /// The target of a NAR that the server sends compressed by zstd.
    pub(super) fn zstd_targets(&mut self, at: usize) -> Result<Vec<String>> {
        if self.variants[at].zstd.is_none() {
            self.variants[at].zstd = Some(self.start_zstd(at)?);
        }
        let zstd = self.variants[at].zstd.as_ref().context("not started")?;
        let timeout = match zstd.own {
            Some(_) => CACHE_FILL_TIMEOUT,
            None => Duration::ZERO,
        };
        let mut checks = Checks::new(self.workload, &zstd.endpoint);
        let path = self.workload.middle_sized()?;
        Ok(vec![checks.compressed(path, timeout, &self.scratch)?])
    }

    /// nginx has compressed NARs in another cache, floe gets a second server with a compressed NAR
    /// cache, and other servers answer as they are.
    fn start_zstd(&self, at: usize) -> Result<ZstdServer> {
        let variant = &self.variants[at];
        let mut endpoint = match &variant.server {
            Ok(server) => server.endpoint.clone(),
            Err(why) => bail!("{why}"),
        };
        match &variant.launch {
            Some(launch @ Launch::Floe { .. }) => {
                let name = format!("{}-zstd", variant.name);
                let server = self.launch(launch, &Mode::NarCache, &name);
                let server = server.map_err(|why| anyhow!("with a NAR cache: {why}"))?;
                return Ok(ZstdServer {
                    endpoint: server.endpoint.clone(),
                    own: Some(server),
                });
            }
            Some(Launch::Nginx) => endpoint.origin.prefix = Workload::ZSTD.into(),
            _ => {}
        }
        Ok(ZstdServer {
            endpoint,
            own: None,
        })
    }

    /// The request targets of a row over TLS.
    pub(super) fn tls_targets(&mut self, work: Work, at: usize) -> Result<Vec<String>> {
        if self.variants[at].tls.is_none() {
            self.variants[at].tls = Some(self.start_tls(at)?);
        }
        let tls = self.variants[at].tls.as_mut().context("not started")?;
        if let Work::TlsHandshakes(..) = work {
            let origin = &tls.server.endpoint.origin;
            let found = tls::check_full_handshakes(origin, &self.full_handshakes)?;
            tls.full_handshake = Some(found);
        }
        super::targets(work.request(), self.workload, &mut tls.checks)
    }

    fn start_tls(&self, at: usize) -> Result<TlsServer<'a>> {
        let variant = &self.variants[at];
        if let Err(why) = &variant.server {
            bail!("{why}");
        }
        let launch = variant.launch.as_ref().context("not started here")?;
        let certificate = self.certificate.clone().map_err(anyhow::Error::msg)?;
        let name = format!("{}-tls", variant.name);
        let server = self.launch(launch, &Mode::Tls(certificate), &name);
        let server = server.map_err(|why| anyhow!("with TLS: {why}"))?;
        Ok(TlsServer {
            negotiated: tls::negotiated(&server.endpoint.origin)?,
            checks: Checks::new(self.workload, &server.endpoint),
            server,
            full_handshake: None,
        })
    }

    /// The TLS version and the cipher suite of each server with TLS.
    pub(in crate::serve) fn tls_notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        for variant in &self.variants {
            let Some(tls) = &variant.tls else { continue };
            let mut note = format!("{} with TLS: {}", variant.name, tls.negotiated);
            if let Some(found) = &tls.full_handshake {
                note += &format!("; {found} where each request makes a full handshake");
            }
            notes.push(note + ".");
        }
        notes
    }
}
