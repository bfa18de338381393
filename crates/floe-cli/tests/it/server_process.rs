//! `floe serve` as a child process, and an HTTP client that exposes every byte of a response.

use std::io::{self, BufRead as _, BufReader, Read, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::serve_options::serve;

/// A server process on a port that the system chose. It is killed on drop.
pub(crate) struct ServerProcess {
    child: Child,
    address: String,
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
        let address = loop {
            let mut line = String::new();
            let read = stderr.read_line(&mut line).unwrap();
            assert_ne!(read, 0, "{command:?} ended: {before}");
            match line.trim_end().strip_prefix("listening on ") {
                Some(url) => break url.trim_start_matches("http://").to_owned(),
                None => before.push_str(&line),
            }
        };
        let stderr_text = Arc::new(Mutex::new(before));
        let sink = stderr_text.clone();
        let stderr_reader = std::thread::spawn(move || {
            for line in stderr.lines().map_while(Result::ok) {
                let mut stderr_text = sink.lock().unwrap();
                stderr_text.push_str(&line);
                stderr_text.push('\n');
            }
        });
        ServerProcess {
            child,
            address,
            stderr_text,
            stderr_reader: Some(stderr_reader),
        }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns stderr so far.
    pub(crate) fn stderr(&self) -> String {
        self.stderr_text.lock().unwrap().clone()
    }

    #[track_caller]
    pub(crate) fn connect(&self) -> Client {
        Client::connect(&self.address)
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
        let deadline = Instant::now() + timeout;
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(Instant::now() < deadline, "the server does not end");
            std::thread::sleep(Duration::from_millis(10));
        };
        self.stderr_reader.take().unwrap().join().unwrap();
        assert_eq!(status.code(), Some(0), "{}", self.stderr());
        self.stderr()
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
        let _: io::Result<std::process::ExitStatus> = self.child.wait();
    }
}

/// A client connection.
pub(crate) struct Client {
    pub(crate) stream: BufReader<TcpStream>,
}

impl Client {
    #[track_caller]
    pub(crate) fn connect(address: &str) -> Client {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        stream.set_write_timeout(Some(TIMEOUT)).unwrap();
        Client {
            stream: BufReader::new(stream),
        }
    }

    #[track_caller]
    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.stream.get_mut().write_all(bytes).unwrap();
    }

    /// Sends a request and reads its response.
    #[track_caller]
    pub(crate) fn request(&mut self, method: &str, target: &str, fields: &str) -> Response {
        let response = self.try_request(method, target, fields);
        response.unwrap_or_else(|error| panic!("{method} {target}: {error}"))
    }

    pub(crate) fn try_request(
        &mut self,
        method: &str,
        target: &str,
        fields: &str,
    ) -> io::Result<Response> {
        let head = format!("{method} {target} HTTP/1.1\r\nHost: floe\r\n{fields}\r\n");
        self.stream.get_mut().write_all(head.as_bytes())?;
        self.read_response(method == "HEAD")
    }

    /// Reads one response to its announced end.
    pub(crate) fn read_response(&mut self, head_only: bool) -> io::Result<Response> {
        let mut response = self.read_head()?;
        if head_only || response.status == 304 {
            return Ok(response);
        }
        match (response.field("content-length"), response.is_chunked()) {
            (Some(length), false) => {
                response.body = vec![0; length.parse().unwrap()];
                self.stream.read_exact(&mut response.body)?;
            }
            (None, true) => response.body = self.read_chunks()?,
            (None, false) => {
                self.stream.read_to_end(&mut response.body)?;
            }
            (Some(_), true) => panic!("two lengths: {}", response.head),
        }
        Ok(response)
    }

    /// Reads a response head.
    pub(crate) fn read_head(&mut self) -> io::Result<Response> {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if self.stream.read_line(&mut head)? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        let status = head.strip_prefix("HTTP/1.1 ").and_then(|it| it.get(..3));
        Ok(Response {
            status: status.unwrap().parse().unwrap(),
            head,
            body: Vec::new(),
        })
    }

    fn read_chunks(&mut self) -> io::Result<Vec<u8>> {
        let mut body = Vec::new();
        loop {
            let mut line = String::new();
            self.stream.read_line(&mut line)?;
            let length = usize::from_str_radix(line.trim_end(), 16)
                .map_err(|_| io::Error::from(io::ErrorKind::UnexpectedEof))?;
            let start = body.len();
            body.resize(start + length + 2, 0);
            self.stream.read_exact(&mut body[start..])?;
            assert!(body.ends_with(b"\r\n"), "a chunk does not end");
            body.truncate(start + length);
            if length == 0 {
                return Ok(body);
            }
        }
    }

    /// Reads everything until the server closes the connection.
    #[track_caller]
    pub(crate) fn read_rest(&mut self) -> Vec<u8> {
        let mut rest = Vec::new();
        match self.stream.read_to_end(&mut rest) {
            Ok(_) => {}
            // A server that closes with unread data in its receive buffer resets the connection.
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {}
            Err(error) => panic!("after {} bytes: {error}", rest.len()),
        }
        rest
    }
}

/// A response with its exact bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Response {
    pub(crate) status: u16,
    /// Status line and header fields, including the empty line.
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Response {
    /// Returns the value of a header field. Panics if the field occurs twice.
    #[track_caller]
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        let fields = self.head.lines().filter_map(|line| line.split_once(": "));
        let mut values = fields.filter(|(field, _)| field.eq_ignore_ascii_case(name));
        let value = values.next().map(|(_, value)| value);
        assert!(
            values.next().is_none(),
            "{name} is there twice: {}",
            self.head
        );
        value
    }

    /// Returns the lines of the head without `Date`, sorted because their order has no meaning.
    pub(crate) fn stable_head(&self) -> Vec<&str> {
        let lines = self.head.lines();
        let mut lines: Vec<&str> = lines.filter(|line| !line.starts_with("Date: ")).collect();
        lines.sort_unstable();
        lines
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    fn is_chunked(&self) -> bool {
        self.field("transfer-encoding") == Some("chunked")
    }

    /// Returns a field of a narinfo.
    #[track_caller]
    pub(crate) fn narinfo_field(&self, name: &str) -> &str {
        let lines = self.text().lines().filter_map(|line| line.split_once(": "));
        let mut values = lines
            .filter(|(key, _)| *key == name)
            .map(|(_, value)| value);
        values
            .next()
            .unwrap_or_else(|| panic!("no {name}: {}", self.text()))
    }
}

/// Returns the hash part of a store path.
pub(crate) fn hash_part(path: &str) -> &str {
    let name = path.rsplit('/').next().unwrap();
    name.split('-').next().unwrap()
}

/// Returns the request target of a path's narinfo.
pub(crate) fn narinfo_of(path: &str) -> String {
    format!("/{}.narinfo", hash_part(path))
}

/// Polls until a condition is true. Panics with `what` after a timeout.
#[track_caller]
pub(crate) fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + TIMEOUT;
    while !condition() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A reproducible pseudo-random number generator (Marsaglia's xorshift).
pub(crate) struct XorShift(pub(crate) u64);

impl XorShift {
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % bound as u64).unwrap()
    }
}

/// Far longer than any single step of these tests.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(30);
