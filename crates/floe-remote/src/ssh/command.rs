//! The command line that reaches the daemon of another machine.

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use floe_store::WrittenFile;
use floe_wire::Protocol;
use tempfile::TempPath;

/// The way to the daemon of another machine, by the parts of a URI.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SshCommand {
    pub(super) protocol: Protocol,
    /// The user and the host, for ssh.
    pub(super) destination: String,
    pub(super) host: String,
    pub(super) port: Option<u16>,
    /// The file of the private key (`ssh-key`).
    pub(super) key: Option<PathBuf>,
    /// The public key of the host, as in a file of known hosts (`base64-ssh-public-host-key`).
    pub(super) host_key: Option<String>,
    pub(super) compress: bool,
    /// The program that speaks the protocol, with its first arguments.
    pub(super) remote_program: Vec<String>,
    /// Whether the user has named the program (`remote-program`).
    pub(super) is_program_given: bool,
    /// The longest time until ssh is connected, if there is a limit.
    pub(super) connect_timeout: Option<Duration>,
    /// The store that the program opens (`remote-store`).
    pub(super) remote_store: Option<String>,
    /// Further options of ssh.
    pub(super) options: Vec<String>,
    /// The directory for the file of known hosts.
    pub(super) temporary_dir: PathBuf,
}

impl SshCommand {
    /// Whether the program runs on this machine without ssh, as in Nix.
    pub(super) fn is_localhost(&self) -> bool {
        self.destination == "localhost" && self.port.is_none()
    }

    /// Returns the command that runs the daemon on the other machine, with its input and output.
    ///
    /// Errors: the file for the host key cannot be written.
    pub(super) fn build(&self) -> io::Result<(Command, Option<KnownHosts>)> {
        let mut program = self.remote_program.clone();
        let arguments: &[&str] = match self.protocol {
            Protocol::Worker => &["--stdio"],
            Protocol::Serve => &["--serve", "--write"],
        };
        program.extend(arguments.iter().map(|it| (*it).to_owned()));
        if let Some(store) = &self.remote_store {
            program.extend(["--store".into(), store.clone()]);
        }
        if self.is_localhost() {
            let mut words = program.into_iter();
            let mut command = Command::new(words.next().unwrap_or_default());
            command.args(words);
            return Ok((command, None));
        }
        let mut command = Command::new("ssh");
        command.arg(&self.destination).args(["-x", "-T"]);
        let known_hosts = match &self.host_key {
            Some(key) => Some(KnownHosts::create(&self.temporary_dir, &self.host, key)?),
            None => None,
        };
        // ssh obeys the first of several values.
        if let Some(KnownHosts(file)) = &known_hosts {
            let mut option = OsString::from("-oUserKnownHostsFile=");
            option.push(file);
            command.arg(option);
            command.args([
                "-oGlobalKnownHostsFile=/dev/null",
                "-oStrictHostKeyChecking=yes",
            ]);
            // Otherwise ssh looks for the address that its configuration gives to this name.
            command.arg(format!("-oHostKeyAlias={}", self.host));
        }
        command.args(&self.options);
        // Without this, a machine that has disappeared would hold up the copy for ever.
        command.args(["-oServerAliveInterval=15", "-oServerAliveCountMax=4"]);
        if let Some(timeout) = self.connect_timeout {
            command.arg(format!("-oConnectTimeout={}", timeout.as_secs().max(1)));
        }
        // A command that the user's configuration runs would write into the stream of the daemon.
        command.args(["-oPermitLocalCommand=no", "-oRemoteCommand=none"]);
        if let Some(key) = &self.key {
            command.arg("-i").arg(key);
        }
        if self.compress {
            command.arg("-C");
        }
        if let Some(port) = self.port {
            command.arg(format!("-p{port}"));
        }
        command.arg("--").arg(if self.is_program_given {
            // As Nix does: the key of the user may admit only these words.
            shell_words::join(&program)
        } else {
            remote_command(&program)
        });
        Ok((command, known_hosts))
    }
}

/// Returns the text that the other machine's shell runs. A session without a terminal may lack the
/// directories of Nix in its PATH, so they come after the others. The user's shell may be any, so
/// it only starts another one.
fn remote_command(program: &[String]) -> String {
    let words = ["exec", "sh", "-c", SCRIPT, "sh"];
    shell_words::join(words.into_iter().chain(program.iter().map(String::as_str)))
}

/// A file with the public key of a host, which is deleted at the end.
#[derive(Debug)]
pub(super) struct KnownHosts(TempPath);

impl KnownHosts {
    fn create(directory: &Path, host: &str, key: &str) -> io::Result<KnownHosts> {
        let (file, path) = WrittenFile::create_temporary(directory, "floe-known-hosts-", "")?;
        file.complete(|file| writeln!(file, "{host} {key}"))?;
        Ok(KnownHosts(path))
    }
}

/// Runs its arguments, also those in the directories where Nix installs its programs.
const SCRIPT: &str = "PATH=\"$PATH:$HOME/.nix-profile/bin:/nix/var/nix/profiles/default/bin:\
                      /run/current-system/sw/bin\"; exec \"$@\"";
