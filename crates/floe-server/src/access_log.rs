//! The access log: a line for each request.

pub(crate) mod writer;

use std::fmt::Write as _;
use std::time::Duration;

use crate::config::LogFormat;
use crate::http::request::{Parsed, Request};

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
