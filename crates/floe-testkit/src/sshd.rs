//! A real SSH server.

use std::fs;
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

use crate::command::run;
use crate::ports::with_free_ports;
use crate::skip::find_tool;

/// An SSH server that accepts one key of this user until it is dropped.
pub struct Sshd {
    process: Child,
    port: u16,
    files: tempfile::TempDir,
}

/// Starts an SSH server. If it is not installed, records a skip and returns `None`.
pub fn sshd() -> Option<Sshd> {
    sshd_with("")
}

/// Starts an SSH server with further lines of its configuration.
pub fn sshd_with(lines: &str) -> Option<Sshd> {
    let program = find_tool("sshd", "openssh-server")?;
    let keygen = find_tool("ssh-keygen", "openssh-client")?;
    let files = tempfile::tempdir().unwrap();
    let path = |name: &str| files.path().join(name);
    for name in ["host", "user"] {
        run(Command::new(&keygen)
            .args(["-q", "-t", "ed25519", "-N", "", "-f"])
            .arg(path(name)))
        .expect(0);
    }
    if rustix::process::geteuid().is_root() {
        // sshd changes its root directory to this one before a login.
        fs::create_dir_all("/run/sshd").unwrap();
    }
    let start = |[port]: [u16; 1]| {
        let config = format!(
            "Port {port}\nListenAddress 127.0.0.1\nHostKey {}\nAuthorizedKeysFile {}\n\
             StrictModes no\nUsePAM no\nPermitRootLogin yes\nPidFile none\n\
             LogLevel ERROR\n{lines}\n",
            path("host").display(),
            path("user.pub").display(),
        );
        fs::write(path("sshd_config"), config).unwrap();
        let mut command = Command::new(&program);
        command.arg("-D").arg("-f").arg(path("sshd_config"));
        let command = command.stdin(Stdio::null()).stdout(Stdio::null());
        command.stderr(Stdio::null()).spawn().unwrap()
    };
    let is_ready = |[port]: [u16; 1]| TcpStream::connect(("127.0.0.1", port)).is_ok();
    let (process, [port]) = with_free_ports(start, is_ready);
    Some(Sshd {
        process,
        port,
        files,
    })
}

impl Sshd {
    /// Returns `HOST:PORT`.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Returns the file of the user's private key.
    pub fn key(&self) -> String {
        self.files.path().join("user").display().to_string()
    }

    /// Returns the public key of the server: the line of its file.
    pub fn host_key(&self) -> String {
        fs::read_to_string(self.files.path().join("host.pub")).unwrap()
    }

    /// Returns the value of `NIX_SSHOPTS` for this server: no configuration of the user, and its
    /// own key.
    pub fn options(&self) -> String {
        format!(
            "-F none -i {} -o StrictHostKeyChecking=no -o UserKnownHostsFile={} -o LogLevel=ERROR",
            self.key(),
            self.files.path().join("known").display()
        )
    }

    /// Returns the port.
    pub fn port(&self) -> u16 {
        self.port
    }
}

impl Drop for Sshd {
    fn drop(&mut self) {
        let _: std::io::Result<()> = self.process.kill();
        let _: std::io::Result<std::process::ExitStatus> = self.process.wait();
    }
}
