//! Servers that run for a row.

use std::net::{Ipv4Addr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use rustix::process::{Pid, Signal, kill_process_group};

/// A server that runs until this is dropped. It leads a process group.
pub(super) struct Running(Child);

impl Running {
    /// Starts a server in a process group of its own.
    pub(super) fn start(mut command: Command) -> Result<Running> {
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let command = command.stdin(Stdio::null()).stdout(Stdio::null());
        let child = command.stderr(Stdio::null()).spawn();
        child.context("cannot start the server").map(Running)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = kill_process_group(Pid::from_child(&self.0), Signal::TERM);
        let _: std::io::Result<_> = self.0.wait();
    }
}

/// Starts a server, and waits until it listens.
pub(super) fn start_at(command: Command, address: (Ipv4Addr, u16)) -> Result<Running> {
    let running = Running::start(command)?;
    let began = Instant::now();
    while TcpStream::connect(address).is_err() {
        ensure!(
            began.elapsed() < START_TIMEOUT,
            "the server does not listen"
        );
        thread::sleep(Duration::from_millis(20));
    }
    Ok(running)
}

const START_TIMEOUT: Duration = Duration::from_secs(20);
