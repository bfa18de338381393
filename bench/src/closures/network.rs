//! The rows over a network with a delay: real TCP, between two network namespaces.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use super::chains::PATHS;
use super::fixture::{Fixture, Kind, NIX, Program};
use super::link::{Link, LinkOptions};
use super::rows::{Group, PreparedRow, RowPlan, TrafficByVariant, tmpfs};
use super::variants;
use crate::aims::{Aim, FLOE};
use crate::http::Origin;
use crate::programs;
use crate::server::{FileCache, Server, nginx_config};
use crate::tls::Certificate;
use floe_bench::BenchError;

/// The protocol between client and server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Protocol {
    Http,
    Tls,
    Http2,
}

/// A network and the work over it.
#[derive(Clone, Copy, Debug)]
struct Work {
    corpus: &'static [&'static str],
    link: LinkOptions,
    protocol: Protocol,
    /// Whether `nix-cache-info` allows many queries at once. Nix does not write that by itself.
    wants_mass_query: bool,
}

/// Nix as if the machine had 16 cores: it has as many jobs as cores.
const NIX_16: &str = "nix, 16 cores";

/// All rows in the order of the table.
pub(super) fn all() -> Vec<RowPlan> {
    let mut rows = Vec::new();
    for (corpus, names) in [("firefox", FIREFOX), ("300 paths", CHAINS)] {
        for round_trip in [0, 20, 50] {
            for (protocol, name) in [
                (Protocol::Http, "HTTP"),
                (Protocol::Tls, "TLS"),
                (Protocol::Http2, "HTTP/2"),
            ] {
                let work = Work {
                    corpus: names,
                    link: link(round_trip),
                    protocol,
                    wants_mass_query: false,
                };
                rows.push(row(format!("{corpus}, {round_trip} ms, {name}"), work));
            }
        }
    }
    let fifty = Work {
        corpus: FIREFOX,
        link: link(50),
        protocol: Protocol::Http2,
        wants_mass_query: true,
    };
    for (corpus, names) in [("firefox", FIREFOX), ("300 paths", CHAINS)] {
        let work = Work {
            corpus: names,
            ..fifty
        };
        let name = format!("{corpus}, 50 ms, HTTP/2, many queries allowed");
        rows.push(row(name, work));
    }
    let curl = Work {
        corpus: &["curl"],
        link: link(50),
        ..fifty
    };
    rows.push(row("first contact with curl, 50 ms, HTTP/2".into(), curl));
    let slow = LinkOptions {
        rate: Some(20_000_000),
        ..link(150)
    };
    rows.push(row(
        "curl, 150 ms, 20 Mbit/s, HTTP/2".into(),
        Work { link: slow, ..curl },
    ));
    let lossy = LinkOptions {
        loss: Some(100),
        ..link(20)
    };
    rows.push(row(
        "firefox, 20 ms, 1 % loss, HTTP/2".into(),
        Work {
            link: lossy,
            ..fifty
        },
    ));
    for fault in [Fault::StalledConnection, Fault::DeadCache] {
        let work = Work {
            corpus: FIREFOX,
            link: link(50),
            protocol: Protocol::Tls,
            wants_mass_query: false,
        };
        rows.push(RowPlan {
            group: Group::Network,
            name: format!("firefox, 50 ms, TLS, {}", fault.name()),
            aim: Aim::time(WITHOUT_FAULT, 1.3),
            prepare: Box::new(move |fixture| prepare_fault(fixture, work, fault)),
        });
    }
    rows
}

/// A fault that floe should survive with little delay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// One of the connections loses all packets after a megabyte.
    StalledConnection,
    /// A cache that never replies comes before the good one.
    DeadCache,
}

impl Fault {
    fn name(self) -> &'static str {
        match self {
            Fault::StalledConnection => "one stalled connection",
            Fault::DeadCache => "a dead cache before the good one",
        }
    }
}

/// The variant to which a row with a fault is compared.
const WITHOUT_FAULT: &str = "floe, no fault";

/// The most time that floe may need, as a part of Nix's.
const AIMS: [(&str, f64); 4] = [
    ("firefox, 50 ms, HTTP/2", 0.25),
    ("firefox, 50 ms, TLS", 0.20),
    ("300 paths, 50 ms, TLS", 0.11),
    ("first contact with curl, 50 ms, HTTP/2", 0.25),
];

const FIREFOX: &[&str] = &["firefox", "firefox-esr"];
const CHAINS: &[&str] = &["chains"];

fn link(round_trip_millis: u64) -> LinkOptions {
    LinkOptions {
        round_trip: Duration::from_millis(round_trip_millis),
        rate: None,
        loss: None,
        stalls: Some(FAULTY_PORT),
    }
}

fn row(name: String, work: Work) -> RowPlan {
    let most = AIMS.iter().find(|(row, _)| *row == name);
    let aim = most.map_or(Aim::none(NIX), |(_, most)| Aim::time(NIX, *most));
    RowPlan {
        group: Group::Network,
        name,
        aim,
        prepare: Box::new(move |fixture| prepare(fixture, work)),
    }
}

fn prepare(fixture: &Fixture, work: Work) -> Result<PreparedRow<'_>> {
    let corpus = fixture.corpus(work.corpus)?;
    let is_whole = work.corpus != CHAINS || corpus.paths.len() == PATHS;
    ensure!(is_whole, "the chains are incomplete");
    prepare_variants(fixture, work, |scratch, url| {
        let to = tmpfs(fixture);
        let mut variants = variants::copies_from_cache(fixture, &corpus, url, &to)?;
        if fixture.bench.is_some() {
            variants.push(nix_with_16_cores(fixture, &corpus, url, scratch)?);
        }
        Ok(variants)
    })
}

/// Prepares floe with a fault and without.
fn prepare_fault(fixture: &Fixture, work: Work, fault: Fault) -> Result<PreparedRow<'_>> {
    let corpus = fixture.corpus(work.corpus)?;
    prepare_variants(fixture, work, |_, url| {
        let to = tmpfs(fixture);
        let floe = fixture.programs.iter().find(|it| it.name == FLOE);
        let floe = floe.context("there is no floe")?;
        let copy = |url: &str| variants::copy_from_cache(fixture, &corpus, (floe, url), &to);
        let mut sound = copy(url)?;
        sound.name = WITHOUT_FAULT.into();
        let faulty = match fault {
            Fault::StalledConnection => {
                copy(&url.replace(&PORT.to_string(), &FAULTY_PORT.to_string()))?
            }
            Fault::DeadCache => {
                let mut copy = copy(url)?;
                let dead = ["--from".into(), format!("https://{}:{PORT}", Link::NOBODY)];
                copy.invocation.arguments.splice(2..2, dead);
                copy
            }
        };
        let mut variants = vec![faulty, sound];
        // Unlike `floe copy`, `floe install` has several sources.
        let arguments = variants
            .iter_mut()
            .flat_map(|it| &mut it.invocation.arguments);
        for argument in arguments {
            match &**argument {
                "copy" => *argument = "install".into(),
                "--to" => *argument = "--root".into(),
                _ => {}
            }
        }
        Ok(variants)
    })
}

fn prepare_variants<'a>(
    fixture: &'a Fixture,
    work: Work,
    variants: impl FnOnce(&Path, &str) -> Result<Vec<floe_bench::Variant<'a>>>,
) -> Result<PreparedRow<'a>> {
    let corpus = fixture.corpus(work.corpus)?;
    let link = Rc::new(Link::new(work.link)?);
    let scratch = fixture.scratch.path().join("network");
    fs::create_dir_all(&scratch).context("cannot create a directory")?;
    let certificate = match work.protocol {
        Protocol::Http => None,
        Protocol::Tls | Protocol::Http2 => Some(Certificate::create(&scratch, Link::SERVER)?),
    };
    let cache = cache(&corpus.cache("zstd"), &scratch, work.wants_mass_query)?;
    let end = link.enter()?;
    let server = nginx(
        &link,
        (&cache, work.protocol),
        certificate.as_ref(),
        &scratch,
    )?;
    let url = server.endpoint.origin.url();
    let mut variants = variants(&scratch, &url)?;
    for variant in &mut variants {
        if let Some(certificate) = &certificate {
            let file = certificate.file.display().to_string();
            let variable = ("NIX_SSL_CERT_FILE".into(), Some(file));
            variant.invocation.environment.push(variable);
        }
    }
    let traffic = count_traffic(&link, &mut variants);
    Ok(PreparedRow {
        traffic,
        guards: vec![Box::new(end), Box::new(server), Box::new(link)],
        ..PreparedRow::new(variants)
    })
}

/// Counts the traffic of each variant, and checks which of them had a connection that stalled.
pub(super) fn count_traffic(
    link: &Rc<Link>,
    variants: &mut [floe_bench::Variant<'_>],
) -> TrafficByVariant {
    let traffic = TrafficByVariant::default();
    for variant in variants {
        let (name, link, traffic) = (variant.name.clone(), link.clone(), traffic.clone());
        let check = std::mem::replace(&mut variant.check, Box::new(|| Ok(())));
        let must_stall = variant
            .invocation
            .arguments
            .iter()
            .any(|argument| argument.contains(&FAULTY_PORT.to_string()));
        variant.check = Box::new(move || {
            let found = link.take_traffic();
            traffic.borrow_mut().insert(name.clone(), found);
            if found.has_stalled != must_stall {
                let text = format!("a connection stalled: {}", found.has_stalled);
                return Err(BenchError::Result(text));
            }
            check()
        });
    }
    // The traffic of the preparation does not count.
    link.take_traffic();
    traffic
}

/// The cache of a corpus with a `nix-cache-info` of its own.
fn cache(cache: &Path, scratch: &Path, wants_mass_query: bool) -> Result<PathBuf> {
    let directory = scratch.join("cache");
    floe_bench::remove_tree(&directory)?;
    fs::create_dir(&directory).context("cannot create a cache")?;
    for entry in fs::read_dir(cache).context("cannot read a cache")? {
        let entry = entry.context("cannot read a cache")?;
        let link = directory.join(entry.file_name());
        std::os::unix::fs::symlink(entry.path(), link).context("cannot make a link")?;
    }
    let info = directory.join("nix-cache-info");
    let _: std::io::Result<()> = fs::remove_file(&info);
    let mass_query = if wants_mass_query {
        "WantMassQuery: 1\n"
    } else {
        ""
    };
    let text = format!("StoreDir: /nix/store\n{mass_query}");
    fs::write(&info, text).context("cannot write nix-cache-info")?;
    Ok(directory)
}

/// nginx at the server's end of a link.
fn nginx(
    link: &Link,
    (cache, protocol): (&Path, Protocol),
    certificate: Option<&Certificate>,
    scratch: &Path,
) -> Result<Server> {
    let cache = FileCache {
        root: cache,
        prefix: "",
        certificate,
    };
    let (ssl, http2) = match protocol {
        Protocol::Http => ("", ""),
        Protocol::Tls => (" ssl", ""),
        Protocol::Http2 => (" ssl", " http2"),
    };
    // nginx speaks TLS 1.3 by default only in newer versions; public caches do.
    let versions = match ssl {
        "" => "",
        _ => " ssl_protocols TLSv1.2 TLSv1.3;",
    };
    let also = format!(
        " listen {}:{FAULTY_PORT}{ssl}{http2};{versions}",
        Link::SERVER
    );
    let listen = format!("{}:{PORT}{http2}", Link::SERVER);
    let config = scratch.join("nginx.conf");
    let text = nginx_config(&cache, (&listen, 1), scratch);
    let text = text.replacen("server { ", &format!("server {{{also} "), 1);
    fs::write(&config, text).context("cannot write nginx.conf")?;
    let nginx = programs::installed("nginx", "nginx")?;
    let mut command = link.server_command(&nginx.display().to_string())?;
    command.arg("-c").arg(config).args(["-e", "stderr"]);
    let mut origin = Origin::local(PORT);
    origin.authority = format!("{}:{PORT}", Link::SERVER);
    origin.certificate = certificate.map(|tls| tls.file.clone());
    Server::start(command, origin, scratch)
}

const PORT: u16 = 8443;

/// One connection to this port stalls in each run.
const FAULTY_PORT: u16 = 8444;

/// The newest Nix with a library that tells it of 16 cores.
fn nix_with_16_cores<'a>(
    fixture: &'a Fixture,
    corpus: &crate::corpus::Corpus,
    url: &str,
    scratch: &Path,
) -> Result<floe_bench::Variant<'a>> {
    let (source, library) = (scratch.join("cores.c"), scratch.join("cores.so"));
    fs::write(&source, "int get_nprocs(void) { return 16; }\n").context("cannot write C")?;
    let mut cc = Command::new(programs::installed("cc", "gcc")?);
    cc.args(["-shared", "-fPIC", "-o"]).arg(&library);
    let status = cc.arg(&source).status().context("cannot run cc")?;
    ensure!(status.success(), "cc: {status}");
    let nix = fixture.programs.iter().find(|program| program.name == NIX);
    let nix = nix.context("there is no Nix")?;
    let program = Program {
        name: NIX_16,
        kind: Kind::Nix,
        path: nix.path.clone(),
    };
    let to = tmpfs(fixture);
    let mut variant = variants::copy_from_cache(fixture, corpus, (&program, url), &to)?;
    let variable = ("LD_PRELOAD".into(), Some(library.display().to_string()));
    variant.invocation.environment.push(variable);
    Ok(variant)
}
