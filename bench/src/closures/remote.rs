//! The rows of copies to and from a Nix daemon: of another machine over SSH, over a network with a
//! delay, and of this machine.
//!
//! The other machine is a network namespace with a real sshd. Its daemon is that of the newest Nix,
//! for all variants.

use std::fs;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::rc::Rc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use floe_bench::{BenchError, Variant};

use super::fixture::{Fixture, NIX};
use super::link::{Link, LinkOptions};
use super::rows::{Group, PreparedRow, RowPlan, tmpfs};
use super::servers::{Running, start_at};
use super::variants::{self, Destination, strings};
use crate::aims::Aim;
use crate::corpus::Corpus;
use crate::programs;

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

#[derive(Clone, Copy, Debug)]
struct Work {
    corpus: &'static [&'static str],
    way: Way,
    task: Task,
}

/// All rows in the order of the table.
pub(super) fn all() -> Vec<RowPlan> {
    use Task::{Fetch, FetchAgain, Push, PushAgain, PushFromCache};
    let (far, older) = (Way::Ssh(50), Way::Serve(50));
    let rows = [
        ("300 paths → ssh-ng, 50 ms", CHAINS, far, Push, 0.90),
        ("300 paths ← ssh-ng, 50 ms", CHAINS, far, Fetch, 0.10),
        ("300 paths → ssh, 50 ms", CHAINS, older, Push, 0.06),
        ("300 paths ← ssh, 50 ms", CHAINS, older, Fetch, 0.06),
        ("firefox → ssh-ng, 50 ms", FIREFOX, far, Push, 1.0),
        ("firefox ← ssh-ng, 50 ms", FIREFOX, far, Fetch, 0.52),
        (
            "firefox → ssh-ng, all present, 50 ms",
            FIREFOX,
            far,
            PushAgain,
            1.0,
        ),
        (
            "firefox ← ssh-ng, all present, 50 ms",
            FIREFOX,
            far,
            FetchAgain,
            0.20,
        ),
        (
            "firefox → ssh-ng, localhost",
            FIREFOX,
            Way::Program,
            Push,
            0.80,
        ),
        (
            "firefox ← ssh-ng, localhost",
            FIREFOX,
            Way::Program,
            Fetch,
            0.80,
        ),
        (
            "firefox, zstd cache → daemon",
            FIREFOX,
            Way::Socket,
            PushFromCache,
            0.82,
        ),
    ];
    let rows = rows.into_iter().map(|(name, corpus, way, task, most)| {
        let work = Work { corpus, way, task };
        RowPlan {
            group: Group::Remote,
            name: name.into(),
            aim: Aim::time(NIX, most),
            prepare: Box::new(move |fixture| prepare(fixture, work)),
        }
    });
    rows.collect()
}

const FIREFOX: &[&str] = &["firefox", "firefox-esr"];
const CHAINS: &[&str] = &["chains"];

fn prepare(fixture: &Fixture, work: Work) -> Result<PreparedRow<'_>> {
    let corpus = fixture.corpus(work.corpus)?;
    let scratch = fixture.memory.path().join("remote");
    floe_bench::remove_tree(&scratch)?;
    fs::create_dir_all(&scratch).context("cannot create a directory")?;
    let daemon = Daemon {
        fixture,
        root: scratch.join("store"),
        scratch: scratch.clone(),
    };
    let mut guards: Vec<Box<dyn std::any::Any>> = Vec::new();
    let mut link = None;
    let mut ssh_options = None;
    let uri = match work.way {
        Way::Ssh(millis) | Way::Serve(millis) => {
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
            daemon.program_uri(work.way, &Link::SERVER.to_string())?
        }
        Way::Program => daemon.program_uri(work.way, "localhost")?,
        Way::Socket => {
            let (process, uri) = daemon.listen()?;
            guards.push(Box::new(process));
            uri
        }
    };
    let mut found = Vec::new();
    for program in &fixture.programs {
        let path = program.path.display().to_string();
        let mut variant = variant(&daemon, (&corpus, work.task), (program.name, &path), &uri)?;
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
    (corpus, task): (&Corpus, Task),
    (name, program): (&str, &str),
    uri: &str,
) -> Result<Variant<'a>> {
    let fixture = daemon.fixture;
    let store = corpus.store().display().to_string();
    let back = tmpfs(fixture);
    let (from, to) = match task {
        Task::Push | Task::PushAgain => (store, uri.to_owned()),
        Task::PushFromCache => (cache(corpus), uri.to_owned()),
        Task::Fetch | Task::FetchAgain => (uri.to_owned(), back.root.display().to_string()),
    };
    let mut all = strings(&[program, "copy", "--no-check-sigs", "--from", &from]);
    all.extend(strings(&["--to", &to, &corpus.root]));
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
    let mut variant = variants::variant(fixture, name, all, removed);
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

/// The URL of the cache with zstd.
fn cache(corpus: &Corpus) -> String {
    format!("file://{}", corpus.cache("zstd").display())
}

/// Creates an empty store.
fn create_store(fixture: &Fixture, root: &Path) -> Result<(), BenchError> {
    let mut command = fixture.nix_command("nix-store");
    let status = command.arg("--store").arg(root).arg("--dump-db").status();
    match status {
        Ok(status) if status.success() => Ok(()),
        _ => Err(BenchError::Result("nix-store cannot create a store".into())),
    }
}

/// The daemon of the newest Nix.
struct Daemon<'a> {
    fixture: &'a Fixture,
    root: PathBuf,
    scratch: PathBuf,
}

impl Daemon<'_> {
    fn program_uri(&self, way: Way, authority: &str) -> Result<String> {
        let (scheme, tool) = match way {
            Way::Serve(_) => ("ssh", "nix-store"),
            _ => ("ssh-ng", "nix-daemon"),
        };
        let command = self.fixture.nix_command(tool);
        let conf = command
            .get_envs()
            .find(|(name, _)| *name == "NIX_CONF_DIR")
            .and_then(|(_, value)| value)
            .context("Nix has no settings")?;
        let (conf, program) = (conf.display(), command.get_program().display());
        let words = format!("env NIX_REMOTE=local NIX_CONF_DIR={conf} {program}");
        let (words, store) = (words.replace(' ', "%20"), self.root.display());
        Ok(format!(
            "{scheme}://{authority}?remote-program={words}&remote-store={store}"
        ))
    }

    /// Starts a daemon with a socket.
    fn listen(&self) -> Result<(Running, String)> {
        create_store(self.fixture, &self.root)?;
        let socket = self.scratch.join("socket");
        let mut command = self.fixture.nix_command("nix-daemon");
        command.arg("--store").arg(&self.root);
        command.env("NIX_DAEMON_SOCKET_PATH", &socket);
        let running = Running::start(command)?;
        let began = Instant::now();
        while UnixStream::connect(&socket).is_err() {
            ensure!(
                began.elapsed() < START_TIMEOUT,
                "the daemon does not listen"
            );
            thread::sleep(Duration::from_millis(20));
        }
        Ok((running, format!("unix://{}", socket.display())))
    }

    /// Copies the closure into a store, with Nix.
    fn fill(&self, corpus: &Corpus, root: &Path) -> Result<()> {
        let mut command = self.fixture.nix_command("nix");
        command.args(["copy", "--no-check-sigs", "--from"]);
        command.arg(corpus.store()).arg("--to").arg(root);
        let status = command.arg(&corpus.root).status()?;
        ensure!(status.success(), "Nix cannot fill {}", root.display());
        Ok(())
    }
}

/// sshd at the server's end of a link, and the options of its clients.
fn sshd(link: &Link, scratch: &Path) -> Result<(Running, String)> {
    let file = |name: &str| scratch.join(name);
    let keygen = programs::installed("ssh-keygen", "openssh-client")?;
    for name in ["host", "user"] {
        let mut command = Command::new(&keygen);
        command
            .args(["-q", "-t", "ed25519", "-N", "", "-f"])
            .arg(file(name));
        let status = command.stdout(Stdio::null()).status()?;
        ensure!(status.success(), "ssh-keygen cannot make a key");
    }
    fs::create_dir_all("/run/sshd").context("cannot create the directory of sshd")?;
    let config = format!(
        "Port {SSH_PORT}\nListenAddress {}\nHostKey {}\nAuthorizedKeysFile {}\nStrictModes no\n\
         UsePAM no\nPermitRootLogin yes\nPidFile none\nUseDNS no\n",
        Link::SERVER,
        file("host").display(),
        file("user.pub").display(),
    );
    fs::write(file("sshd_config"), config).context("cannot write sshd_config")?;
    let program = programs::installed("sshd", "openssh-server")?;
    let mut command = link.server_command(&program.display().to_string())?;
    command.arg("-D").arg("-f").arg(file("sshd_config"));
    let options = format!(
        "-F none -p {SSH_PORT} -i {} -o StrictHostKeyChecking=no -o UserKnownHostsFile={} \
         -o LogLevel=ERROR",
        file("user").display(),
        file("known").display()
    );
    Ok((start_at(command, (Link::SERVER, SSH_PORT))?, options))
}

const SSH_PORT: u16 = 2222;

const START_TIMEOUT: Duration = Duration::from_secs(20);
