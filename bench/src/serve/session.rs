//! A session: the servers that run side by side, and the rounds of a row.

mod second_servers;

use std::fs;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use floe_bench::{BenchError, Measurement, Repetitions, Row, Sample, take_turns};
use serde_json::json;

use super::checks::Checks;
use super::load::{self, Load};
use super::nix_client::NixClient;
use super::peers::{Launch, Mode, Peer};
use super::processes;
use super::rows::{Pair, Request, RowPlan, Work};
use super::workload::Workload;
use crate::args::RunArgs;
use crate::schedule::RowTime;
use crate::server::{Endpoint, Server};
use crate::tls::{self, Certificate};
use second_servers::{TlsServer, ZstdServer};

const ROUNDS: usize = 11;

/// The servers of a run, and everything they need.
pub(super) struct Session<'a> {
    pub(super) workload: &'a Workload,
    pub(super) client: Result<NixClient, String>,
    args: &'a RunArgs,
    scratch: PathBuf,
    /// The certificate of all servers with TLS, or why there is none.
    certificate: Result<Certificate, String>,
    /// The settings of OpenSSL with which each connection makes a full handshake.
    full_handshakes: PathBuf,
    variants: Vec<ServerVariant<'a>>,
}

/// A server, or why it does not run, with the responses that were found correct.
struct ServerVariant<'a> {
    name: String,
    launch: Option<Launch>,
    server: Result<Server, String>,
    checks: Option<Checks<'a>>,
    zstd: Option<ZstdServer>,
    tls: Option<TlsServer<'a>>,
}

impl ServerVariant<'_> {
    /// The server that gets the requests of a row.
    fn endpoint(&self, work: Work) -> Result<&Endpoint> {
        match (work, &self.server) {
            (Work::Concurrent(Request::Zstd, _), _) => {
                let zstd = self.zstd.as_ref();
                zstd.map(|zstd| &zstd.endpoint).context("not started")
            }
            (Work::Tls(..) | Work::TlsHandshakes(..), _) => {
                let tls = self.tls.as_ref();
                tls.map(|tls| &tls.server.endpoint).context("not started")
            }
            (_, Ok(server)) => Ok(&server.endpoint),
            (_, Err(why)) => bail!("{why}"),
        }
    }
}

impl<'a> Session<'a> {
    /// Starts all servers. Their files go to the directory `scratch`, which is emptied first.
    pub(super) fn start(
        args: &'a RunArgs,
        workload: &'a Workload,
        scratch: PathBuf,
        peers: &[Peer],
    ) -> Result<Self> {
        floe_bench::remove_tree(&scratch)?;
        fs::create_dir_all(&scratch)
            .with_context(|| format!("cannot create {}", scratch.display()))?;
        let mut session = Session {
            workload,
            client: Err("no client was looked for".into()),
            args,
            certificate: Certificate::create(&scratch, Ipv4Addr::LOCALHOST)
                .map_err(|error| format!("{error:#}")),
            full_handshakes: tls::full_handshakes(&scratch)?,
            scratch,
            variants: Vec::new(),
        };
        for peer in peers {
            let variant = session.variant(peer);
            if let Err(why) = &variant.server {
                eprintln!("{} does not run: {why}", peer.name);
            }
            session.variants.push(variant);
        }
        Ok(session)
    }

    fn variant(&self, peer: &Peer) -> ServerVariant<'a> {
        let launch = peer.launch.as_ref().map_err(String::clone);
        let server = launch.and_then(|launch| self.launch(launch, &Mode::Plain, &peer.name));
        let endpoint = server.as_ref().ok().map(|server| server.endpoint.clone());
        ServerVariant {
            name: peer.name.clone(),
            launch: peer.launch.as_ref().ok().cloned(),
            checks: endpoint.map(|endpoint| Checks::new(self.workload, &endpoint)),
            server,
            zstd: None,
            tls: None,
        }
    }

    fn launch(&self, launch: &Launch, mode: &Mode, name: &str) -> Result<Server, String> {
        launch
            .start(mode, self.workload, &self.scratch.join(name))
            .map_err(|error| format!("{error:#}"))
    }

    /// The number of rounds of a row.
    pub(super) fn rounds(&self) -> usize {
        self.args.rounds(ROUNDS)
    }

    /// The duration of the load in each round. Even the short one is long beside the clock tick of
    /// 10 ms in which CPU time may be counted.
    pub(super) fn load_time(&self) -> Duration {
        Duration::from_millis(if self.args.quick { 500 } else { 1000 })
    }

    pub(super) fn is_quick(&self) -> bool {
        self.args.quick
    }

    /// The version of each server, or why it does not run.
    pub(super) fn versions(&self, peers: &[Peer]) -> Vec<String> {
        let version = |(variant, peer): (&ServerVariant<'_>, &Peer)| match &variant.server {
            Ok(server) => {
                let version = peer.version.clone().or_else(|| server.version());
                version.unwrap_or_else(|| "version not known".into())
            }
            Err(why) => format!("not run: {why}"),
        };
        self.variants.iter().zip(peers).map(version).collect()
    }

    /// Checks the responses of every server, and then lets the servers take turns under load.
    pub(super) fn measure(&mut self, plan: &RowPlan, time: &RowTime) -> Row {
        let prepared: Vec<Result<Vec<String>, String>> = (0..self.variants.len())
            .map(|at| {
                let targets = self.checked_targets(plan.work, at);
                targets.map_err(|error| format!("{error:#}"))
            })
            .collect();
        let repetitions = Repetitions {
            warmup: 0,
            iterations: self.rounds(),
        };
        let unavailable = |reason: String| BenchError::Unavailable(reason);
        let mut turn = |at: usize| {
            if time.has_ended() {
                return Err(BenchError::Interrupted);
            }
            let targets = prepared[at].as_ref();
            let targets = targets.map_err(|why| unavailable(why.clone()))?;
            let sample = self.sample(plan, at, targets);
            self.wait_until_idle(at);
            sample.map_err(|error| unavailable(format!("{error:#}")))
        };
        let on_round = &mut |done: usize, _: &[Measurement]| {
            time.after_round(done, repetitions.iterations);
        };
        let measurements = take_turns(prepared.len(), repetitions, &mut turn, on_round);
        let names = self.variants.iter().map(|variant| variant.name.clone());
        Row {
            name: plan.name.clone(),
            unit: plan.unit,
            facts: json!({}),
            measurements: names.zip(measurements).collect(),
        }
    }

    /// Waits until a server has finished what was in progress at the end of its load, so that it
    /// takes no CPU time from the next one.
    fn wait_until_idle(&self, at: usize) {
        let variant = &self.variants[at];
        let zstd = variant.zstd.as_ref().and_then(|zstd| zstd.own.as_ref());
        let tls = variant.tls.as_ref().map(|tls| &tls.server);
        for server in variant.server.iter().chain(zstd).chain(tls) {
            processes::wait_until_idle(&server.endpoint.pids);
        }
    }

    /// The request targets of a row, after their responses were found correct.
    fn checked_targets(&mut self, work: Work, at: usize) -> Result<Vec<String>> {
        if work.is_over_tls() {
            return self.tls_targets(work, at);
        }
        if work.request() == Request::Zstd {
            return self.zstd_targets(at);
        }
        let variant = &mut self.variants[at];
        let checks = match (&variant.server, &mut variant.checks) {
            (Err(why), _) => bail!("{why}"),
            (Ok(_), None) => bail!("not checked"),
            (Ok(_), Some(checks)) => checks,
        };
        targets(work.request(), self.workload, checks)
    }

    /// One round of one server.
    fn sample(&self, plan: &RowPlan, at: usize, targets: &[String]) -> Result<Sample> {
        let variant = &self.variants[at];
        let endpoint = variant.endpoint(plan.work)?;
        let load = Load {
            targets,
            unit: plan.unit,
            status: plan.work.request().status(),
            headers: plan.work.headers(),
            openssl_conf: match plan.work {
                Work::TlsHandshakes(..) => Some(&self.full_handshakes),
                _ => None,
            },
            time: self.load_time() * plan.work.load_times(),
        };
        match plan.work {
            Work::Concurrent(_, connections)
            | Work::Tls(_, connections)
            | Work::TlsHandshakes(_, connections) => {
                load::concurrent(endpoint, &load, connections, &self.scratch)
            }
            Work::Sequential(_) => load::sequential(endpoint, &load),
            Work::FreshServer(_) => {
                let launch = variant.launch.as_ref().context("not started here")?;
                if let Launch::Running(_) = launch {
                    bail!("it is running already, and this row needs a fresh server");
                }
                let name = format!("{}-fresh", variant.name);
                let fresh = self
                    .launch(launch, &Mode::Plain, &name)
                    .map_err(anyhow::Error::msg)?;
                let once = Load {
                    time: Duration::ZERO,
                    ..load
                };
                load::sequential(&fresh.endpoint, &once)
            }
            Work::Realise => match &self.client {
                Ok(nix) => nix.realise(endpoint, self.workload),
                Err(why) => bail!("{why}"),
            },
        }
    }
}

/// The targets of some requests, after the responses were found correct.
fn targets(request: Request, workload: &Workload, checks: &mut Checks<'_>) -> Result<Vec<String>> {
    let one = |result: Result<String>| result.map(|target| vec![target]);
    match request {
        Request::Narinfo => one(checks.narinfo(workload.leaf()?)),
        Request::AbsentNarinfo => one(checks.absent()),
        Request::EmptyNar => one(checks.nar(&workload.empty)),
        Request::BigNar => one(checks.nar(&workload.big)),
        Request::SmallFilesNar | Request::Zstd => one(checks.nar(&workload.small[0])),
        Request::SmallFilesNars => workload.small.iter().map(|it| checks.nar(it)).collect(),
        Request::ClosureNars => workload.closure.iter().map(|it| checks.nar(it)).collect(),
        Request::ManyNars => workload.many.iter().map(|it| checks.nar(it)).collect(),
        Request::ClosureNarinfos => {
            let paths = workload.closure.iter();
            paths.map(|path| checks.narinfo(path)).collect()
        }
        Request::TenNarinfos => {
            let ten = workload.closure.iter().cycle().take(10);
            ten.map(|path| checks.narinfo(path)).collect()
        }
        Request::TenOf(pair) => {
            let path = match pair {
                Pair::Empty => &workload.empty,
                Pair::Big => &workload.big,
            };
            Ok(vec![[checks.narinfo(path)?, checks.nar(path)?]; 10].concat())
        }
    }
}
