//! A small HTTP/1.1 server that serves a directory and injects faults.
//!
//! It records every request with the fault that it injected, so a test can assert that the fault
//! occurred. Connections are kept alive, as in real servers.

mod fault;
mod validators;

use std::collections::HashMap;
use std::fs;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

pub use fault::Fault;

/// A request, and how the server responded.
#[derive(Clone, Debug)]
pub struct RecordedRequest {
    /// Connections are numbered in the order of acceptance.
    pub connection: usize,
    /// The method.
    pub method: String,
    /// The path, with a leading slash.
    pub path: String,
    /// The status of the response.
    pub status: u16,
    /// Header fields by lower-case name.
    pub fields: HashMap<String, String>,
    /// When the server started its response.
    pub at: Instant,
    /// The injected fault, if any.
    pub fault: Option<Fault>,
}

struct Rule {
    suffix: String,
    fault: Fault,
    /// How often the rule still applies.
    times: usize,
}

fn rule(suffix: &str, fault: Fault, times: usize) -> Rule {
    let suffix = suffix.to_owned();
    Rule {
        suffix,
        fault,
        times,
    }
}

#[derive(Default)]
struct Shared {
    directory: PathBuf,
    /// The required value of `Authorization`.
    authorization: Mutex<Option<String>>,
    has_validators: AtomicBool,
    rules: Mutex<Vec<Rule>>,
    requests: Mutex<Vec<RecordedRequest>>,
    /// The number of bytes of endless bodies that were sent.
    endless_bytes: AtomicUsize,
    in_flight: Mutex<InFlightCount>,
    /// Open connections. The server shuts them down on drop, so that no thread waits for a client.
    streams: Mutex<Vec<TcpStream>>,
    stopping: AtomicBool,
}

/// Requests that are received and not answered yet.
#[derive(Default)]
struct InFlightCount {
    now: usize,
    most: usize,
}

/// The server. It stops on drop.
pub struct FaultServer {
    address: SocketAddr,
    shared: Arc<Shared>,
    listener: Option<JoinHandle<()>>,
}

impl FaultServer {
    /// Serves a directory on a free port.
    pub fn start(directory: &Path) -> FaultServer {
        FaultServer::start_at(directory, 0)
    }

    /// Serves a directory on a port. 0 is a free one.
    pub fn start_at(directory: &Path, port: u16) -> FaultServer {
        let listener = TcpListener::bind(("127.0.0.1", port)).unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            directory: directory.to_path_buf(),
            ..Shared::default()
        });
        let for_thread = shared.clone();
        let listener = thread::spawn(move || accept(&listener, &for_thread));
        FaultServer {
            address,
            shared,
            listener: Some(listener),
        }
    }

    /// Returns the base URL.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Injects a fault into every request whose path ends with `suffix`.
    pub fn fail(&self, suffix: &str, fault: Fault) {
        self.fail_times(suffix, fault, usize::MAX);
    }

    /// Injects a fault into the first `times` requests whose path ends with `suffix`.
    pub fn fail_times(&self, suffix: &str, fault: Fault, times: usize) {
        self.shared.rules.lock().push(rule(suffix, fault, times));
    }

    /// Injects a fault into every request whose path ends with `suffix`, in place of earlier ones.
    pub fn set_fault(&self, suffix: &str, fault: Fault) {
        let rule = rule(suffix, fault, usize::MAX);
        self.shared.rules.lock().insert(0, rule);
    }

    /// Responds with 401 unless `Authorization` has this value.
    pub fn require_authorization(&self, authorization: &str) {
        *self.shared.authorization.lock() = Some(authorization.to_owned());
    }

    /// Sends an `ETag` for each file, and serves conditional and range requests.
    pub fn with_validators(self) -> FaultServer {
        self.shared.has_validators.store(true, Ordering::SeqCst);
        self
    }

    /// Removes all faults.
    pub fn clear_faults(&self) {
        self.shared.rules.lock().clear();
    }

    /// Returns the requests so far, in the order of their responses.
    pub fn requests(&self) -> Vec<RecordedRequest> {
        self.shared.requests.lock().clone()
    }

    /// Returns the requests so far whose path ends with `suffix`.
    pub fn requests_for(&self, suffix: &str) -> Vec<RecordedRequest> {
        let mut requests = self.requests();
        requests.retain(|request| request.path.ends_with(suffix));
        requests
    }

    /// Returns the maximum number of concurrent requests. A request counts from the end of its
    /// head until the last byte of the response is about to be sent, so a client cannot start its
    /// next request earlier.
    pub fn max_in_flight(&self) -> usize {
        self.shared.in_flight.lock().most
    }

    /// Returns how many bytes of endless bodies the server has sent.
    pub fn endless_bytes(&self) -> usize {
        self.shared.endless_bytes.load(Ordering::SeqCst)
    }

    /// Returns how many requests had a fault injected.
    pub fn fault_count(&self) -> usize {
        self.requests()
            .iter()
            .filter(|request| request.fault.is_some())
            .count()
    }
}

impl Drop for FaultServer {
    fn drop(&mut self) {
        self.shared.stopping.store(true, Ordering::SeqCst);
        // Wake up the accept loop, which then sees the flag.
        drop(TcpStream::connect(self.address));
        if let Some(listener) = self.listener.take() {
            let _: thread::Result<()> = listener.join();
        }
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    let mut threads = Vec::new();
    for (connection, stream) in listener.incoming().take(CONNECTIONS_MAX).enumerate() {
        if shared.stopping.load(Ordering::SeqCst) {
            break;
        }
        let stream = stream.unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(CLIENT_TIMEOUT)).unwrap();
        stream.set_write_timeout(Some(CLIENT_TIMEOUT)).unwrap();
        shared.streams.lock().push(stream.try_clone().unwrap());
        let shared = shared.clone();
        threads.push(thread::spawn(move || {
            // The client may disconnect at any time.
            let _: io::Result<()> = serve_connection(connection, &stream, &shared);
            let _: io::Result<()> = stream.shutdown(Shutdown::Both);
        }));
    }
    for stream in shared.streams.lock().drain(..) {
        let _: io::Result<()> = stream.shutdown(Shutdown::Both);
    }
    for thread in threads {
        let _: thread::Result<()> = thread.join();
    }
}

/// Answers requests until either side closes the connection.
fn serve_connection(connection: usize, stream: &TcpStream, shared: &Shared) -> io::Result<()> {
    let mut reader = BufReader::new(stream);
    loop {
        let mut request = String::new();
        // Read header lines up to the empty line.
        while !request.ends_with("\r\n\r\n") {
            let limit = (REQUEST_LEN_MAX - request.len()) as u64;
            if reader.by_ref().take(limit).read_line(&mut request)? == 0 {
                return Ok(());
            }
        }
        let mut words = request.split(' ').map(str::to_owned);
        let method = words.next().unwrap_or_default();
        let path = origin_form(words.next().unwrap_or_default());
        let in_flight = InFlightRequest::new(shared);
        let fields = fields(&request);
        let fault = shared.fault_for(&path);
        let body = fs::read(shared.directory.join(path.trim_start_matches('/'))).ok();
        let required = shared.authorization.lock().clone();
        let is_authorized = required.is_none() || fields.get("authorization") == required.as_ref();
        let has_validators = shared.has_validators.load(Ordering::SeqCst);
        let mut response = Response::new(body, fault);
        if has_validators {
            response.add_etag(&fields);
        }
        if !is_authorized {
            response.status = 401;
        }
        shared.requests.lock().push(RecordedRequest {
            connection,
            method,
            path,
            status: response.status,
            fields,
            at: Instant::now(),
            fault: response.fault.clone(),
        });
        if !response.send(stream, in_flight)? {
            return Ok(());
        }
    }
}

/// Returns the path of a request target. A client of a proxy sends the whole URL.
fn origin_form(target: String) -> String {
    match target.strip_prefix("http://") {
        Some(rest) => rest[rest.find('/').unwrap_or(rest.len())..].to_owned(),
        None => target,
    }
}

fn fields(request: &str) -> HashMap<String, String> {
    let lines = request.lines().skip(1);
    let fields = lines.filter_map(|line| line.split_once(':'));
    fields
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
        .collect()
}

impl Shared {
    fn fault_for(&self, path: &str) -> Option<Fault> {
        let mut rules = self.rules.lock();
        let rule = rules
            .iter_mut()
            .find(|rule| rule.times > 0 && path.ends_with(&rule.suffix))?;
        rule.times -= 1;
        Some(rule.fault.clone())
    }
}

/// A request in flight. It is counted until it is dropped.
struct InFlightRequest<'a>(&'a Shared);

impl InFlightRequest<'_> {
    fn new(shared: &Shared) -> InFlightRequest<'_> {
        let mut in_flight = shared.in_flight.lock();
        in_flight.now += 1;
        in_flight.most = in_flight.most.max(in_flight.now);
        InFlightRequest(shared)
    }
}

impl Drop for InFlightRequest<'_> {
    fn drop(&mut self) {
        self.0.in_flight.lock().now -= 1;
    }
}

struct Response {
    status: u16,
    /// Additional header lines.
    head: String,
    body: Vec<u8>,
    fault: Option<Fault>,
}

impl Response {
    fn new(body: Option<Vec<u8>>, fault: Option<Fault>) -> Response {
        let status = match (&fault, &body) {
            (
                Some(
                    Fault::Status(status)
                    | Fault::DelayedStatus(status, _)
                    | Fault::RetryAfter(status, _),
                ),
                _,
            ) => *status,
            (Some(Fault::Redirect(_)), _) => 302,
            (Some(Fault::OtherBody(_) | Fault::Endless(_)), _) | (_, Some(_)) => 200,
            (_, None) => 404,
        };
        let (other, head) = match &fault {
            Some(Fault::OtherBody(other)) => (Some(other.clone()), ""),
            Some(Fault::Gzip(packed) | Fault::TruncatedGzip(packed, _)) => {
                (Some(packed.clone()), "Content-Encoding: gzip\r\n")
            }
            _ => (None, ""),
        };
        Response {
            status,
            head: head.to_owned(),
            body: other.or(body).unwrap_or_default(),
            fault,
        }
    }

    /// Sends the response. Returns whether the connection may be reused.
    fn send(self, stream: &TcpStream, in_flight: InFlightRequest<'_>) -> io::Result<bool> {
        match &self.fault {
            Some(Fault::Reset) => return Ok(false),
            // The fault is slowness.
            Some(Fault::Delayed(time) | Fault::DelayedStatus(_, time)) => thread::sleep(*time),
            _ => {}
        }
        let head = format!("HTTP/1.1 {0} status-{0}\r\n{1}", self.status, self.head);
        send_response(
            stream,
            (self.status, head),
            self.body,
            self.fault,
            in_flight,
        )
    }
}

/// Sends the response. Returns whether the connection may be reused.
fn send_response(
    mut stream: &TcpStream,
    (status, mut head): (u16, String),
    mut body: Vec<u8>,
    fault: Option<Fault>,
    in_flight: InFlightRequest<'_>,
) -> io::Result<bool> {
    if !matches!(status, 200 | 206) {
        if let Some(Fault::Redirect(url)) = &fault {
            head.push_str(&format!("Location: {url}\r\n"));
        }
        if let Some(Fault::RetryAfter(_, when)) = &fault {
            head.push_str(&format!("Retry-After: {when}\r\n"));
        }
        let text = format!("{head}Content-Length: 8\r\n\r\nsorry...");
        drop(in_flight);
        stream.write_all(text.as_bytes())?;
        return Ok(true);
    }
    let mut cut_head = None;
    let (mut announced, mut late, mut keep) = (format!("Content-Length: {}", body.len()), 0, true);
    match fault {
        Some(Fault::Truncated(len) | Fault::TruncatedGzip(_, len)) => {
            body.truncate(len);
            keep = false;
        }
        Some(Fault::ShortBody(len)) => {
            body.truncate(len);
            announced = format!("Content-Length: {len}");
        }
        Some(Fault::TruncatedWithoutLength(len)) => {
            body.truncate(len);
            announced = "Connection: close".into();
            keep = false;
        }
        Some(Fault::TruncatedChunked(len)) => {
            body.truncate(len);
            let mut chunk = format!("{len:x}\r\n").into_bytes();
            chunk.append(&mut body);
            chunk.extend_from_slice(b"\r\n");
            body = chunk;
            announced = "Transfer-Encoding: chunked".into();
            keep = false;
        }
        Some(Fault::Stalled(len)) => {
            stream.write_all(format!("{head}{announced}\r\n\r\n").as_bytes())?;
            stream.write_all(&body[..len])?;
            stream.read_exact(&mut [0])?;
            return Ok(false);
        }
        Some(Fault::Endless(bytes)) => {
            stream.write_all(format!("{head}Connection: close\r\n\r\n").as_bytes())?;
            for _ in 0..ENDLESS_LEN / bytes.len() {
                stream.write_all(&bytes)?;
                in_flight
                    .0
                    .endless_bytes
                    .fetch_add(bytes.len(), Ordering::SeqCst);
            }
            return Ok(false);
        }
        Some(Fault::Dripping(pause)) => {
            stream.write_all(format!("{head}{announced}\r\n\r\n").as_bytes())?;
            for byte in body {
                stream.write_all(&[byte])?;
                // The fault is slowness.
                thread::sleep(pause);
            }
            return Ok(false);
        }
        Some(Fault::ExtraBytes(mut more)) => {
            body.append(&mut more);
            announced = format!("Content-Length: {}", body.len());
        }
        Some(Fault::DelayedTail(len)) => late = len,
        Some(Fault::TruncatedHead(len)) => cut_head = Some(len),
        _ => {}
    }
    head.push_str(&announced);
    head.push_str("\r\n\r\n");
    if let Some(len) = cut_head {
        stream.write_all(&head.as_bytes()[..len])?;
        return Ok(false);
    }
    stream.write_all(head.as_bytes())?;
    let (early, last) = body.split_at(body.len().saturating_sub(late.max(1)));
    stream.write_all(early)?;
    if late > 0 {
        // The fault is slowness.
        thread::sleep(TAIL_DELAY);
    }
    drop(in_flight);
    stream.write_all(last)?;
    Ok(keep)
}

/// The length of an endless body that no client has ended.
const ENDLESS_LEN: usize = 1 << 30;

/// More connections than any test needs. Stops a client that connects in an endless loop.
const CONNECTIONS_MAX: usize = 1000;

/// Longer than any request of the tests.
const REQUEST_LEN_MAX: usize = 64 * 1024;

/// How long to wait for a silent client.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(30);

/// Much longer than a round trip on loopback.
const TAIL_DELAY: Duration = Duration::from_millis(50);
