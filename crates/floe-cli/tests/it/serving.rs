//! `floe serve` as a process of its own, and a client that sees every byte of its answers.

use std::io::{self, BufRead as _, BufReader, Read, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::serve_options::serve;

/// A server that listens on a port of the system's choice. Killed when it is dropped.
pub(crate) struct Serve {
    child: Child,
    address: String,
    /// What it has said since it listens. Read all the time: a full pipe would stop the server.
    said: Arc<Mutex<String>>,
    listener: Option<JoinHandle<()>>,
}

impl Serve {
    /// Serves a store: a directory with `nix/store` in it, or the address of a store.
    #[track_caller]
    pub(crate) fn start(store: impl AsRef<Path>, args: &[&str]) -> Serve {
        let mut command = serve(&["serve", "--listen", "127.0.0.1:0", "--store"]);
        Serve::spawn(command.arg(store.as_ref()).args(args))
    }

    /// Runs a command that serves, and waits until it listens.
    #[track_caller]
    pub(crate) fn spawn(command: &mut Command) -> Serve {
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
        let said = Arc::new(Mutex::new(before));
        let sink = said.clone();
        let listener = std::thread::spawn(move || {
            for line in stderr.lines().map_while(Result::ok) {
                let mut said = sink.lock().unwrap();
                said.push_str(&line);
                said.push('\n');
            }
        });
        Serve {
            child,
            address,
            said,
            listener: Some(listener),
        }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Its warnings.
    pub(crate) fn said(&self) -> String {
        self.said.lock().unwrap().clone()
    }

    #[track_caller]
    pub(crate) fn connect(&self) -> Client {
        Client::connect(&self.address)
    }

    /// GET on a connection of its own, with further header fields, each with its line end.
    #[track_caller]
    pub(crate) fn get_with(&self, target: &str, fields: &str) -> Answer {
        self.connect().ask("GET", target, fields)
    }

    #[track_caller]
    pub(crate) fn get(&self, target: &str) -> Answer {
        self.get_with(target, "")
    }

    #[track_caller]
    pub(crate) fn head(&self, target: &str) -> Answer {
        self.connect().ask("HEAD", target, "")
    }

    /// Sends bytes as they are; what comes back until the server closes.
    #[track_caller]
    pub(crate) fn exchange(&self, bytes: &[u8]) -> Vec<u8> {
        let mut client = self.connect();
        client.send(bytes);
        client.rest()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.pid().try_into().unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    /// The end of a server that was told to end: with success, and in time. What it has said.
    #[track_caller]
    pub(crate) fn wait(mut self, patience: Duration) -> String {
        let deadline = Instant::now() + patience;
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(Instant::now() < deadline, "the server does not end");
            std::thread::sleep(Duration::from_millis(10));
        };
        self.listener.take().unwrap().join().unwrap();
        assert_eq!(status.code(), Some(0), "{}", self.said());
        self.said()
    }

    /// Ends it by the signal that service managers send.
    #[track_caller]
    pub(crate) fn stop(self) -> String {
        self.signal(Signal::TERM);
        self.wait(PATIENCE)
    }
}

impl Drop for Serve {
    fn drop(&mut self) {
        let _: io::Result<()> = self.child.kill();
        let _: io::Result<std::process::ExitStatus> = self.child.wait();
    }
}

/// A connection.
pub(crate) struct Client {
    pub(crate) stream: BufReader<TcpStream>,
}

impl Client {
    #[track_caller]
    pub(crate) fn connect(address: &str) -> Client {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        Client {
            stream: BufReader::new(stream),
        }
    }

    #[track_caller]
    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.stream.get_mut().write_all(bytes).unwrap();
    }

    /// A request and its answer.
    #[track_caller]
    pub(crate) fn ask(&mut self, method: &str, target: &str, fields: &str) -> Answer {
        let asked = self.try_ask(method, target, fields);
        asked.unwrap_or_else(|error| panic!("{method} {target}: {error}"))
    }

    pub(crate) fn try_ask(
        &mut self,
        method: &str,
        target: &str,
        fields: &str,
    ) -> io::Result<Answer> {
        let head = format!("{method} {target} HTTP/1.1\r\nHost: floe\r\n{fields}\r\n");
        self.stream.get_mut().write_all(head.as_bytes())?;
        self.answer(method == "HEAD")
    }

    /// Reads one answer, to the end that it says itself.
    pub(crate) fn answer(&mut self, head_only: bool) -> io::Result<Answer> {
        let mut answer = self.begin()?;
        if head_only || answer.status == 304 {
            return Ok(answer);
        }
        match (answer.field("content-length"), answer.is_chunked()) {
            (Some(length), false) => {
                answer.body = vec![0; length.parse().unwrap()];
                self.stream.read_exact(&mut answer.body)?;
            }
            (None, true) => answer.body = self.chunks()?,
            (None, false) => {
                self.stream.read_to_end(&mut answer.body)?;
            }
            (Some(_), true) => panic!("two lengths: {}", answer.head),
        }
        Ok(answer)
    }

    /// Reads a head.
    pub(crate) fn begin(&mut self) -> io::Result<Answer> {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if self.stream.read_line(&mut head)? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        let status = head.strip_prefix("HTTP/1.1 ").and_then(|it| it.get(..3));
        Ok(Answer {
            status: status.unwrap().parse().unwrap(),
            head,
            body: Vec::new(),
        })
    }

    fn chunks(&mut self) -> io::Result<Vec<u8>> {
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

    /// All that still comes.
    #[track_caller]
    pub(crate) fn rest(&mut self) -> Vec<u8> {
        let mut rest = Vec::new();
        match self.stream.read_to_end(&mut rest) {
            Ok(_) => {}
            // A server that has thrown something away closes in this way.
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {}
            Err(error) => panic!("after {} bytes: {error}", rest.len()),
        }
        rest
    }
}

/// An answer, byte for byte.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// All up to the empty line.
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    /// The value of a header field, which must not be there twice.
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

    /// The lines of the head in an order that means nothing, without the one that differs from
    /// one moment to the next.
    pub(crate) fn lasting_head(&self) -> Vec<&str> {
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

    /// A field of a narinfo.
    #[track_caller]
    pub(crate) fn line(&self, name: &str) -> &str {
        let lines = self.text().lines().filter_map(|line| line.split_once(": "));
        let mut values = lines
            .filter(|(key, _)| *key == name)
            .map(|(_, value)| value);
        values
            .next()
            .unwrap_or_else(|| panic!("no {name}: {}", self.text()))
    }
}

/// The hash part of a store path.
pub(crate) fn hash_part(path: &str) -> &str {
    let name = path.rsplit('/').next().unwrap();
    name.split('-').next().unwrap()
}

/// Where the narinfo of a store path is.
pub(crate) fn narinfo_of(path: &str) -> String {
    format!("/{}.narinfo", hash_part(path))
}

/// Asks again and again until something is so.
#[track_caller]
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Numbers that look like chance and are the same in each run (xorshift of Marsaglia).
pub(crate) struct Chance(pub(crate) u64);

impl Chance {
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % bound as u64).unwrap()
    }
}

/// Far longer than anything here takes.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
