//! `floe serve` as a child process.

use std::io::{self, BufRead as _, BufReader};
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use floe_testkit::http_client::{Client, Response};
use floe_testkit::{TIMEOUT, wait_at_most};
use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process};

use crate::serve_options::serve;

/// A server process on a port that the system chose. It is killed on drop.
pub(crate) struct ServerProcess {
    child: Child,
    url: String,
    /// Everything on stderr so far. A thread reads it continuously, because a full pipe would
    /// block the server.
    stderr_text: Arc<Mutex<String>>,
    stderr_reader: Option<JoinHandle<()>>,
}

impl ServerProcess {
    /// Serves a store, which is a root directory or a store URI.
    #[track_caller]
    pub(crate) fn start(store: impl AsRef<Path>, args: &[&str]) -> ServerProcess {
        let mut command = serve(&["serve", "--listen", "127.0.0.1:0", "--store"]);
        ServerProcess::spawn(command.arg(store.as_ref()).args(args))
    }

    /// Runs a serving command and waits until it listens.
    #[track_caller]
    pub(crate) fn spawn(command: &mut Command) -> ServerProcess {
        let command = command.stdin(Stdio::null()).stdout(Stdio::null());
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        let mut before = String::new();
        let url = loop {
            let mut line = String::new();
            let read = stderr.read_line(&mut line).unwrap();
            assert_ne!(read, 0, "{command:?} ended: {before}");
            match line.trim_end().strip_prefix("listening on ") {
                Some(url) => break url.to_owned(),
                None => before.push_str(&line),
            }
        };
        let stderr_text = Arc::new(Mutex::new(before));
        let sink = stderr_text.clone();
        let stderr_reader = std::thread::spawn(move || {
            for line in stderr.lines().map_while(Result::ok) {
                let mut stderr_text = sink.lock();
                stderr_text.push_str(&line);
                stderr_text.push('\n');
            }
        });
        ServerProcess {
            child,
            url,
            stderr_text,
            stderr_reader: Some(stderr_reader),
        }
    }

    pub(crate) fn url(&self) -> String {
        self.url.clone()
    }

    fn address(&self) -> &str {
        self.url.trim_start_matches("http://")
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns stderr so far.
    pub(crate) fn stderr(&self) -> String {
        self.stderr_text.lock().clone()
    }

    /// Connects from another address of the loopback network: 127.0.0.LAST.
    #[track_caller]
    pub(crate) fn connect_from(&self, last: u8) -> Client {
        Client::connect_from([127, 0, 0, last].into(), self.address())
    }

    #[track_caller]
    pub(crate) fn connect(&self) -> Client {
        Client::connect(self.address())
    }

    /// Sends GET on a new connection. `fields` are additional header fields, each with its line
    /// end.
    #[track_caller]
    pub(crate) fn get_with(&self, target: &str, fields: &str) -> Response {
        self.connect().request("GET", target, fields)
    }

    #[track_caller]
    pub(crate) fn get(&self, target: &str) -> Response {
        self.get_with(target, "")
    }

    #[track_caller]
    pub(crate) fn head(&self, target: &str) -> Response {
        self.connect().request("HEAD", target, "")
    }

    /// Sends bytes on a new connection and returns everything until the server closes it.
    #[track_caller]
    pub(crate) fn exchange(&self, bytes: &[u8]) -> Vec<u8> {
        let mut client = self.connect();
        client.send(bytes);
        client.read_rest()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.pid().try_into().unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    /// Waits until the server ends, and asserts that it succeeds in time. Returns stderr.
    #[track_caller]
    pub(crate) fn wait(mut self, timeout: Duration) -> String {
        let status = self.wait_status(timeout);
        self.stderr_reader.take().unwrap().join().unwrap();
        assert_eq!(status.code(), Some(0), "{}", self.stderr());
        self.stderr()
    }

    /// Waits until a signal ends the server, and returns its number. `None` if the server ended by
    /// itself.
    #[track_caller]
    pub(crate) fn wait_for_signal(mut self, timeout: Duration) -> Option<i32> {
        self.wait_status(timeout).signal()
    }

    #[track_caller]
    fn wait_status(&mut self, timeout: Duration) -> ExitStatus {
        let has_ended = || self.child.try_wait().unwrap().is_some();
        wait_at_most(timeout, "the server does not end", has_ended);
        self.child.wait().unwrap()
    }

    /// Stops the server by SIGTERM, as service managers do.
    #[track_caller]
    pub(crate) fn stop(self) -> String {
        self.signal(Signal::TERM);
        self.wait(TIMEOUT)
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        let _: io::Result<()> = self.child.kill();
        let _: io::Result<ExitStatus> = self.child.wait();
    }
}
