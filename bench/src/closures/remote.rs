//! The rows of copies to and from a Nix daemon: of another machine over SSH, over a network with a
//! delay, and of this machine.
//!
//! The other machine is a network namespace with a real sshd.

mod daemon;

use std::fs;
use std::rc::Rc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use floe_bench::Variant;

use self::daemon::{Daemon, create_store, sshd};
use super::fixture::{Fixture, NIX, Program};
use super::link::{Link, LinkOptions};
use super::rows::{Group, PreparedRow, RowPlan, tmpfs};
use super::variants::{self, Destination, strings};
use crate::aims::Aim;
use crate::corpus::Corpus;

/// The way to the daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// `ssh-ng://` over a network with this round trip, in milliseconds.
    Ssh(u64),
    /// `ssh://` over such a network.
    Serve(u64),
    /// `ssh-ng://localhost`, without ssh.
    Program,
    /// `unix://`.
    Socket,
}

/// The work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Task {
    /// The daemon's store is empty.
    Push,
    /// It has everything.
    PushAgain,
    Fetch,
    /// The target has everything.
    FetchAgain,
    /// From a signed cache, compressed with zstd.
    PushFromCache,
}

/// The programs at the two ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ends {
    /// Each program is the client of the newest Nix.
    NixHost,
    /// Each program is at both ends.
    Equal,
    /// The newest Nix is the client of each program.
    NixClient,
}

#[derive(Clone, Copy, Debug)]
struct Work {
    corpus: &'static [&'static str],
    way: Way,
    task: Task,
    ends: Ends,
    /// How many clients do the work at once.
    clients: usize,
}

impl Work {
    const fn new(corpus: &'static [&'static str], way: Way, task: Task) -> Work {
        Work {
            corpus,
            way,
            task,
            ends: Ends::NixHost,
            clients: 1,
        }
    }

    const fn between(self, ends: Ends) -> Work {
        Work { ends, ..self }
    }
}

/// All rows in the order of the table.
pub(super) fn all() -> Vec<RowPlan> {
    let rows = rows_with_nix().into_iter().chain(rows_with_floe());
    let rows = rows.map(|(name, work, most)| RowPlan {
        group: Group::Remote,
        name: name.into(),
        aim: Aim::time(NIX, most),
        prepare: Box::new(move |fixture| prepare(fixture, work)),
    });
    rows.collect()
}

/// The rows with the newest Nix at the other end of all variants.
fn rows_with_nix() -> Vec<(&'static str, Work, f64)> {
    use Task::{Fetch, FetchAgain, Push, PushAgain, PushFromCache};
    let (far, older, local) = (Way::Ssh(50), Way::Serve(50), Way::Program);
    let chains = |way, task| Work::new(CHAINS, way, task);
    let firefox = |way, task| Work::new(FIREFOX, way, task);
    vec![
        ("300 paths → ssh-ng, 50 ms", chains(far, Push), 0.90),
        ("300 paths ← ssh-ng, 50 ms", chains(far, Fetch), 0.10),
        ("300 paths → ssh, 50 ms", chains(older, Push), 0.06),
        ("300 paths ← ssh, 50 ms", chains(older, Fetch), 0.06),
        ("firefox → ssh-ng, 50 ms", firefox(far, Push), 1.0),
        ("firefox ← ssh-ng, 50 ms", firefox(far, Fetch), 0.52),
        (
            "firefox → ssh-ng, all present, 50 ms",
            firefox(far, PushAgain),
            1.0,
        ),
        (
            "firefox ← ssh-ng, all present, 50 ms",
            firefox(far, FetchAgain),
            0.20,
        ),
        ("firefox → ssh-ng, localhost", firefox(local, Push), 0.80),
        ("firefox ← ssh-ng, localhost", firefox(local, Fetch), 0.80),
        (
            "firefox, zstd cache → daemon",
            firefox(Way::Socket, PushFromCache),
            0.82,
        ),
    ]
}

/// The rows with each program as the host, too.
fn rows_with_floe() -> Vec<(&'static str, Work, f64)> {
    use Task::{Fetch, Push, PushFromCache};
    let (far, older, local) = (Way::Ssh(50), Way::Serve(50), Way::Program);
    let from_nix = |it: Work| it.between(Ends::NixClient);
    let equal = |it: Work| it.between(Ends::Equal);
    let chains = |way, task| Work::new(CHAINS, way, task);
    let firefox = |way, task| Work::new(FIREFOX, way, task);
    let from_cache = equal(firefox(Way::Socket, PushFromCache));
    vec![
        (
            "300 paths, Nix → ssh-ng of each, 50 ms",
            from_nix(chains(far, Push)),
            1.05,
        ),
        (
            "300 paths, each → ssh-ng of its own, 50 ms",
            equal(chains(far, Push)),
            0.85,
        ),
        (
            "300 paths, each → ssh of its own, 50 ms",
            equal(chains(older, Push)),
            0.04,
        ),
        (
            "firefox, each → ssh-ng of its own, 50 ms",
            equal(firefox(far, Push)),
            0.45,
        ),
        (
            "firefox, each ← ssh-ng of its own, 50 ms",
            equal(firefox(far, Fetch)),
            0.22,
        ),
        (
            "firefox, Nix → ssh-ng of each, localhost",
            from_nix(firefox(local, Push)),
            0.85,
        ),
        (
            "firefox, each → ssh-ng of its own, localhost",
            equal(firefox(local, Push)),
            0.55,
        ),
        (
            "firefox, each zstd cache → daemon of its own",
            from_cache,
            0.70,
        ),
        (
            "firefox, four zstd cache → daemon of their own",
            Work {
                clients: 4,
                ..from_cache
            },
            0.50,
        ),
    ]
}

const FIREFOX: &[&str] = &["firefox", "firefox-esr"];
const CHAINS: &[&str] = &["chains"];

fn prepare(fixture: &Fixture, work: Work) -> Result<PreparedRow<'_>> {
    let corpus = fixture.corpus(work.corpus)?;
    let scratch = fixture.memory.path().join("remote");
    floe_bench::remove_tree(&scratch)?;
    fs::create_dir_all(&scratch).context("cannot create a directory")?;
    let mut guards: Vec<Box<dyn std::any::Any>> = Vec::new();
    let mut link = None;
    let mut ssh_options = None;
    if let Way::Ssh(millis) | Way::Serve(millis) = work.way {
        let new = Rc::new(Link::new(LinkOptions {
            round_trip: Duration::from_millis(millis),
            rate: None,
            loss: None,
            stalls: None,
        })?);
        let end = new.enter()?;
        let (server, options) = sshd(&new, &scratch)?;
        guards.extend([Box::new(end) as _, Box::new(server) as _]);
        guards.push(Box::new(new.clone()));
        link = Some(new);
        ssh_options = Some(options);
    }
    let mut found = Vec::new();
    for program in &fixture.programs {
        let daemon = Daemon {
            fixture,
            host: Some(program).filter(|_| work.ends != Ends::NixHost),
            root: scratch.join("store"),
            scratch: scratch.join(program.name.replace(' ', "-")),
        };
        fs::create_dir_all(&daemon.scratch).context("cannot create a directory")?;
        let uri = match work.way {
            Way::Ssh(_) | Way::Serve(_) => {
                daemon.program_uri(work.way, &Link::SERVER.to_string())?
            }
            Way::Program => daemon.program_uri(work.way, "localhost")?,
            Way::Socket => {
                let (process, uri) = daemon.listen()?;
                guards.push(Box::new(process));
                uri
            }
        };
        let mut variant = variant(&daemon, (&corpus, work), program, &uri)?;
        if let Some(options) = &ssh_options {
            let variable = ("NIX_SSHOPTS".to_owned(), Some(options.clone()));
            variant.invocation.environment.push(variable);
        }
        found.push(variant);
    }
    let traffic = match &link {
        Some(link) => super::network::count_traffic(link, &mut found),
        None => Rc::default(),
    };
    Ok(PreparedRow {
        traffic,
        guards,
        ..PreparedRow::new(found)
    })
}

/// One program that does the work.
fn variant<'a>(
    daemon: &Daemon<'a>,
    (corpus, work): (&Corpus, Work),
    program: &Program,
    uri: &str,
) -> Result<Variant<'a>> {
    let (fixture, task) = (daemon.fixture, work.task);
    let client = match work.ends {
        Ends::NixClient => fixture.nix_program("nix"),
        _ => program.path.clone(),
    };
    let store = corpus.store().display().to_string();
    let back = tmpfs(fixture);
    let (from, to) = match task {
        Task::Push | Task::PushAgain => (store, uri.to_owned()),
        Task::PushFromCache => (cache(corpus), uri.to_owned()),
        Task::Fetch | Task::FetchAgain => (uri.to_owned(), back.root.display().to_string()),
    };
    let client = client.display().to_string();
    let mut all = strings(&[&client, "copy", "--no-check-sigs", "--from", &from]);
    all.extend(strings(&["--to", &to, &corpus.root]));
    if work.clients > 1 {
        all = at_once(all, work.clients);
    }
    let checked = match task {
        Task::Fetch | Task::FetchAgain => back.root.clone(),
        _ => daemon.root.clone(),
    };
    let written = Destination {
        root: checked.clone(),
        synced: None,
    };
    let is_repeated = matches!(task, Task::PushAgain | Task::FetchAgain);
    let removed = Some(&written).filter(|_| !is_repeated);
    let mut variant = variants::variant(fixture, program.name, all, removed);
    if task != Task::Push && task != Task::PushFromCache {
        daemon.fill(corpus, &daemon.root)?;
    }
    if task == Task::FetchAgain {
        daemon.fill(corpus, &back.root)?;
    }
    variant.check = variants::check_closure(fixture, corpus, checked)?;
    let root = daemon.root.clone();
    if matches!(task, Task::Push | Task::PushFromCache) {
        // Two processes of a daemon must not create a store at once.
        variant.prepare = Box::new(move || create_store(fixture, &root));
    }
    Ok(variant)
}

/// Returns a command line that runs another one several times at once, and fails if one of them
/// fails.
fn at_once(command: Vec<String>, times: usize) -> Vec<String> {
    let start = "\"$@\" & pids=\"$pids $!\"; ".repeat(times);
    let script = format!("{start}for pid in $pids; do wait $pid || exit 1; done");
    let mut all = strings(&["sh", "-c", &script, "sh"]);
    all.extend(command);
    all
}

/// The URL of the cache with zstd.
fn cache(corpus: &Corpus) -> String {
    format!("file://{}", corpus.cache("zstd").display())
}
