//! A plain HTTP/1.1 client with one connection: it fetches what is to be checked, and measures
//! requests one after another, where a load generator would blur what a single client sees.

use std::io::{self, BufRead as _, BufReader, Read as _, Write};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};

/// Where a server listens, and below which path it has its cache.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Origin {
    /// `host:port`
    pub(super) authority: String,
    /// Empty, or `/path` without a slash at its end.
    pub(super) prefix: String,
}

impl Origin {
    pub(super) fn local(port: u16) -> Origin {
        Origin {
            authority: format!("127.0.0.1:{port}"),
            prefix: String::new(),
        }
    }

    /// Reads `http://host[:port][/path]`.
    pub(super) fn parse(url: &str) -> Option<Origin> {
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
        })
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}{}", self.authority, self.prefix)
    }
}

/// The head of an answer.
#[derive(Debug, PartialEq)]
pub(super) struct Head {
    pub(super) status: u16,
    /// Names in lower case.
    headers: Vec<(String, String)>,
}

impl Head {
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    }
}

/// One connection, made again when the server has closed it between two answers.
pub(super) struct Connection {
    origin: Origin,
    stream: Option<BufReader<TcpStream>>,
}

/// A server that says nothing for so long hangs.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(60);
/// Large bodies come in reads of this size; a smaller one would measure system calls.
const BUFFER: usize = 256 * 1024;
/// No server here sends more in a line of its head.
const LINE_MAX: u64 = 64 * 1024;

impl Connection {
    pub(super) fn new(origin: &Origin) -> Connection {
        Connection {
            origin: origin.clone(),
            stream: None,
        }
    }

    /// The whole answer. `target` is what stands in the request's first line.
    pub(super) fn fetch(&mut self, target: &str, extra: &str) -> Result<(Head, Vec<u8>)> {
        let mut body = Vec::new();
        let head = self.get(target, extra, &mut body)?;
        Ok((head, body))
    }

    /// Asks for `target` with the lines of header in `extra`, each with its `\r\n`, and hands the
    /// body to `sink`.
    pub(super) fn get(&mut self, target: &str, extra: &str, sink: &mut dyn Write) -> Result<Head> {
        let reused = self.stream.is_some();
        let head = match self.ask(target, extra) {
            // It may have closed the old connection before it saw the request.
            Err(_) if reused => {
                self.stream = None;
                self.ask(target, extra)
            }
            asked => asked,
        };
        let head = head.with_context(|| self.what(target))?;
        let Some(mut stream) = self.stream.take() else {
            bail!("{}: no connection", self.what(target));
        };
        let whole = read_body(&mut stream, &head, sink).with_context(|| self.what(target))?;
        if whole == Framed::Yes && head.header("connection") != Some("close") {
            self.stream = Some(stream);
        }
        Ok(head)
    }

    fn what(&self, target: &str) -> String {
        format!("asking http://{} for {target}", self.origin.authority)
    }

    fn ask(&mut self, target: &str, extra: &str) -> Result<Head> {
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
            "GET {target} HTTP/1.1\r\nHost: {}\r\n{extra}\r\n",
            self.origin.authority
        );
        stream.get_mut().write_all(request.as_bytes())?;
        read_head(stream)
    }
}

fn read_line(from: &mut impl io::BufRead) -> Result<String> {
    let mut line = String::new();
    from.take(LINE_MAX).read_line(&mut line)?;
    ensure!(line.ends_with('\n'), "the answer ends within its head");
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

/// Whether the answer said where it ends, so that another can follow.
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
            pass_on(from, size, sink)?;
            let end = read_line(from)?;
            ensure!(end.is_empty(), "`{end}` behind a chunk");
            if size == 0 {
                return Ok(Framed::Yes);
            }
        }
    }
    if let Some(length) = head.header("content-length") {
        let length = length
            .parse()
            .with_context(|| format!("length `{length}`"))?;
        pass_on(from, length, sink)?;
        return Ok(Framed::Yes);
    }
    io::copy(from, sink)?;
    Ok(Framed::No)
}

/// Hands over what the buffer holds, without a copy in between.
fn pass_on(from: &mut impl io::BufRead, mut left: u64, sink: &mut dyn Write) -> Result<()> {
    while left > 0 {
        let there = from.fill_buf()?;
        ensure!(!there.is_empty(), "the body ends {left} bytes early");
        let take = usize::try_from(left).unwrap_or(usize::MAX).min(there.len());
        sink.write_all(&there[..take])?;
        from.consume(take);
        left -= take as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(text: &str) -> Result<(Head, String, Framed)> {
        let mut from = text.as_bytes();
        let head = read_head(&mut from)?;
        let mut body = Vec::new();
        let framed = read_body(&mut from, &head, &mut body)?;
        Ok((head, String::from_utf8(body).unwrap(), framed))
    }

    #[test]
    fn bodies_end_by_length_by_chunks_or_with_the_connection() {
        for (rest, framed) in [
            ("Content-Length: 5\r\n\r\nhello more", Framed::Yes),
            (
                "TRANSFER-ENCODING: chunked\r\n\r\n2\r\nhe\r\n3;x=y\r\nllo\r\n0\r\n\r\n",
                Framed::Yes,
            ),
            ("\r\nhello", Framed::No),
        ] {
            let (head, body, seen) = answer(&format!("HTTP/1.1 200 OK\r\n{rest}")).unwrap();
            assert_eq!((head.status, body.as_str()), (200, "hello"), "{rest}");
            assert!(seen == framed, "{rest}");
        }
    }

    #[test]
    fn an_answer_that_is_cut_off_is_an_error() {
        for text in [
            "HTTP/1.1 200 OK\r\nContent-Le",
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhell",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhe",
            "nonsense\r\n\r\n",
        ] {
            assert!(answer(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_connection_that_the_server_closed_between_answers_is_made_again() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        // Each connection gets one answer that promises another, and none comes.
        let server = std::thread::spawn(move || {
            for _ in 0..2 {
                let (stream, _) = listener.accept().unwrap();
                let mut stream = BufReader::new(stream);
                while !read_line(&mut stream).unwrap().is_empty() {}
                let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
                stream.get_mut().write_all(answer).unwrap();
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
        fn an_origin_is_read_as_it_is_written(
            host in "[a-z0-9.]{1,20}",
            port in 0u16..,
            path in "(/[a-z0-9]{1,5}){0,3}",
        ) {
            let origin = Origin { authority: format!("{host}:{port}"), prefix: path };
            proptest::prop_assert_eq!(Origin::parse(&origin.url()), Some(origin));
        }
    }

    #[test]
    fn an_origin_is_read_from_its_url() {
        let read = |url| Origin::parse(url).map(|origin| origin.url());
        assert_eq!(read("http://a:1").as_deref(), Some("http://a:1"));
        assert_eq!(read("http://a/b/").as_deref(), Some("http://a:80/b"));
        assert_eq!(read("https://a"), None);
        assert_eq!(read("http://a:b"), None);
    }
}
