//! A server in a child process, and simple requests to it.

use floe_testkit::wait_until;
use std::io::{BufRead as _, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

/// A listening server. It is killed on drop.
pub(crate) struct RunningServer {
    child: Child,
    stderr: BufReader<ChildStderr>,
    /// The announced URLs.
    pub(crate) urls: Vec<String>,
    /// Stderr before the first announcement.
    pub(crate) before: String,
}

impl RunningServer {
    /// Starts a server and waits until it has announced this many addresses.
    #[track_caller]
    pub(crate) fn start(command: &mut Command, addresses: usize) -> RunningServer {
        let mut running = RunningServer::spawn(command);
        running.await_addresses(addresses);
        running
    }

    /// Starts a server without waiting until it listens.
    #[track_caller]
    pub(crate) fn spawn(command: &mut Command) -> RunningServer {
        let mut child = command
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        RunningServer {
            child,
            stderr,
            urls: Vec::new(),
            before: String::new(),
        }
    }

    /// Waits until the server has announced this many addresses.
    #[track_caller]
    pub(crate) fn await_addresses(&mut self, addresses: usize) {
        while self.urls.len() < addresses {
            let mut line = String::new();
            let read = self.stderr.read_line(&mut line).unwrap();
            assert_ne!(read, 0, "the server ended: {}", self.before);
            match line.trim_end().strip_prefix("listening on ") {
                Some(url) => self.urls.push(url.to_owned()),
                None => self.before.push_str(&line),
            }
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(self.pid(), signal);
    }

    /// Sends GET to the first address.
    #[track_caller]
    pub(crate) fn get(&self, path: &str) -> Response {
        get(&self.urls[0], path)
    }

    /// Waits until the server ends. Returns the rest of stderr, and stdout if it is piped.
    #[track_caller]
    pub(crate) fn wait(mut self) -> EndedServer {
        wait_until("the server does not end", || {
            self.child.try_wait().unwrap().is_some()
        });
        let status = self.child.wait().unwrap();
        let mut ended = EndedServer {
            status,
            stdout: String::new(),
            stderr: String::new(),
        };
        if let Some(mut stdout) = self.child.stdout.take() {
            stdout.read_to_string(&mut ended.stdout).unwrap();
        }
        self.stderr.read_to_string(&mut ended.stderr).unwrap();
        ended
    }
}

impl Drop for RunningServer {
    fn drop(&mut self) {
        let _: std::io::Result<()> = self.child.kill();
        let _: std::io::Result<ExitStatus> = self.child.wait();
    }
}

/// Status and output of an ended server.
pub(crate) struct EndedServer {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// A response.
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) body: String,
}

/// Sends GET on a new connection.
#[track_caller]
pub(crate) fn get(url: &str, path: &str) -> Response {
    let request = format!("GET {path} HTTP/1.1\r\nHost: floe\r\nConnection: close\r\n\r\n");
    exchange(url, &request)
}

/// Sends a request and reads until the server closes the connection.
#[track_caller]
pub(crate) fn exchange(url: &str, request: &str) -> Response {
    let text = match url.strip_prefix("unix:") {
        Some(path) => {
            let socket = UnixStream::connect(path).unwrap();
            socket.set_read_timeout(Some(TIMEOUT)).unwrap();
            send_and_read(socket, request)
        }
        None => {
            let socket = TcpStream::connect(url.strip_prefix("http://").unwrap()).unwrap();
            socket.set_read_timeout(Some(TIMEOUT)).unwrap();
            send_and_read(socket, request)
        }
    };
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap();
    Response {
        status: status.parse().unwrap(),
        body: body.to_owned(),
    }
}

fn send_and_read(mut socket: impl Read + Write, request: &str) -> String {
    socket.write_all(request.as_bytes()).unwrap();
    let mut response = Vec::new();
    socket.read_to_end(&mut response).unwrap();
    String::from_utf8_lossy(&response).into_owned()
}

/// Sends a signal to a process.
pub(crate) fn kill(pid: u32, signal: Signal) {
    let pid = Pid::from_raw(pid.try_into().unwrap()).unwrap();
    kill_process(pid, signal).unwrap();
}

/// Far longer than any single step of these tests.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(30);
