//! A real Nix daemon.

use std::fs;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::nix::Nix;
use crate::poll::wait_until;

/// A Nix daemon that runs until it is dropped.
pub struct NixDaemon {
    process: Child,
    files: tempfile::TempDir,
}

impl Nix {
    /// Starts the daemon of this Nix for the store below a directory. `settings` are further lines
    /// of its nix.conf.
    pub fn daemon(&self, root: &Path, settings: &str) -> NixDaemon {
        // Two processes of Nix 2.8 must not create a store at once.
        self.store(root, ["--dump-db"]);
        let files = tempfile::tempdir().unwrap();
        let conf = self.conf_with(settings);
        fs::write(files.path().join("nix.conf"), conf).unwrap();
        // Every user may connect.
        let permissions = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(files.path(), permissions).unwrap();
        let socket = files.path().join("socket");
        let mut command = self.command("nix-daemon", ["--store".as_ref(), root.as_os_str()]);
        command
            .env("NIX_CONF_DIR", files.path())
            .env("NIX_DAEMON_SOCKET_PATH", &socket)
            .stderr(Stdio::null());
        let process = command.spawn().unwrap();
        wait_until("the Nix daemon listens", || {
            UnixStream::connect(&socket).is_ok()
        });
        NixDaemon { process, files }
    }

    /// Returns the value of `remote-program` that runs a program of this Nix, percent-encoded.
    /// `settings` are further lines of its nix.conf in `directory`.
    pub fn remote_program(&self, tool: &str, directory: &Path, settings: &str) -> String {
        fs::create_dir_all(directory).unwrap();
        fs::write(directory.join("nix.conf"), self.conf_with(settings)).unwrap();
        let (conf, program) = (directory.display(), self.program(tool));
        let words = format!(
            "env NIX_REMOTE=local NIX_CONF_DIR={conf} {}",
            program.display()
        );
        words.replace(' ', "%20")
    }
}

impl NixDaemon {
    /// Returns the store URI of the daemon.
    pub fn uri(&self) -> String {
        format!("unix://{}", self.socket().display())
    }

    /// Returns the socket.
    pub fn socket(&self) -> PathBuf {
        self.files.path().join("socket")
    }

    /// Ends the daemon and its connections at once.
    pub fn kill(&mut self) {
        // Each connection has a process of its own, which is a child of the daemon.
        let parent = self.process.id().to_string();
        let _: std::io::Result<std::process::Output> = Command::new("pkill")
            .args(["-KILL", "-P", &parent])
            .output();
        let _: std::io::Result<()> = self.process.kill();
        let _: std::io::Result<std::process::ExitStatus> = self.process.wait();
    }
}

impl Drop for NixDaemon {
    fn drop(&mut self) {
        self.kill();
    }
}
