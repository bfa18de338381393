//! The other side of a copy: a daemon of a program, and the sshd in front of it.

use std::fs;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use floe_bench::BenchError;

use super::Way;
use crate::closures::fixture::{Fixture, Kind, Program};
use crate::closures::link::Link;
use crate::closures::servers::{Running, start_at};
use crate::corpus::Corpus;
use crate::programs;

/// Creates an empty store.
pub(super) fn create_store(fixture: &Fixture, root: &Path) -> Result<(), BenchError> {
    let mut command = fixture.nix_command("nix-store");
    let status = command.arg("--store").arg(root).arg("--dump-db").status();
    match status {
        Ok(status) if status.success() => Ok(()),
        _ => Err(BenchError::Result("nix-store cannot create a store".into())),
    }
}

/// A store with the program that serves it.
#[derive(Clone)]
pub(super) struct Daemon<'a> {
    pub(super) fixture: &'a Fixture,
    /// `None` for the newest Nix.
    pub(super) host: Option<&'a Program>,
    pub(super) root: PathBuf,
    pub(super) scratch: PathBuf,
}

impl Daemon<'_> {
    /// Returns the words that start a tool of the host.
    fn words(&self, tool: &str) -> Result<String> {
        if let Some(host) = self.host
            && host.kind == Kind::Floe
        {
            return Ok(format!("{} {tool}", host.path.display()));
        }
        let command = self.fixture.nix_command(tool);
        let conf = command
            .get_envs()
            .find(|(name, _)| *name == "NIX_CONF_DIR")
            .and_then(|(_, value)| value)
            .context("Nix has no settings")?;
        let (conf, program) = (conf.display(), command.get_program().display());
        Ok(format!(
            "env NIX_REMOTE=local NIX_CONF_DIR={conf} {program}"
        ))
    }

    pub(super) fn program_uri(&self, way: Way, authority: &str) -> Result<String> {
        let (scheme, tool) = match way {
            Way::Serve(_) => ("ssh", "nix-store"),
            _ => ("ssh-ng", "nix-daemon"),
        };
        let words = self.words(tool)?.replace(' ', "%20");
        let store = self.root.display();
        Ok(format!(
            "{scheme}://{authority}?remote-program={words}&remote-store={store}"
        ))
    }

    /// Starts a daemon with a socket.
    pub(super) fn listen(&self) -> Result<(Running, String)> {
        create_store(self.fixture, &self.root)?;
        let socket = self.scratch.join("socket");
        let mut command = match self.host {
            Some(host) if host.kind == Kind::Floe => {
                let mut command = self.fixture.settings.command(host.path.clone());
                command.arg("nix-daemon").stderr(Stdio::null());
                command
            }
            _ => self.fixture.nix_command("nix-daemon"),
        };
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
    pub(super) fn fill(&self, corpus: &Corpus, root: &Path) -> Result<()> {
        let mut command = self.fixture.nix_command("nix");
        command.args(["copy", "--no-check-sigs", "--from"]);
        command.arg(corpus.store()).arg("--to").arg(root);
        let status = command.arg(&corpus.root).status()?;
        ensure!(status.success(), "Nix cannot fill {}", root.display());
        Ok(())
    }
}

/// sshd at the server's end of a link, and the options of its clients.
pub(super) fn sshd(link: &Link, scratch: &Path) -> Result<(Running, String)> {
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
