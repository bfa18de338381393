//! `cargo xtask bench serve`: `floe serve` beside nginx over a cache of files, and beside other
//! servers of a store, over the same paths with the same key.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};
use floe_bench::machine;
use serde_json::{Value, json};

use super::checks::{Checks, ZSTD};
use super::figures::{Measurement, Row, Sample};
use super::load::{self, Load};
use super::options::Options;
use super::peers::{self, Endpoint, Launch, Peer, Server};
use super::processes;
use super::realise::Nix;
use super::record;
use super::rows::{self, Pair, Plan, What, Work};
use super::table;
use super::workload::Workload;
use xtask::system;

use crate::Outcome;

/// A side cache has been filled by then; zstd compresses some 100 MB in a second.
const WARMING: Duration = Duration::from_secs(60);

pub(crate) fn command(root: &Path, arguments: &[String]) -> Result<Outcome> {
    let options = match Options::parse(arguments) {
        Ok(options) => options,
        Err(problem) => return Ok(Outcome::Usage(problem)),
    };
    for tool in ["wrk", "zstd"] {
        system::find(tool)
            .with_context(|| format!("{tool} is not installed; apt-get install {tool}"))?;
    }
    let plans: Vec<Plan> = rows::all()
        .into_iter()
        .filter(|plan| options.wants(&plan.name))
        .collect();
    if plans.is_empty() {
        return Ok(Outcome::Usage(format!(
            "no row is called {:?}",
            options.rows
        )));
    }
    // What is said of the load at the start must not be that of the preparations.
    let machine = machine::machine();
    let peers = peers::all(root, &options.peers);
    let place = xtask::workspace::target_directory(root).join("bench");
    let _alone = lock_machine(&place)?;
    let work = Workload::prepare(root, &place.join("serve"))?;
    let mut bench = Bench::new(&options, &work, place.join("run"), &peers)?;
    bench.client = Nix::find(root);

    let mut measured = Vec::new();
    for plan in &plans {
        eprintln!("{}", plan.name);
        let row = bench.measure(plan);
        eprintln!("  {}", table::summary(&row));
        measured.push(row);
    }
    let facts = bench.facts(root, machine, &peers);
    drop(bench);
    let text = table::markdown(&measured, &facts);
    print!("{text}");
    let rows: Vec<Value> = measured.iter().map(row_json).collect();
    let json = record::lines(&facts, &rows);
    if let Some(file) = &options.json {
        record::write(file, &json)?;
    }
    if options.record {
        record::record(root, &measured, &text, &json)?;
    }
    Ok(Outcome::Good)
}

/// Two runs at once would measure each other, and empty each other's directories.
pub(super) fn lock_machine(place: &Path) -> Result<fs::File> {
    fs::create_dir_all(place).with_context(|| format!("making {}", place.display()))?;
    let file = place.join("lock");
    let lock = fs::File::create(&file).with_context(|| format!("making {}", file.display()))?;
    match lock.try_lock() {
        Ok(()) => Ok(lock),
        Err(_) => bail!("another benchmark runs in {}", place.display()),
    }
}

fn row_json(row: &Row) -> Value {
    let measurements = row
        .measurements
        .iter()
        .map(|(name, cell)| (name.clone(), cell.json()));
    let ratio = row.ratio(row.rival());
    json!({
        "row": row.name,
        "measurements": measurements.collect::<serde_json::Map<_, _>>(),
        "rival": row.rival(),
        "speedRatio": ratio.map(|ratio| ratio.speed),
        "cpuRatio": ratio.and_then(|ratio| ratio.cpu),
        "aim": table::aim(row),
        "met": table::verdict(row),
    })
}

/// A peer that runs, or why it does not, and what it answered so far.
struct Variant<'a> {
    name: String,
    launch: Option<Launch>,
    server: Result<Server, String>,
    checks: Option<Checks<'a>>,
    zstd: Option<Compressed>,
}

/// Where a variant answers with zstd.
struct Compressed {
    site: Endpoint,
    /// A server for this alone, which compresses beside its work.
    own: Option<Server>,
}

struct Bench<'a> {
    options: &'a Options,
    work: &'a Workload,
    scratch: PathBuf,
    variants: Vec<Variant<'a>>,
    client: Result<Nix, String>,
}

impl<'a> Bench<'a> {
    fn new(
        options: &'a Options,
        work: &'a Workload,
        scratch: PathBuf,
        peers: &[Peer],
    ) -> Result<Self> {
        if scratch.exists() {
            fs::remove_dir_all(&scratch)
                .with_context(|| format!("removing {}", scratch.display()))?;
        }
        fs::create_dir_all(&scratch).with_context(|| format!("making {}", scratch.display()))?;
        let mut bench = Bench {
            options,
            work,
            scratch,
            variants: Vec::new(),
            client: Err("not looked for".into()),
        };
        for peer in peers {
            let variant = bench.variant(peer);
            if let Err(why) = &variant.server {
                eprintln!("{} does not run: {why}", peer.name);
            }
            bench.variants.push(variant);
        }
        Ok(bench)
    }

    fn variant(&self, peer: &Peer) -> Variant<'a> {
        let launch = peer.launch.as_ref().map_err(String::clone);
        let server = launch.and_then(|launch| self.start(launch, &peer.name));
        let site = server.as_ref().ok().map(|server| server.site.clone());
        Variant {
            name: peer.name.clone(),
            launch: peer.launch.as_ref().ok().cloned(),
            checks: site.as_ref().map(|site| Checks::new(self.work, site)),
            server,
            zstd: None,
        }
    }

    fn start(&self, launch: &Launch, name: &str) -> Result<Server, String> {
        Server::start(launch, self.work, &self.scratch.join(name))
            .map_err(|error| format!("{error:#}"))
    }

    /// One row: first every answer is checked, then all take turns, each round beginning with
    /// another.
    fn measure(&mut self, plan: &Plan) -> Row {
        let count = self.variants.len();
        let mut samples: Vec<Result<Vec<Sample>, String>> = Vec::new();
        let mut targets = Vec::new();
        for at in 0..count {
            let prepared = self.targets(plan.work, at);
            samples.push(match &prepared {
                Ok(_) => Ok(Vec::new()),
                Err(error) => Err(format!("{error:#}")),
            });
            targets.push(prepared.unwrap_or_default());
        }
        for round in 0..self.options.rounds() {
            for turn in 0..count {
                let at = (round + turn) % count;
                let Ok(so_far) = &mut samples[at] else {
                    continue;
                };
                let sample = self.sample(plan.work, at, &targets[at]);
                self.settle(at);
                match sample {
                    Ok(sample) => so_far.push(sample),
                    Err(error) => samples[at] = Err(format!("{error:#}")),
                }
            }
        }
        let measurements = self.variants.iter().zip(samples).map(|(variant, samples)| {
            let cell = samples.map_or_else(Measurement::NotRun, Measurement::Ran);
            (variant.name.clone(), cell)
        });
        Row {
            name: plan.name.clone(),
            measure: plan.measure,
            aim: plan.aim,
            measurements: measurements.collect(),
        }
    }

    /// Waits until a server has done what was left when its load ended, so that it takes nothing
    /// from the next.
    fn settle(&self, at: usize) {
        let variant = &self.variants[at];
        let servers = [
            variant.server.as_ref().ok(),
            variant.zstd.as_ref().and_then(|zstd| zstd.own.as_ref()),
        ];
        for server in servers.into_iter().flatten() {
            processes::settle(&server.site.pids);
        }
    }

    /// What to ask the variant for, after its answers were found right.
    fn targets(&mut self, work: Work, at: usize) -> Result<Vec<String>> {
        let what = match work {
            Work::Realise => What::ClosureNarinfos,
            Work::Many(what, _) | Work::InTurn(what) | Work::Fresh(what) => what,
        };
        if what == What::Zstd {
            return self.compressed(at);
        }
        let of = self.work;
        let variant = &mut self.variants[at];
        let checks = match (&variant.server, &mut variant.checks) {
            (Err(why), _) => bail!("{why}"),
            (Ok(_), None) => bail!("not checked"),
            (Ok(_), Some(checks)) => checks,
        };
        let one = |result: Result<String>| result.map(|target| vec![target]);
        match what {
            What::Narinfo => one(checks.narinfo(of.leaf()?)),
            What::Absent => one(checks.absent()),
            What::Empty => one(checks.nar(&of.empty)),
            What::Big => one(checks.nar(&of.big)),
            What::Small | What::Zstd => one(checks.nar(&of.small[0])),
            What::SmallPaths => of.small.iter().map(|path| checks.nar(path)).collect(),
            What::ClosureNars => of.closure.iter().map(|path| checks.nar(path)).collect(),
            What::ClosureNarinfos => of.closure.iter().map(|path| checks.narinfo(path)).collect(),
            What::TenNarinfos => {
                let ten = of.closure.iter().cycle().take(10);
                ten.map(|path| checks.narinfo(path)).collect()
            }
            What::TenOf(pair) => {
                let path = match pair {
                    Pair::Empty => &of.empty,
                    Pair::Big => &of.big,
                };
                Ok(vec![[checks.narinfo(path)?, checks.nar(path)?]; 10].concat())
            }
        }
    }

    /// What to ask for with `ZSTD`.
    fn compressed(&mut self, at: usize) -> Result<Vec<String>> {
        if self.variants[at].zstd.is_none() {
            self.variants[at].zstd = Some(self.start_compressed(at)?);
        }
        let zstd = self.variants[at].zstd.as_ref().context("not started")?;
        let patience = match zstd.own {
            Some(_) => WARMING,
            None => Duration::ZERO,
        };
        let mut checks = Checks::new(self.work, &zstd.site);
        let target = checks.compressed(self.work.middling()?, patience, &self.scratch)?;
        Ok(vec![target])
    }

    /// nginx has compressed NARs in another cache, floe has a server with a side cache, and the
    /// others answer as they are.
    fn start_compressed(&self, at: usize) -> Result<Compressed> {
        let variant = &self.variants[at];
        let mut site = match &variant.server {
            Ok(server) => server.site.clone(),
            Err(why) => bail!("{why}"),
        };
        match &variant.launch {
            Some(Launch::Floe { binary, .. }) => {
                let launch = Launch::Floe {
                    binary: binary.clone(),
                    side_cache: true,
                };
                let server = self.start(&launch, "floe-zstd");
                let server = server.map_err(|why| anyhow!("with a side cache: {why}"))?;
                return Ok(Compressed {
                    site: server.site.clone(),
                    own: Some(server),
                });
            }
            Some(Launch::Nginx) => site.origin.prefix = Workload::ZSTD.into(),
            _ => {}
        }
        Ok(Compressed { site, own: None })
    }

    /// One round of one cell.
    fn sample(&self, work: Work, at: usize, targets: &[String]) -> Result<Sample> {
        let variant = &self.variants[at];
        let site = match &variant.server {
            Ok(server) => &server.site,
            Err(why) => bail!("{why}"),
        };
        let mut load = Load {
            targets,
            connections: 1,
            status: 200,
            extra: "",
        };
        match work {
            Work::Many(What::Zstd, connections) => {
                let zstd = variant.zstd.as_ref().context("not started")?;
                (load.connections, load.extra) = (connections, ZSTD);
                load::hammer(&zstd.site, &load, self.options.cell(), &self.scratch)
            }
            Work::Many(what, connections) => {
                load.connections = connections;
                load.status = status(what);
                load::hammer(site, &load, self.options.cell(), &self.scratch)
            }
            Work::InTurn(what) => {
                load.status = status(what);
                load::in_turn(site, &load, self.options.cell())
            }
            Work::Fresh(_) => {
                let launch = variant.launch.as_ref().context("not started here")?;
                if let Launch::Running(_) = launch {
                    bail!("it runs already, and only a server that has just started counts");
                }
                let name = format!("{}-fresh", variant.name);
                let fresh = self.start(launch, &name).map_err(anyhow::Error::msg)?;
                load::in_turn(&fresh.site, &load, Duration::ZERO)
            }
            Work::Realise => match &self.client {
                Ok(nix) => nix.realise(site, self.work),
                Err(why) => bail!("{why}"),
            },
        }
    }

    fn facts(&self, root: &Path, machine: Value, peers: &[Peer]) -> Value {
        let versions = self.variants.iter().zip(peers).map(|(variant, peer)| {
            let version = match &variant.server {
                Ok(server) => json!(peer.version.clone().or_else(|| server.version())),
                Err(why) => json!({ "notRun": why }),
            };
            (variant.name.clone(), version)
        });
        json!({
            "machine": machine,
            "peers": versions.collect::<serde_json::Map<_, _>>(),
            "commit": commit(root),
            "wrk": wrk_version(),
            "nixClient": self.client.as_ref().map(|nix| nix.version.clone()).ok(),
            "corpus": self.work.corpus,
            "paths": self.work.closure.len(),
            "rounds": self.options.rounds(),
            "cellSeconds": self.options.cell().as_secs_f64(),
            "quick": self.options.quick,
        })
    }
}

fn status(what: What) -> u16 {
    if what == What::Absent { 404 } else { 200 }
}

/// The commit from which floe is built, when nobody gave another.
fn commit(root: &Path) -> Option<String> {
    let given = std::env::var_os("FLOE_BIN").filter(|given| !given.is_empty());
    if given.is_some() {
        return None;
    }
    let mut git = Command::new("git");
    git.args(["-c", "safe.directory=*", "describe", "--always", "--dirty"]);
    machine::first_line(git.current_dir(root))
}

/// `wrk debian/4.1.0 [epoll] Copyright …`, without what follows the version.
fn wrk_version() -> Option<String> {
    let line = machine::first_line(Command::new("wrk").arg("-v"))?;
    let words: Vec<&str> = line.split(' ').take(2).collect();
    Some(words.join(" "))
}
