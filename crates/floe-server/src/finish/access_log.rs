//! The access log: a line for each request.

pub(crate) mod writer;

use std::borrow::Cow;
use std::fmt::Write as _;

use super::{Finished, Subject};
use crate::config::LogFormat;
use crate::http::request::Request;
use writer::LogWriter;

/// The access log of a server.
#[derive(Debug)]
pub(crate) struct AccessLog {
    pub(crate) format: LogFormat,
    pub(crate) writer: LogWriter,
}

/// The parts of a request that its line shows.
#[derive(Clone, Debug)]
pub(crate) struct LoggedRequest<'b> {
    method: Cow<'b, str>,
    target: Cow<'b, str>,
    is_http10: bool,
    real_ip: Option<Cow<'b, str>>,
    referer: Option<Cow<'b, str>>,
    user_agent: Option<Cow<'b, str>>,
}

impl<'b> LoggedRequest<'b> {
    pub(crate) fn new(request: &Request<'b>) -> LoggedRequest<'b> {
        LoggedRequest {
            method: request.method_text.into(),
            target: request.target.into(),
            is_http10: request.is_http10,
            real_ip: request.real_ip.map(Cow::from),
            referer: request.referer.map(Cow::from),
            user_agent: request.user_agent.map(Cow::from),
        }
    }

    /// Copies the parts, for a request that outlives the bytes of its head.
    pub(crate) fn into_owned(self) -> LoggedRequest<'static> {
        let owned = |text: Cow<'_, str>| Cow::Owned(text.into_owned());
        LoggedRequest {
            method: owned(self.method),
            target: owned(self.target),
            is_http10: self.is_http10,
            real_ip: self.real_ip.map(owned),
            referer: self.referer.map(owned),
            user_agent: self.user_agent.map(owned),
        }
    }
}

/// Appends the line for a response.
pub(super) fn write_line(out: &mut String, format: LogFormat, finished: &Finished<'_>) {
    match finished.request {
        Subject::Parsed(request) => {
            write_request(out, format, &LoggedRequest::new(request), finished);
        }
        Subject::Deferred(Some(request)) => write_request(out, format, request, finished),
        Subject::Deferred(None) => {}
        Subject::Invalid(bytes) => write_refusal(out, format, bytes, finished),
    }
}

fn write_request(
    out: &mut String,
    format: LogFormat,
    request: &LoggedRequest<'_>,
    finished: &Finished<'_>,
) {
    let (method, target) = (&request.method, &request.target);
    let version = if request.is_http10 { "1.0" } else { "1.1" };
    let summary = &finished.summary;
    let length = summary
        .length
        .map_or("-".into(), |length| length.to_string());
    let host = match format {
        LogFormat::RealIp => request.real_ip.as_deref().unwrap_or(finished.peer),
        LogFormat::Apache | LogFormat::Verbose => finished.peer,
    };
    // Without a proxy, the client chooses this text. It may be one word only.
    let host = host.split_whitespace().next().unwrap_or("-");
    // Writing to a string cannot fail.
    let _: std::fmt::Result = match format {
        LogFormat::Verbose => writeln!(
            out,
            "{} {method} {} {} {length} {:?}",
            quoted(host),
            quoted(target),
            summary.status,
            summary.elapsed,
        ),
        LogFormat::Apache | LogFormat::RealIp => writeln!(
            out,
            "{} - - [{}] \"{method} {} HTTP/{version}\" {} {length} \"{}\" \"{}\"",
            quoted(host),
            finished.clock.log_time,
            quoted(target),
            summary.status,
            quoted(request.referer.as_deref().unwrap_or("-")),
            quoted(request.user_agent.as_deref().unwrap_or("-")),
        ),
    };
}

/// Appends the line for bytes that are no valid request, or for a client that was refused before
/// it has sent any. Instead of the request it has the beginning of the first line.
fn write_refusal(out: &mut String, format: LogFormat, bytes: &[u8], finished: &Finished<'_>) {
    let line = bytes
        .split(|&byte| byte == b'\n')
        .next()
        .unwrap_or_default();
    let shown = line.trim_ascii_end();
    let shown = shown.get(..REFUSED_LEN_MAX).unwrap_or(shown);
    let shown = match shown.is_empty() {
        true => "-".into(),
        false => quoted(&String::from_utf8_lossy(shown)),
    };
    let summary = &finished.summary;
    let (peer, status) = (quoted(finished.peer), summary.status);
    let length = summary.length.unwrap_or_default();
    // Writing to a string cannot fail.
    let _: std::fmt::Result = match format {
        // The fields of this format are single words.
        LogFormat::Verbose => {
            let shown = shown.replace(' ', "%20");
            writeln!(
                out,
                "{peer} - {shown} {status} {length} {:?}",
                summary.elapsed
            )
        }
        LogFormat::Apache | LogFormat::RealIp => writeln!(
            out,
            "{peer} - - [{}] \"{shown}\" {status} {length} \"-\" \"-\"",
            finished.clock.log_time
        ),
    };
}

/// The longest part of a refused request that is logged, in bytes.
const REFUSED_LEN_MAX: usize = 200;

/// Escapes text of the client, so that it can end neither its field nor the line, and cannot
/// control a terminal.
fn quoted(text: &str) -> String {
    text.chars()
        .flat_map(|character| match character {
            '"' | '\\' => vec!['\\', character],
            character if character.is_control() => vec!['?'],
            character => vec![character],
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::Summary;
    use super::*;
    use crate::clock::Clock;
    use crate::http::request::Parsed;

    fn line_of(format: LogFormat, request: Subject<'_>, summary: Summary) -> String {
        let mut clock = Clock::new();
        clock.log_time = "T".into();
        let finished = Finished {
            peer: "127.0.0.1",
            request,
            summary,
            clock: &clock,
        };
        let mut out = String::new();
        write_line(&mut out, format, &finished);
        out
    }

    /// Returns the line of a request, which is the same in a network thread and in a worker.
    fn logged(format: LogFormat, head: &str) -> String {
        let Parsed::Head(request, _) = Request::parse(head.as_bytes()) else {
            panic!("{head:?} is not a request");
        };
        let summary = Summary {
            status: 200,
            length: Some(5),
            elapsed: Duration::from_micros(7),
        };
        let line = line_of(format, Subject::Parsed(&request), summary);
        let kept = LoggedRequest::new(&request).into_owned();
        assert_eq!(
            line_of(format, Subject::Deferred(Some(&kept)), summary),
            line
        );
        line
    }

    #[test]
    fn log_lines_match_the_formats_of_nix_serve_ng() {
        let head = "GET /x?y HTTP/1.0\r\nX-Real-IP: 10.0.0.1\r\nUser-Agent: curl\r\n\r\n";
        assert_eq!(
            logged(LogFormat::Apache, head),
            "127.0.0.1 - - [T] \"GET /x?y HTTP/1.0\" 200 5 \"-\" \"curl\"\n"
        );
        assert!(logged(LogFormat::RealIp, head).starts_with("10.0.0.1 - - [T]"));
        assert_eq!(
            logged(LogFormat::Verbose, head),
            "127.0.0.1 GET /x?y 200 5 7µs\n"
        );
    }

    #[test]
    fn refused_bytes_are_logged_as_one_bounded_line() {
        let summary = Summary {
            status: 400,
            length: Some(12),
            elapsed: Duration::ZERO,
        };
        let logged = |format, bytes| line_of(format, Subject::Invalid(bytes), summary);
        assert_eq!(
            logged(LogFormat::Apache, b"GET \"x\" \xff\x1b\r\nHost: a\r\n"),
            "127.0.0.1 - - [T] \"GET \\\"x\\\" \u{fffd}?\" 400 12 \"-\" \"-\"\n"
        );
        assert_eq!(
            logged(LogFormat::Verbose, b"GET a b\n"),
            "127.0.0.1 - GET%20a%20b 400 12 0ns\n"
        );
        assert!(logged(LogFormat::RealIp, b"").contains("\"-\" 400"));
        assert!(logged(LogFormat::Verbose, &[b'x'; 100_000]).len() < 300);
    }

    #[test]
    fn client_text_cannot_forge_a_log_line() {
        let head = "GET /x HTTP/1.0\r\nUser-Agent: a\" \\ \t\u{9b}\r\n\r\n";
        let line = logged(LogFormat::Apache, head);
        assert!(
            line.ends_with("\"a\\\" \\\\ ??\"\n") || line.ends_with("\"a\\\" \\\\ ?\"\n"),
            "{line}"
        );
        assert_eq!(line.matches('\n').count(), 1);
    }
}
