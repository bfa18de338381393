//! A simple HTTP/1.1 client with one connection, for checks and for sequential requests. A load
//! generator would not measure the latency of a single client. Over TLS, curl sends the requests.

mod curl;

use std::io::{self, BufRead as _, BufReader, Read as _, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};

/// The address of a server, and the path of its cache.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Origin {
    /// `host:port`
    pub(crate) authority: String,
    /// Empty, or `/path` without a slash at its end.
    pub(crate) prefix: String,
    /// The certificate that clients of a server with TLS trust; none over plain HTTP.
    pub(crate) certificate: Option<PathBuf>,
    /// The header line of a login with its `\r\n`; empty for a server without logins.
    pub(crate) login: String,
}

impl Origin {
    pub(crate) fn local(port: u16) -> Origin {
        Origin {
            authority: format!("127.0.0.1:{port}"),
            prefix: String::new(),
            certificate: None,
            login: String::new(),
        }
    }

    /// Parses `http://host[:port][/path]`.
    pub(crate) fn parse(url: &str) -> Option<Origin> {
        let rest = url.strip_prefix("http://")?;
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let port = match authority.rsplit_once(':') {
            Some((_, port)) => port.parse::<u16>().map(|_| "").ok()?,
            None => ":80",
        };
        let path = path.trim_end_matches('/');
        (!authority.is_empty()).then(|| Origin {
            authority: format!("{authority}{port}"),
            prefix: match path {
                "" => String::new(),
                path => format!("/{path}"),
            },
            certificate: None,
            login: String::new(),
        })
    }

    pub(crate) fn url(&self) -> String {
        self.url_of(&self.prefix)
    }

    /// The URL of a request's path.
    pub(crate) fn url_of(&self, target: &str) -> String {
        let scheme = match self.certificate {
            Some(_) => "https",
            None => "http",
        };
        format!("{scheme}://{}{target}", self.authority)
    }
}

/// The head of a response.
#[derive(Debug, PartialEq)]
pub(crate) struct Head {
    pub(crate) status: u16,
    /// Pairs of name, in lower case, and value.
    headers: Vec<(String, String)>,
}

impl Head {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    }
}

/// A connection that is opened again if the server closed it between two responses.
pub(crate) struct Connection {
    origin: Origin,
    stream: Option<BufReader<TcpStream>>,
}

/// A server that sends nothing for this long hangs.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(60);
/// With a smaller buffer, large bodies would measure system calls.
const BUFFER: usize = 256 * 1024;
/// Longer than any header line of the measured servers.
const LINE_MAX: u64 = 64 * 1024;

impl Connection {
    pub(crate) fn new(origin: &Origin) -> Connection {
        Connection {
            origin: origin.clone(),
            stream: None,
        }
    }

    /// Fetches a whole response. `target` is the path of the request.
    pub(crate) fn fetch(&mut self, target: &str, extra: &str) -> Result<(Head, Vec<u8>)> {
        let mut body = Vec::new();
        let head = self.get(target, extra, &mut body)?;
        Ok((head, body))
    }

    /// Fetches `target` and writes the body to `sink`. `extra` holds additional header lines, each
    /// with its `\r\n`.
    pub(crate) fn get(&mut self, target: &str, extra: &str, sink: &mut dyn Write) -> Result<Head> {
        if let Some(certificate) = &self.origin.certificate {
            let url = self.origin.url_of(target);
            let extra = format!("{extra}{}", self.origin.login);
            let head = curl::get(&url, certificate, &extra, sink);
            return head.with_context(|| self.describe(target));
        }
        let reused = self.stream.is_some();
        let head = match self.send(target, extra) {
            // The server may have closed the old connection before it read the request.
            Err(_) if reused => {
                self.stream = None;
                self.send(target, extra)
            }
            sent => sent,
        };
        let head = head.with_context(|| self.describe(target))?;
        let Some(mut stream) = self.stream.take() else {
            bail!("{}: there is no connection", self.describe(target));
        };
        let whole = read_body(&mut stream, &head, sink).with_context(|| self.describe(target))?;
        if whole == Framed::Yes && head.header("connection") != Some("close") {
            self.stream = Some(stream);
        }
        Ok(head)
    }

    fn describe(&self, target: &str) -> String {
        format!("GET {}", self.origin.url_of(target))
    }

    fn send(&mut self, target: &str, extra: &str) -> Result<Head> {
        let stream = match &mut self.stream {
            Some(stream) => stream,
            none => {
                let stream = TcpStream::connect(&self.origin.authority)?;
                stream.set_nodelay(true)?;
                stream.set_read_timeout(Some(RESPONSE_TIMEOUT))?;
                none.insert(BufReader::with_capacity(BUFFER, stream))
            }
        };
        let request = format!(
            "GET {target} HTTP/1.1\r\nHost: {}\r\n{extra}{}\r\n",
            self.origin.authority, self.origin.login
        );
        stream.get_mut().write_all(request.as_bytes())?;
        read_head(stream)
    }
}

fn read_line(from: &mut impl io::BufRead) -> Result<String> {
    let mut line = String::new();
    from.take(LINE_MAX).read_line(&mut line)?;
    ensure!(line.ends_with('\n'), "the response ends within its head");
    line.truncate(line.trim_end().len());
    Ok(line)
}

fn read_head(from: &mut impl io::BufRead) -> Result<Head> {
    let first = read_line(from)?;
    let status = first
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok());
    let mut headers = Vec::new();
    loop {
        let line = read_line(from)?;
        if line.is_empty() {
            break;
        }
        let (name, value) = line.split_once(':').context("a header without a colon")?;
        headers.push((name.to_ascii_lowercase(), value.trim().into()));
    }
    Ok(Head {
        status: status.with_context(|| format!("no status in `{first}`"))?,
        headers,
    })
}

/// Whether the response has a length, so that another one can follow on the connection.
#[derive(PartialEq)]
enum Framed {
    Yes,
    No,
}

fn read_body(from: &mut impl io::BufRead, head: &Head, sink: &mut dyn Write) -> Result<Framed> {
    if head.header("transfer-encoding") == Some("chunked") {
        loop {
            let line = read_line(from)?;
            let size = line.split(';').next().unwrap_or_default();
            let size = u64::from_str_radix(size, 16).with_context(|| format!("chunk `{line}`"))?;
            copy_exactly(from, size, sink)?;
            let end = read_line(from)?;
            ensure!(end.is_empty(), "`{end}` after a chunk");
            if size == 0 {
                return Ok(Framed::Yes);
            }
        }
    }
    if let Some(length) = head.header("content-length") {
        let length = length
            .parse()
            .with_context(|| format!("length `{length}`"))?;
        copy_exactly(from, length, sink)?;
        return Ok(Framed::Yes);
    }
    io::copy(from, sink)?;
    Ok(Framed::No)
}

/// Writes the next bytes to `sink`, straight from the buffer.
fn copy_exactly(from: &mut impl io::BufRead, mut left: u64, sink: &mut dyn Write) -> Result<()> {
    while left > 0 {
        let available = from.fill_buf()?;
        ensure!(!available.is_empty(), "the body ends {left} bytes early");
        let len = usize::try_from(left)
            .unwrap_or(usize::MAX)
            .min(available.len());
        sink.write_all(&available[..len])?;
        from.consume(len);
        left -= len as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn response(text: &str) -> Result<(Head, String, Framed)> {
        let mut from = text.as_bytes();
        let head = read_head(&mut from)?;
        let mut body = Vec::new();
        let framed = read_body(&mut from, &head, &mut body)?;
        Ok((head, String::from_utf8(body).unwrap(), framed))
    }

    #[test]
    fn body_ends_by_length_chunks_or_connection() {
        for (rest, framed) in [
            ("Content-Length: 5\r\n\r\nhello more", Framed::Yes),
            (
                "TRANSFER-ENCODING: chunked\r\n\r\n2\r\nhe\r\n3;x=y\r\nllo\r\n0\r\n\r\n",
                Framed::Yes,
            ),
            ("\r\nhello", Framed::No),
        ] {
            let (head, body, seen) = response(&format!("HTTP/1.1 200 OK\r\n{rest}")).unwrap();
            assert_eq!((head.status, body.as_str()), (200, "hello"), "{rest}");
            assert!(seen == framed, "{rest}");
        }
    }

    #[test]
    fn truncated_response_is_an_error() {
        for text in [
            "HTTP/1.1 200 OK\r\nContent-Le",
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhell",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhe",
            "nonsense\r\n\r\n",
        ] {
            assert!(response(text).is_err(), "{text}");
        }
    }

    #[test]
    fn closed_connection_is_opened_again() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        // Each connection gets one keep-alive response and is then closed.
        let server = std::thread::spawn(move || {
            for _ in 0..2 {
                let (stream, _) = listener.accept().unwrap();
                let mut stream = BufReader::new(stream);
                while !read_line(&mut stream).unwrap().is_empty() {}
                let response = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
                stream.get_mut().write_all(response).unwrap();
            }
        });
        let mut connection = Connection::new(&Origin::local(port));
        for _ in 0..2 {
            let (head, body) = connection.fetch("/", "").unwrap();
            assert_eq!((head.status, &body[..]), (200, &b"ok"[..]));
        }
        server.join().unwrap();
    }

    proptest::proptest! {
        #[test]
        fn origin_survives_a_round_trip(
            host in "[a-z0-9.]{1,20}",
            port in 0u16..,
            path in "(/[a-z0-9]{1,5}){0,3}",
        ) {
            let authority = format!("{host}:{port}");
            let login = String::new();
            let origin = Origin { authority, prefix: path, certificate: None, login };
            proptest::prop_assert_eq!(Origin::parse(&origin.url()), Some(origin));
        }
    }

    #[test]
    fn origin_is_parsed_from_its_url() {
        let read = |url| Origin::parse(url).map(|origin| origin.url());
        assert_eq!(read("http://a:1").as_deref(), Some("http://a:1"));
        assert_eq!(read("http://a/b/").as_deref(), Some("http://a:80/b"));
        assert_eq!(read("https://a"), None);
        assert_eq!(read("http://a:b"), None);
    }
}
