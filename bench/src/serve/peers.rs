//! The servers that are compared, and how each is started over the same store.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};
use floe_bench::machine;

use super::workload::Workload;
use crate::aims::FLOE;
use crate::args::{GivenPeer, GivenServer, ServeArgs};
use crate::before_after::BEFORE;
use crate::http::Origin;
use crate::programs;
use crate::server::{Endpoint, FileCache, Server, free_port, process_group_command};
use crate::tls::Certificate;

pub(super) const NGINX: &str = "nginx";
pub(crate) const NIX_SERVE: &str = "nix-serve";
const HARMONIA: &str = "harmonia";

/// One worker per core of the smallest machine that this is for.
const NGINX_WORKERS: usize = 2;

/// How to get a server.
#[derive(Clone, Debug)]
pub(super) enum Launch {
    Floe {
        binary: PathBuf,
        /// Whether it has an access log and logins.
        has_extras: bool,
    },
    Nginx,
    Harmonia(PathBuf),
    /// A shell command with placeholders.
    Command(String),
    Running(Endpoint),
}

/// The transport and the form of the NARs that a server sends.
#[derive(Clone, Debug)]
pub(super) enum Mode {
    /// Plain HTTP, and NARs as they are.
    Plain,
    /// NARs compressed by zstd, which floe keeps in a cache.
    NarCache,
    /// NARs as they are, over TLS.
    Tls(Certificate),
}

/// A server by its name, and how to get it or why that is impossible.
pub(super) struct Peer {
    pub(super) name: String,
    pub(super) launch: Result<Launch, String>,
    /// The output of `--version`, for programs that have one.
    pub(super) version: Option<String>,
}

/// All servers in the order of the report. With an older floe, only two builds of floe.
pub(super) fn all(root: &Path, args: &ServeArgs) -> Result<Vec<Peer>> {
    let current = programs::floe(root);
    let version = version(&current, "--version");
    let current = current.map(|binary| Launch::Floe {
        binary,
        has_extras: args.extras,
    });
    let current = peer(FLOE, current, version);
    if let Some(before) = &args.run.before {
        let before = before.canonicalize().context("cannot find the older floe");
        let version = self::version(&before, "--version");
        return Ok(vec![
            peer(BEFORE, before.map(Launch::floe), version),
            current,
        ]);
    }
    let nginx = programs::installed("nginx", "nginx");
    let version = self::version(&nginx, "-v");
    let version = version.map(|line| line.replace("nginx version: ", ""));
    let own = vec![
        peer(NGINX, nginx.map(|_| Launch::Nginx), version),
        current,
        peer(HARMONIA, programs::harmonia().map(Launch::Harmonia), None),
    ];
    with_given(own, args.running.iter().chain(&args.commands))
}

fn version(program: &Result<PathBuf>, option: &str) -> Option<String> {
    machine::first_line(Command::new(program.as_ref().ok()?).arg(option))
}

fn peer(name: &str, launch: Result<Launch>, version: Option<String>) -> Peer {
    Peer {
        name: name.into(),
        launch: launch.map_err(|error| format!("{error:#}")),
        version,
    }
}

/// Adds the servers that were given on the command line.
fn with_given<'a>(
    mut peers: Vec<Peer>,
    given: impl Iterator<Item = &'a GivenPeer>,
) -> Result<Vec<Peer>> {
    for GivenPeer { name, server } in given {
        let is_known = peers.iter().any(|peer| peer.name == *name);
        ensure!(!is_known, "two servers are called `{name}`");
        let launch = match server {
            GivenServer::Running(endpoint) => Launch::Running(endpoint.clone()),
            GivenServer::Command(command) => Launch::Command(command.clone()),
        };
        peers.push(peer(name, Ok(launch), None));
    }
    Ok(peers)
}

/// The name of a floe without TLS among the servers. With `--before`, the binary may be older than
/// TLS.
pub(super) fn floe_without_tls(peers: &[Peer]) -> Option<&str> {
    let lacks_tls = |peer: &&Peer| match &peer.launch {
        Ok(Launch::Floe { binary, .. }) => !has_option(binary, "--tls-cert"),
        _ => false,
    };
    Some(&peers.iter().find(lacks_tls)?.name)
}

impl Launch {
    pub(super) fn floe(binary: PathBuf) -> Launch {
        Launch::Floe {
            binary,
            has_extras: false,
        }
    }

    /// Starts the server over the store or the cache of a workload, and waits until it responds.
    /// Its files go to the directory `scratch`.
    pub(super) fn start(&self, mode: &Mode, workload: &Workload, scratch: &Path) -> Result<Server> {
        fs::create_dir_all(scratch)
            .with_context(|| format!("cannot create {}", scratch.display()))?;
        let port = free_port()?;
        let mut origin = Origin::local(port);
        let command = match self {
            Launch::Nginx => {
                let cache = FileCache {
                    root: &workload.caches,
                    prefix: Workload::PLAIN,
                    certificate: match mode {
                        Mode::Tls(certificate) => Some(certificate),
                        Mode::Plain | Mode::NarCache => None,
                    },
                };
                return Server::nginx(&cache, NGINX_WORKERS, scratch);
            }
            Launch::Floe { binary, has_extras } => {
                let mut command = floe_command(binary, workload, port);
                if *has_extras {
                    origin.login = add_extras(binary, &mut command, scratch)?;
                }
                match mode {
                    Mode::Plain => {}
                    Mode::NarCache => {
                        command.args(["--compress", "cached", cache_option(binary)]);
                        command.arg(scratch.join("nar-cache"));
                    }
                    Mode::Tls(Certificate { file, key }) => {
                        command
                            .arg("--tls-cert")
                            .arg(file)
                            .arg("--tls-key")
                            .arg(key);
                        origin.certificate = Some(file.clone());
                    }
                }
                command
            }
            _ if matches!(mode, Mode::Tls(_)) => bail!("it is measured over plain HTTP only"),
            Launch::Running(endpoint) => return Server::running(endpoint),
            Launch::Harmonia(binary) => {
                let config = scratch.join("harmonia.toml");
                fs::write(&config, harmonia_config(workload, port))
                    .with_context(|| format!("cannot write {}", config.display()))?;
                let mut command = process_group_command(binary);
                command.env("CONFIG_FILE", config);
                command
            }
            Launch::Command(line) => {
                let line = line
                    .replace("{root}", &workload.store.display().to_string())
                    .replace("{port}", &port.to_string())
                    .replace("{key}", &workload.secret_key.display().to_string());
                let mut command = process_group_command("sh");
                command.args(["-c", &line]);
                command
            }
        };
        Server::start(command, origin, scratch)
    }
}

/// Gives floe an access log, and logins with one token. Returns the header line of the token.
fn add_extras(binary: &Path, command: &mut Command, scratch: &Path) -> Result<String> {
    let logins = scratch.join("logins");
    // A server that is started again has the same directory.
    let _: std::io::Result<()> = fs::remove_file(&logins);
    let mut add = Command::new(binary);
    add.args(["serve", "auth", "add-token", "--auth-file"]);
    let added = add.arg(&logins).arg("bench").output();
    let added = added.context("cannot add a login")?;
    let token = String::from_utf8(added.stdout).context("the token is not text")?;
    ensure!(
        added.status.success(),
        "cannot add a login: {}",
        added.status
    );
    command.arg("--auth-file").arg(logins);
    command.args(["--access-log-format", "combined", "--access-log"]);
    command.arg(scratch.join("access.log"));
    Ok(format!("Authorization: Bearer {}\r\n", token.trim_end()))
}

fn floe_command(binary: &Path, workload: &Workload, port: u16) -> Command {
    let mut command = process_group_command(binary);
    command
        .args(["serve", "--listen", &format!("127.0.0.1:{port}")])
        .arg("--store")
        .arg(&workload.store)
        .arg("--secret-key-file")
        .arg(&workload.secret_key);
    command
}

/// Returns the option for the directory of compressed NARs. With `--before`, the binary may be
/// older than the present name.
fn cache_option(binary: &Path) -> &'static str {
    if has_option(binary, "--compressed-cache") {
        "--compressed-cache"
    } else {
        concat!("--side", "-cache")
    }
}

/// Whether `floe serve` of a binary has an option.
fn has_option(binary: &Path, option: &str) -> bool {
    let help = Command::new(binary).args(["serve", "--help"]).output();
    help.is_ok_and(|help| String::from_utf8_lossy(&help.stdout).contains(option))
}

fn harmonia_config(workload: &Workload, port: u16) -> String {
    let store = workload.store.display();
    format!(
        "bind = \"127.0.0.1:{port}\"\nreal_nix_store = \"{store}/nix/store\"\n\
         nix_db_path = \"{store}/nix/var/nix/db/db.sqlite\"\nsign_key_paths = [\"{}\"]\n",
        workload.secret_key.display()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_server_needs_a_new_name() {
        let given = |name: &str| GivenPeer {
            name: name.into(),
            server: GivenServer::Command("run {port}".into()),
        };
        let own = || vec![peer(NGINX, Ok(Launch::Nginx), None)];
        let problem = with_given(own(), [given(NGINX)].iter()).err().unwrap();
        let problem = problem.to_string();
        assert!(
            problem.contains("two servers are called `nginx`"),
            "{problem}"
        );
        let peers = with_given(own(), [given(NIX_SERVE)].iter()).unwrap();
        assert_eq!(peers.len(), 2);
    }
}
