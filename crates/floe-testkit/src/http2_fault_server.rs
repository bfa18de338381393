//! A server of a cache directory over HTTP/2 with TLS that injects faults of the protocol.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;

use bytes::Bytes;
pub use h2::Reason;
use h2::RecvStream;
use h2::server::{Connection, SendResponse};
use http::{Request, Response, StatusCode};
use parking_lot::Mutex;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::certificates::Certificates;

/// The behaviour of the server instead of sending a file. RFC 9113.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Http2Fault {
    /// Ends the stream with `RST_STREAM` instead of a response.
    Reset(Reason),
    /// Sends this many bytes of the body, then `RST_STREAM`.
    ResetBody(usize),
    /// Sends this many bytes of the body, then nothing.
    StalledBody(usize),
    /// Sends `GOAWAY`, and the connection ends at once.
    GoAway(Reason),
}

/// A running server. It records the requests.
#[derive(Debug)]
pub struct Http2FaultServer {
    address: SocketAddr,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    directory: PathBuf,
    /// Each connection ends with a graceful `GOAWAY` after this many requests.
    requests_per_connection: usize,
    /// The fault of a path, by the end of its name, and how often it is still injected.
    faults: Mutex<HashMap<String, (Http2Fault, usize)>>,
    injected: AtomicUsize,
    connections: AtomicUsize,
    requests: Mutex<Vec<String>>,
    stop: Notify,
}

impl Http2FaultServer {
    /// Starts a server of a directory on a free port of the loopback address.
    pub fn start(
        directory: &Path,
        certificates: &Certificates,
        requests_per_connection: usize,
    ) -> Http2FaultServer {
        let shared = Arc::new(Shared {
            directory: directory.to_owned(),
            requests_per_connection,
            faults: Mutex::default(),
            injected: AtomicUsize::new(0),
            connections: AtomicUsize::new(0),
            requests: Mutex::default(),
            stop: Notify::new(),
        });
        let acceptor = acceptor(certificates);
        let (sender, started) = mpsc::channel();
        let of_thread = shared.clone();
        let thread = std::thread::spawn(move || {
            let mut runtime = tokio::runtime::Builder::new_current_thread();
            let runtime = runtime.enable_all().build().unwrap();
            runtime.block_on(async {
                let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
                sender.send(listener.local_addr().unwrap()).unwrap();
                tokio::select! {
                    () = accept(&listener, &acceptor, &of_thread) => {}
                    () = of_thread.stop.notified() => {}
                }
            });
            runtime.shutdown_background();
        });
        Http2FaultServer {
            address: started.recv().unwrap(),
            shared,
            thread: Some(thread),
        }
    }

    /// Returns the URL of the cache.
    pub fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    /// Injects a fault into the next `times` requests for each file whose path ends so.
    pub fn fail_times(&self, suffix: &str, fault: Http2Fault, times: usize) {
        self.shared
            .faults
            .lock()
            .insert(suffix.to_owned(), (fault, times));
    }

    /// Returns the number of injected faults.
    pub fn fault_count(&self) -> usize {
        self.shared.injected.load(Ordering::SeqCst)
    }

    /// Returns the number of connections that spoke HTTP/2.
    pub fn connection_count(&self) -> usize {
        self.shared.connections.load(Ordering::SeqCst)
    }

    /// Returns the number of requests for files whose path ends so.
    pub fn request_count(&self, suffix: &str) -> usize {
        let requests = self.shared.requests.lock();
        requests
            .iter()
            .filter(|path| path.ends_with(suffix))
            .count()
    }
}

impl Drop for Http2FaultServer {
    fn drop(&mut self) {
        self.shared.stop.notify_one();
        if let Some(thread) = self.thread.take() {
            let _: std::thread::Result<()> = thread.join();
        }
    }
}

fn acceptor(certificates: &Certificates) -> TlsAcceptor {
    let [certificate, key] = &certificates.server_files;
    let chain = CertificateDer::pem_file_iter(certificate).unwrap();
    let chain: Vec<_> = chain.map(Result::unwrap).collect();
    let key = PrivateKeyDer::from_pem_file(key).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider);
    let config = config.with_safe_default_protocol_versions().unwrap();
    let mut config = config
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .unwrap();
    config.alpn_protocols = vec![b"h2".to_vec()];
    TlsAcceptor::from(Arc::new(config))
}

async fn accept(listener: &TcpListener, acceptor: &TlsAcceptor, shared: &Arc<Shared>) {
    while let Ok((stream, _)) = listener.accept().await {
        let (acceptor, shared) = (acceptor.clone(), shared.clone());
        tokio::spawn(async move {
            // A client may end a connection at any time.
            let _: io::Result<()> = serve_connection(stream, &acceptor, &shared).await;
        });
    }
}

async fn serve_connection(
    stream: TcpStream,
    acceptor: &TlsAcceptor,
    shared: &Arc<Shared>,
) -> io::Result<()> {
    let stream = acceptor.accept(stream).await?;
    let mut connection = h2::server::handshake(stream)
        .await
        .map_err(io::Error::other)?;
    shared.connections.fetch_add(1, Ordering::SeqCst);
    let mut count = 0;
    while let Some(accepted) = connection.accept().await {
        let (request, respond) = accepted.map_err(io::Error::other)?;
        count += 1;
        respond_to(&mut connection, request, respond, shared);
        if count == shared.requests_per_connection {
            connection.graceful_shutdown();
        }
    }
    Ok(())
}

fn respond_to(
    connection: &mut Connection<TlsStream<TcpStream>, Bytes>,
    request: Request<RecvStream>,
    mut respond: SendResponse<Bytes>,
    shared: &Arc<Shared>,
) {
    let path = request.uri().path().to_owned();
    shared.requests.lock().push(path.clone());
    let fault = shared.take_fault(&path);
    match fault {
        Some(Http2Fault::Reset(reason)) => return respond.send_reset(reason),
        Some(Http2Fault::GoAway(reason)) => return connection.abrupt_shutdown(reason),
        _ => {}
    }
    let Ok(body) = fs::read(shared.directory.join(path.trim_start_matches('/'))) else {
        let missing = Response::builder().status(StatusCode::NOT_FOUND);
        let _ = respond.send_response(missing.body(()).unwrap(), true);
        return;
    };
    let range = request.headers().get("range");
    let first: usize = range.map_or(0, |range| {
        let range = range.to_str().unwrap().strip_prefix("bytes=").unwrap();
        range.strip_suffix('-').unwrap().parse().unwrap()
    });
    let (len, rest) = (body.len(), Bytes::from(body).slice(first..));
    let mut head = Response::builder()
        .header("content-length", rest.len())
        .header("etag", format!("\"{len}\""));
    if range.is_some() {
        let range = format!("bytes {first}-{}/{len}", len - 1);
        head = head
            .status(StatusCode::PARTIAL_CONTENT)
            .header("content-range", range);
    }
    let Ok(mut body) = respond.send_response(head.body(()).unwrap(), false) else {
        return;
    };
    // The library keeps what the window of the client does not allow yet.
    match fault {
        Some(Http2Fault::ResetBody(len)) => {
            let _ = body.send_data(rest.slice(..len), false);
            tokio::spawn(async move {
                // The library would drop data that waits for its turn.
                tokio::time::sleep(std::time::Duration::from_millis(200)).await;
                body.send_reset(Reason::INTERNAL_ERROR);
            });
        }
        Some(Http2Fault::StalledBody(len)) => {
            let _ = body.send_data(rest.slice(..len), false);
            tokio::spawn(async move {
                // Dropping the stream would reset it.
                let _stream = body;
                std::future::pending::<()>().await;
            });
        }
        _ => {
            let _ = body.send_data(rest, true);
        }
    }
}

impl Shared {
    fn take_fault(&self, path: &str) -> Option<Http2Fault> {
        let mut faults = self.faults.lock();
        let (_, (fault, left)) = faults
            .iter_mut()
            .find(|(suffix, (_, left))| path.ends_with(&***suffix) && *left > 0)?;
        *left -= 1;
        self.injected.fetch_add(1, Ordering::SeqCst);
        Some(*fault)
    }
}
