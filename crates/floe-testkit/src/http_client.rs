//! An HTTP/1.1 client that exposes every byte of a response.

use std::io::{self, BufRead as _, BufReader, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;

pub use rustls::ClientConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConnection, RootCertStore, StreamOwned};

use crate::poll::TIMEOUT;

/// A client connection.
pub struct Client<S = TcpStream> {
    /// The connection. Tests use it for everything that the methods do not offer.
    pub stream: BufReader<S>,
}

/// A stream of any kind.
pub trait Stream: Read + Write + Send {}

impl<S: Read + Write + Send> Stream for S {}

/// A client connection of any kind.
pub type AnyClient = Client<Box<dyn Stream>>;

impl AnyClient {
    /// Connects to a Unix socket.
    #[track_caller]
    pub fn connect_unix(path: &Path) -> AnyClient {
        let stream = UnixStream::connect(path).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        stream.set_write_timeout(Some(TIMEOUT)).unwrap();
        Client {
            stream: BufReader::new(Box::new(stream)),
        }
    }

    /// Connects to a `HOST:PORT` address with TLS. Also returns the certificate of the server.
    ///
    /// Errors: those of the handshake.
    pub fn connect_tls(
        address: &str,
        config: &Arc<ClientConfig>,
    ) -> io::Result<(AnyClient, Vec<u8>)> {
        let address: SocketAddr = address.parse().unwrap();
        let mut socket = TcpStream::connect(address)?;
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(TIMEOUT))?;
        socket.set_write_timeout(Some(TIMEOUT))?;
        let name = ServerName::from(address.ip());
        let mut connection = ClientConnection::new(config.clone(), name).unwrap();
        while connection.is_handshaking() {
            connection.complete_io(&mut socket)?;
        }
        let certificates = connection.peer_certificates();
        let certificate = certificates.and_then(<[_]>::first).unwrap().to_vec();
        let stream = StreamOwned::new(connection, socket);
        let stream: Box<dyn Stream> = Box::new(stream);
        Ok((
            Client {
                stream: BufReader::new(stream),
            },
            certificate,
        ))
    }
}

/// Returns the settings of a client that trusts the authority in a PEM file.
pub fn tls_config(authority: &str) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(authority).unwrap() {
        roots.add(certificate.unwrap()).unwrap();
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider);
    let builder = builder.with_safe_default_protocol_versions().unwrap();
    Arc::new(builder.with_root_certificates(roots).with_no_client_auth())
}

impl Client {
    /// Connects to a `HOST:PORT` address.
    #[track_caller]
    pub fn connect(address: &str) -> Client {
        Client::over(TcpStream::connect(address).unwrap())
    }

    #[track_caller]
    fn over(stream: TcpStream) -> Client {
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        stream.set_write_timeout(Some(TIMEOUT)).unwrap();
        Client {
            stream: BufReader::new(stream),
        }
    }

    /// Connects from one of the machine's own addresses, such as 127.0.0.2.
    #[track_caller]
    pub fn connect_from(source: IpAddr, address: &str) -> Client {
        use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, socket_with};
        let target: SocketAddr = address.parse().unwrap();
        let (family, kind) = (AddressFamily::INET, SocketType::STREAM);
        let socket = socket_with(family, kind, SocketFlags::CLOEXEC, None).unwrap();
        bind(&socket, &SocketAddr::new(source, 0)).unwrap();
        connect(&socket, &target).unwrap();
        Client::over(socket.into())
    }
}

impl<S: Read + Write> Client<S> {
    /// Sends bytes without any change.
    #[track_caller]
    pub fn send(&mut self, bytes: &[u8]) {
        self.stream.get_mut().write_all(bytes).unwrap();
    }

    /// Sends a request and reads its response.
    #[track_caller]
    pub fn request(&mut self, method: &str, target: &str, fields: &str) -> Response {
        let response = self.try_request(method, target, fields);
        response.unwrap_or_else(|error| panic!("{method} {target}: {error}"))
    }

    /// Does the same as `request`, but returns I/O errors.
    pub fn try_request(
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
    pub fn read_response(&mut self, head_only: bool) -> io::Result<Response> {
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
    pub fn read_head(&mut self) -> io::Result<Response> {
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
    pub fn read_rest(&mut self) -> Vec<u8> {
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
pub struct Response {
    /// The status code.
    pub status: u16,
    /// Status line and header fields, including the empty line.
    pub head: String,
    /// The body, after removal of chunked framing.
    pub body: Vec<u8>,
}

impl Response {
    /// Returns the value of a header field. Panics if the field occurs twice.
    #[track_caller]
    pub fn field(&self, name: &str) -> Option<&str> {
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
    pub fn stable_head(&self) -> Vec<&str> {
        let lines = self.head.lines();
        let mut lines: Vec<&str> = lines.filter(|line| !line.starts_with("Date: ")).collect();
        lines.sort_unstable();
        lines
    }

    /// Returns the body as text.
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    fn is_chunked(&self) -> bool {
        self.field("transfer-encoding") == Some("chunked")
    }

    /// Returns a field of a narinfo.
    #[track_caller]
    pub fn narinfo_field(&self, name: &str) -> &str {
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
pub fn hash_part(path: &str) -> &str {
    let name = path.rsplit('/').next().unwrap();
    name.split('-').next().unwrap()
}

/// Returns the request target of a path's narinfo.
pub fn narinfo_of(path: &str) -> String {
    format!("/{}.narinfo", hash_part(path))
}
