//! A proxy between a client and a real HTTP server, which breaks the requests that a test chooses.
//!
//! Each request gets a connection of its own to the server, so that no fault spreads.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use crate::poll::TIMEOUT;

/// The fault of one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProxyFault {
    /// No fault.
    None,
    /// The client gets this status, and the server nothing.
    StatusBefore(u16),
    /// The server gets the request, and the client this status.
    StatusAfter(u16),
    /// The server gets a part of the request, of this length in bytes, and the client nothing.
    CutRequest(usize),
    /// The client gets a part of the response, of this length in bytes.
    CutResponse(usize),
    /// The server gets nothing, and the client no response until it closes the connection.
    Silent,
    /// The response comes after this time.
    Slow(Duration),
    /// Each occurrence of a text in the response is replaced by another text of the same length.
    Replace(&'static str, &'static str),
    /// The response has another ETag.
    OtherETag,
}

/// Chooses the fault of a request by its number, from 0, and its first line.
type Script = dyn Fn(usize, &str) -> ProxyFault + Send + Sync;

/// A proxy that runs until it is dropped.
pub struct FaultProxy {
    address: SocketAddr,
    state: Arc<State>,
}

struct State {
    server: SocketAddr,
    script: Box<Script>,
    requests: AtomicUsize,
    faults: AtomicUsize,
    is_stopped: AtomicBool,
}

impl FaultProxy {
    /// Starts a proxy before a server.
    pub fn start(
        server: SocketAddr,
        script: impl Fn(usize, &str) -> ProxyFault + Send + Sync + 'static,
    ) -> FaultProxy {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(State {
            server,
            script: Box::new(script),
            requests: AtomicUsize::new(0),
            faults: AtomicUsize::new(0),
            is_stopped: AtomicBool::new(false),
        });
        let accepting = state.clone();
        thread::spawn(move || {
            for client in listener.incoming() {
                if accepting.is_stopped.load(Ordering::Relaxed) {
                    return;
                }
                let state = accepting.clone();
                // A broken connection concerns only its own request.
                thread::spawn(move || client.and_then(|client| state.handle(client)));
            }
        });
        FaultProxy { address, state }
    }

    /// Returns the URL of the proxy.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Returns the number of requests so far.
    pub fn request_count(&self) -> usize {
        self.state.requests.load(Ordering::Relaxed)
    }

    /// Returns the number of faults that happened.
    pub fn fault_count(&self) -> usize {
        self.state.faults.load(Ordering::Relaxed)
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        self.state.is_stopped.store(true, Ordering::Relaxed);
        // Wakes the thread that accepts connections.
        let _: io::Result<TcpStream> = TcpStream::connect(self.address);
    }
}

impl State {
    /// Handles the requests of one connection of a client: one, as the response says.
    fn handle(&self, mut client: TcpStream) -> io::Result<()> {
        client.set_read_timeout(Some(TIMEOUT))?;
        let mut reader = BufReader::new(client.try_clone()?);
        let (head, body) = read_request(&mut reader)?;
        let first_line = head.lines().next().unwrap_or_default();
        let number = self.requests.fetch_add(1, Ordering::Relaxed);
        let fault = (self.script)(number, first_line);
        if fault != ProxyFault::None {
            self.faults.fetch_add(1, Ordering::Relaxed);
        }
        let request = [one_request(&head).as_bytes(), &body].concat();
        let mut response = match fault {
            ProxyFault::StatusBefore(status) => status_response(status),
            ProxyFault::Silent => {
                // Ends with the connection of the client.
                reader.read_to_end(&mut Vec::new())?;
                return Ok(());
            }
            ProxyFault::CutRequest(len) => {
                let mut server = TcpStream::connect(self.server)?;
                server.write_all(&request[..len.min(request.len() - 1)])?;
                server.shutdown(Shutdown::Both)?;
                return client.shutdown(Shutdown::Both);
            }
            _ => self.forward(&request)?,
        };
        match fault {
            ProxyFault::StatusAfter(status) => response = status_response(status),
            ProxyFault::CutResponse(len) => response.truncate(len.min(response.len() - 1)),
            // The fault is slowness.
            ProxyFault::Slow(time) => thread::sleep(time),
            ProxyFault::Replace(old, new) => {
                assert_eq!(old.len(), new.len());
                replace(&mut response, old.as_bytes(), new.as_bytes());
            }
            ProxyFault::OtherETag => change_etag(&mut response),
            _ => {}
        }
        client.write_all(&response)?;
        client.shutdown(Shutdown::Both)
    }

    fn forward(&self, request: &[u8]) -> io::Result<Vec<u8>> {
        let mut server = TcpStream::connect(self.server)?;
        server.set_read_timeout(Some(TIMEOUT))?;
        server.write_all(request)?;
        let mut response = Vec::new();
        server.read_to_end(&mut response)?;
        Ok(response)
    }
}

/// Reads the head and the body of a request with a length.
fn read_request(reader: &mut impl BufRead) -> io::Result<(String, Vec<u8>)> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    let len = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        let is_len = name.eq_ignore_ascii_case("content-length");
        is_len.then(|| value.trim().parse().ok())?
    });
    let mut body = vec![0; len.unwrap_or(0)];
    reader.read_exact(&mut body)?;
    Ok((head, body))
}

/// Tells the server that the connection ends with the response.
fn one_request(head: &str) -> String {
    let fields = head.trim_end_matches("\r\n");
    format!("{fields}\r\nConnection: close\r\n\r\n")
}

fn status_response(status: u16) -> Vec<u8> {
    let head = format!("HTTP/1.1 {status} Fault\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    head.into_bytes()
}

fn replace(text: &mut [u8], old: &[u8], new: &[u8]) {
    let mut at = 0;
    while at + old.len() <= text.len() {
        if text[at..].starts_with(old) {
            text[at..at + new.len()].copy_from_slice(new);
        }
        at += 1;
    }
}

/// Changes the first character of the ETag of a response, if it has one.
fn change_etag(response: &mut [u8]) {
    let name = b"etag: \"";
    let mut texts = response.windows(name.len());
    if let Some(at) = texts.position(|text| text.eq_ignore_ascii_case(name)) {
        let digit = &mut response[at + name.len()];
        *digit = if *digit == b'0' { b'1' } else { b'0' };
    }
}
