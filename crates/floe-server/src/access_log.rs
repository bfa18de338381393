//! The access log: a line for each request.

pub(crate) mod writer;

use std::fmt::Write as _;
use std::time::Duration;

use crate::clock::Clock;
use crate::config::LogFormat;
use crate::http::request::{Parsed, Request};
use crate::http::response::Response;

/// The part of a line that is about the response.
pub(crate) struct Outcome<'a> {
    /// The address at the other end of the connection.
    pub(crate) peer: &'a str,
    /// The time in the format of Apache.
    pub(crate) time: &'a str,
    pub(crate) status: u16,
    /// The length of the body, if it is known beforehand.
    pub(crate) length: Option<u64>,
    /// How long it took to compute the response.
    pub(crate) elapsed: Duration,
}

impl<'a> Outcome<'a> {
    pub(crate) fn new(peer: &'a str, clock: &'a Clock, response: &Response) -> Outcome<'a> {
        Outcome {
            peer,
            time: &clock.log_time,
            status: response.status,
            length: response.length,
            elapsed: Duration::ZERO,
        }
    }
}

/// Returns the line for a request whose head is kept as bytes.
pub(crate) fn line_of_head(format: LogFormat, head: &[u8], outcome: &Outcome<'_>) -> String {
    let mut out = String::new();
    if let Parsed::Head(request, _) = Request::parse(head) {
        line(&mut out, format, &request, outcome);
    }
    out
}

/// Appends the line for a request.
pub(crate) fn line(
    out: &mut String,
    format: LogFormat,
    request: &Request<'_>,
    outcome: &Outcome<'_>,
) {
    let (method, target) = (request.method_text, request.target);
    let version = if request.is_http10 { "1.0" } else { "1.1" };
    let length = outcome
        .length
        .map_or("-".into(), |length| length.to_string());
    let host = match format {
        LogFormat::RealIp => request.real_ip.unwrap_or(outcome.peer),
        LogFormat::Apache | LogFormat::Verbose => outcome.peer,
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
            outcome.status,
            outcome.elapsed,
        ),
        LogFormat::Apache | LogFormat::RealIp => writeln!(
            out,
            "{} - - [{}] \"{method} {} HTTP/{version}\" {} {length} \"{}\" \"{}\"",
            quoted(host),
            outcome.time,
            quoted(target),
            outcome.status,
            quoted(request.referer.unwrap_or("-")),
            quoted(request.user_agent.unwrap_or("-")),
        ),
    };
}

/// Appends the line for bytes that are no valid request, or for a client that was refused before
/// it has sent any. Instead of the request it has the beginning of the first line.
pub(crate) fn refusal(out: &mut String, format: LogFormat, bytes: &[u8], outcome: &Outcome<'_>) {
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
    let (peer, status) = (quoted(outcome.peer), outcome.status);
    let length = outcome.length.unwrap_or_default();
    // Writing to a string cannot fail.
    let _: std::fmt::Result = match format {
        // The fields of this format are single words.
        LogFormat::Verbose => {
            let shown = shown.replace(' ', "%20");
            writeln!(
                out,
                "{peer} - {shown} {status} {length} {:?}",
                outcome.elapsed
            )
        }
        LogFormat::Apache | LogFormat::RealIp => writeln!(
            out,
            "{peer} - - [{}] \"{shown}\" {status} {length} \"-\" \"-\"",
            outcome.time
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
    use super::*;

    fn logged(format: LogFormat, head: &str) -> String {
        let outcome = Outcome {
            peer: "127.0.0.1",
            time: "T",
            status: 200,
            length: Some(5),
            elapsed: Duration::from_micros(7),
        };
        line_of_head(format, head.as_bytes(), &outcome)
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
        let outcome = Outcome {
            peer: "127.0.0.1",
            time: "T",
            status: 400,
            length: Some(12),
            elapsed: Duration::ZERO,
        };
        let logged = |format, bytes: &[u8]| {
            let mut out = String::new();
            refusal(&mut out, format, bytes, &outcome);
            out
        };
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
