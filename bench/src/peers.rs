//! The servers that are compared: how each is started over the same store, and ended.

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use floe_bench::machine;
use rustix::process::{Pid, Signal, kill_process_group};

use super::figures::{FLOE, NGINX};
use super::http::{Connection, Origin};
use super::workload::Workload;
use xtask::system;

/// The servers that need not be given.
pub(super) const OWN_NAMES: [&str; 3] = [FLOE, NGINX, "harmonia"];

/// As a server asks for a connection again when it starts: seconds for the slowest, which is
/// written in Perl.
const START_PATIENCE: Duration = Duration::from_secs(20);
const END_PATIENCE: Duration = Duration::from_secs(5);

/// Where a server answers, and whose costs are its.
#[derive(Clone, Debug)]
pub(super) struct Endpoint {
    pub(super) origin: Origin,
    pub(super) pids: Vec<u32>,
}

/// A server that only the caller knows.
#[derive(Debug, PartialEq)]
pub(super) struct GivenPeer {
    pub(super) name: String,
    pub(super) how: Given,
}

#[derive(Debug, PartialEq)]
pub(super) enum Given {
    Running {
        origin: Origin,
        pids: Vec<u32>,
    },
    /// A command line for the shell, with `{root}`, `{port}` and `{key}` still in it.
    Command(String),
}

/// A way to have a server.
#[derive(Clone, Debug)]
pub(super) enum Launch {
    Floe { binary: PathBuf, side_cache: bool },
    Nginx,
    Harmonia { binary: PathBuf },
    Command(String),
    Running(Endpoint),
}

/// A peer by its name, and how it is had or why not.
pub(super) struct Peer {
    pub(super) name: String,
    pub(super) launch: Result<Launch, String>,
    /// What its program says of itself, where it can be asked without starting a server.
    pub(super) version: Option<String>,
}

/// All peers, in the order of the table.
pub(super) fn all(root: &Path, given: &[GivenPeer]) -> Vec<Peer> {
    let (floe, floe_version) = with_version(floe(root), |binary| {
        machine::first_line(Command::new(binary).arg("--version"))
    });
    let floe = floe.map(|binary| Launch::Floe {
        binary,
        side_cache: false,
    });
    let nginx = system::find("nginx").ok_or("not installed; apt-get install nginx".to_string());
    let (nginx, nginx_version) = with_version(nginx, |binary| {
        let line = machine::first_line(Command::new(binary).arg("-v"))?;
        Some(line.replace("nginx version: ", ""))
    });
    let harmonia = harmonia().map(|binary| Launch::Harmonia { binary });
    let peer = |name: &str, launch, version| Peer {
        name: name.into(),
        launch,
        version,
    };
    let mut peers = vec![
        peer(FLOE, floe, floe_version),
        peer(NGINX, nginx.map(|_| Launch::Nginx), nginx_version),
        peer(OWN_NAMES[2], harmonia, None),
    ];
    peers.extend(given.iter().map(|given| Peer {
        name: given.name.clone(),
        launch: Ok(match &given.how {
            Given::Running { origin, pids } => Launch::Running(Endpoint {
                origin: origin.clone(),
                pids: pids.clone(),
            }),
            Given::Command(command) => Launch::Command(command.clone()),
        }),
        version: None,
    }));
    peers
}

fn with_version(
    binary: Result<PathBuf, String>,
    ask: impl FnOnce(&Path) -> Option<String>,
) -> (Result<PathBuf, String>, Option<String>) {
    let version = binary.as_ref().ok().and_then(|binary| ask(binary));
    (binary, version)
}

fn floe(root: &Path) -> Result<PathBuf, String> {
    if let Some(binary) = std::env::var_os("FLOE_BIN").filter(|given| !given.is_empty()) {
        return existing(root.join(binary), "FLOE_BIN");
    }
    let build = ["build", "--release", "--package", "floe-cli"];
    built(&mut xtask::workspace::cargo(root, &build), "floe")?;
    existing(
        xtask::workspace::target_directory(root).join("release/floe"),
        "cargo",
    )
}

fn harmonia() -> Result<PathBuf, String> {
    let given = |name| std::env::var_os(name).filter(|given| !given.is_empty());
    if let Some(binary) = given("FLOE_BENCH_HARMONIA_BIN") {
        return existing(binary.into(), "FLOE_BENCH_HARMONIA_BIN");
    }
    let Some(checkout) = given("FLOE_BENCH_HARMONIA").map(PathBuf::from) else {
        return Err("FLOE_BENCH_HARMONIA names no checkout".into());
    };
    // Its output goes where it would go by itself, not among ours.
    let target = checkout.join("target");
    let build = ["build", "--release", "--package", "harmonia-cache"];
    let mut cargo = xtask::workspace::cargo(&checkout, &build);
    built(cargo.env("CARGO_TARGET_DIR", &target), "harmonia")?;
    existing(target.join("release/harmonia-cache"), "cargo")
}

pub(super) fn built(command: &mut Command, what: &str) -> Result<(), String> {
    let status = command.stdout(Stdio::null()).status();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!(
            "building {what}: {status}; cargo's words are above"
        )),
        Err(error) => Err(format!("building {what}: {error}")),
    }
}

fn existing(binary: PathBuf, by: &str) -> Result<PathBuf, String> {
    if binary.is_file() {
        Ok(binary)
    } else {
        Err(format!("{by} names {}, which is no file", binary.display()))
    }
}

/// A server that runs until this is dropped.
pub(super) struct Server {
    pub(super) site: Endpoint,
    child: Option<Child>,
}

impl Server {
    /// Starts a server and waits until it answers. Its files go to the directory `scratch`.
    pub(super) fn start(launch: &Launch, work: &Workload, scratch: &Path) -> Result<Server> {
        if let Launch::Running(site) = launch {
            let server = Server {
                site: site.clone(),
                child: None,
            };
            cache_info(&server.site.origin)?;
            return Ok(server);
        }
        fs::create_dir_all(scratch).with_context(|| format!("making {}", scratch.display()))?;
        let port = free_port()?;
        let said = scratch.join("stderr");
        let log = fs::File::create(&said).with_context(|| format!("making {}", said.display()))?;
        let mut command = command(launch, work, port, scratch)?;
        let child = command
            // Starman prints its greeting there, which is no result of ours.
            .stdout(Stdio::null())
            .stdin(Stdio::null())
            .stderr(log)
            .spawn()
            .with_context(|| format!("starting {}", command.get_program().display()))?;
        let mut origin = Origin::local(port);
        if let Launch::Nginx = launch {
            origin.prefix = Workload::PLAIN.into();
        }
        let mut server = Server {
            site: Endpoint {
                origin,
                pids: vec![child.id()],
            },
            child: Some(child),
        };
        server.wait(&said)?;
        Ok(server)
    }

    /// What it answers when it is asked what it is: by a page, as harmonia does, or by the name
    /// that it gives in every answer.
    pub(super) fn version(&self) -> Option<String> {
        let mut connection = Connection::new(&self.site.origin);
        let prefix = &self.site.origin.prefix;
        if let Ok((head, body)) = connection.fetch(&format!("{prefix}/version"), "")
            && head.status == 200
        {
            let text = String::from_utf8_lossy(&body);
            return text.lines().next().map(String::from);
        }
        let info = connection.fetch(&format!("{prefix}/nix-cache-info"), "");
        let (head, _) = info.ok()?;
        head.header("server").map(String::from)
    }

    fn wait(&mut self, said: &Path) -> Result<()> {
        let deadline = Instant::now() + START_PATIENCE;
        loop {
            let problem = match cache_info(&self.site.origin) {
                Ok(()) => return Ok(()),
                Err(problem) => problem,
            };
            let ended = match &mut self.child {
                Some(child) => child.try_wait().context("waiting for a server")?,
                None => None,
            };
            if ended.is_some() || Instant::now() > deadline {
                let words = fs::read_to_string(said).unwrap_or_default();
                let why = most_telling_line(&words);
                match ended {
                    Some(status) => bail!("it ended ({status}): {why}"),
                    None => bail!("it does not answer: {problem:#}; {why}"),
                }
            }
            thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let Some(child) = &mut self.child else {
            return;
        };
        let group = Pid::from_raw(child.id().cast_signed());
        let deadline = Instant::now() + END_PATIENCE;
        let mut ended = false;
        let signal = |signal| group.map(|group| kill_process_group(group, signal));
        let _ = signal(Signal::TERM);
        while !ended && Instant::now() < deadline {
            ended = matches!(child.try_wait(), Ok(Some(_)));
            thread::sleep(Duration::from_millis(10));
        }
        // Also when the first ended: it may have left children behind.
        let _ = signal(Signal::KILL);
        let _ = child.wait();
    }
}

/// The line of a server's last words that says most.
fn most_telling_line(words: &str) -> &str {
    let error = |line: &&str| line.to_lowercase().contains("error");
    let lines = || words.lines().filter(|line| !line.trim().is_empty());
    let line = lines().find(error).or_else(|| lines().next_back());
    line.unwrap_or("it said nothing").trim()
}

fn cache_info(origin: &Origin) -> Result<()> {
    let target = format!("{}/nix-cache-info", origin.prefix);
    let (head, _) = Connection::new(origin).fetch(&target, "")?;
    ensure!(
        head.status == 200,
        "{}{target}: {}",
        origin.authority,
        head.status
    );
    Ok(())
}

/// A port that was free a moment ago.
pub(super) fn free_port() -> Result<u16> {
    let listener = TcpListener::bind("127.0.0.1:0").context("looking for a free port")?;
    Ok(listener
        .local_addr()
        .context("looking for a free port")?
        .port())
}

/// A command that leads a group of its own, and that the kernel ends with us.
pub(super) fn process_group_command(program: impl AsRef<std::ffi::OsStr>) -> Command {
    use std::os::unix::process::CommandExt as _;
    let mut command = match system::find("setpriv") {
        Some(setpriv) => {
            let mut command = Command::new(setpriv);
            command.args(["--pdeathsig", "TERM", "--"]).arg(program);
            command
        }
        None => Command::new(program),
    };
    command.process_group(0);
    command
}

fn command(launch: &Launch, work: &Workload, port: u16, scratch: &Path) -> Result<Command> {
    let write = |name: &str, text: String| {
        let file = scratch.join(name);
        fs::write(&file, text).with_context(|| format!("writing {}", file.display()))?;
        Ok::<PathBuf, anyhow::Error>(file)
    };
    Ok(match launch {
        Launch::Floe { binary, side_cache } => {
            let mut command = process_group_command(binary);
            command
                .args(["serve", "--listen", &format!("127.0.0.1:{port}")])
                .arg("--store")
                .arg(&work.store)
                .arg("--secret-key-file")
                .arg(&work.secret_key);
            if *side_cache {
                let directory = scratch.join("side-cache");
                command
                    .args(["--compress", "cached", "--side-cache"])
                    .arg(directory);
            }
            command
        }
        Launch::Nginx => {
            let config = write("nginx.conf", nginx_config(work, port, scratch))?;
            let mut command =
                process_group_command(system::find("nginx").context("nginx is not installed")?);
            command.arg("-c").arg(config).args(["-e", "stderr"]);
            command
        }
        Launch::Harmonia { binary } => {
            let config = write("harmonia.toml", harmonia_config(work, port))?;
            let mut command = process_group_command(binary);
            command.env("CONFIG_FILE", config);
            command
        }
        Launch::Command(line) => {
            let line = line
                .replace("{root}", &work.store.display().to_string())
                .replace("{port}", &port.to_string())
                .replace("{key}", &work.secret_key.display().to_string());
            let mut command = process_group_command("sh");
            // Of several commands in the line, the shell stays the process_group_command of all.
            command.args(["-c", &line]);
            command
        }
        Launch::Running(_) => bail!("a server that runs already is not started"),
    })
}

/// Two workers, one for each core of the smallest machine that this is for; files by sendfile.
fn nginx_config(work: &Workload, port: u16, scratch: &Path) -> String {
    let base = scratch.display();
    // As root its workers would become another user, who may not read the caches.
    let user = if system::is_root() { "user root;" } else { "" };
    format!(
        "{user} worker_processes 2; daemon off; pid {base}/pid; error_log {base}/error.log;\n\
         events {{ worker_connections 512; }}\n\
         http {{ access_log off; sendfile on; keepalive_requests 100000000;\n\
         client_body_temp_path {base}/b; proxy_temp_path {base}/p; fastcgi_temp_path {base}/f;\n\
         uwsgi_temp_path {base}/u; scgi_temp_path {base}/s;\n\
         server {{ listen 127.0.0.1:{port}; root {}; }} }}\n",
        work.caches.display()
    )
}

fn harmonia_config(work: &Workload, port: u16) -> String {
    let store = work.store.display();
    format!(
        "bind = \"127.0.0.1:{port}\"\nreal_nix_store = \"{store}/nix/store\"\n\
         nix_db_path = \"{store}/nix/var/nix/db/db.sqlite\"\nsign_key_paths = [\"{}\"]\n",
        work.secret_key.display()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_words_are_cut_to_what_tells() {
        assert_eq!(
            most_telling_line("hello\nError: no key\nUsage: x\n"),
            "Error: no key"
        );
        assert_eq!(most_telling_line("hello\nbye\n\n"), "bye");
        assert_eq!(most_telling_line(""), "it said nothing");
    }

    #[test]
    fn a_server_ends_with_all_its_children() {
        let start = Instant::now();
        let mut child = process_group_command("sh")
            .args(["-c", "sleep 100 & sleep 100"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut pipe = child.stdout.take().unwrap();
        drop(Server {
            site: Endpoint {
                origin: Origin::local(1),
                pids: vec![child.id()],
            },
            child: Some(child),
        });
        // The pipe ends when the last who holds it has ended.
        std::io::Read::read_to_end(&mut pipe, &mut Vec::new()).unwrap();
        assert!(start.elapsed() < Duration::from_secs(90));
    }
}
