//! A real HAProxy that forwards connections.

use std::fs;
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

use crate::ports::with_free_ports;
use crate::skip::find_tool;

/// An HAProxy process that forwards each connection to one server until it is dropped.
pub struct Haproxy {
    process: Child,
    port: u16,
    _files: tempfile::TempDir,
}

/// Starts HAProxy in front of a server (`HOST:PORT`). `options` are those of its line `server`. If
/// HAProxy is not installed, records a skip and returns `None`.
pub fn haproxy(server: &str, options: &str) -> Option<Haproxy> {
    let program = find_tool("haproxy", "haproxy")?;
    let files = tempfile::tempdir().unwrap();
    let config_file = files.path().join("haproxy.cfg");
    let start = |[port]: [u16; 1]| {
        let config = format!(
            "defaults\n mode tcp\n timeout connect 10s\n timeout client 60s\n timeout server 60s\n\
             frontend clients\n bind 127.0.0.1:{port}\n default_backend servers\n\
             backend servers\n server one {server} {options}\n"
        );
        fs::write(&config_file, config).unwrap();
        let mut command = Command::new(&program);
        command.args(["-db", "-f"]).arg(&config_file);
        let command = command.stdin(Stdio::null()).stdout(Stdio::null());
        command.stderr(Stdio::null()).spawn().unwrap()
    };
    let is_ready = |[port]: [u16; 1]| TcpStream::connect(("127.0.0.1", port)).is_ok();
    let (process, [port]) = with_free_ports(start, is_ready);
    Some(Haproxy {
        process,
        port,
        _files: files,
    })
}

impl Haproxy {
    /// Returns `HOST:PORT`.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }
}

impl Drop for Haproxy {
    fn drop(&mut self) {
        let _: std::io::Result<()> = self.process.kill();
        let _: std::io::Result<std::process::ExitStatus> = self.process.wait();
    }
}
