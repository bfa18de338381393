//! A line for each request.

pub(crate) mod writer;

use std::fmt::Write as _;
use std::time::Duration;

use crate::config::LogFormat;
use crate::http::request::Request;

/// What a line tells besides the request.
pub(crate) struct RequestOutcome<'a> {
    /// The address of whoever is at the other end of the connection.
    pub(crate) peer: &'a str,
    /// The time, as Apache writes it.
    pub(crate) time: &'a str,
    pub(crate) status: u16,
    /// The length of the body, where it is known beforehand.
    pub(crate) length: Option<u64>,
    /// How long the answer took to be found.
    pub(crate) took: Option<Duration>,
}

/// Appends the line for a request.
pub(crate) fn line(
    out: &mut String,
    format: LogFormat,
    request: &Request<'_>,
    answered: &RequestOutcome<'_>,
) {
    let (method, target) = request.line;
    let version = if request.is_http10 { "1.0" } else { "1.1" };
    let length = answered
        .length
        .map_or("-".into(), |length| length.to_string());
    let host = match format {
        LogFormat::RealIp => request.real_ip.unwrap_or(answered.peer),
        LogFormat::Apache | LogFormat::Verbose => answered.peer,
    };
    // A client without a proxy says what it likes; one word is all that it may say.
    let host = host.split_whitespace().next().unwrap_or("-");
    // A string takes all that is written to it.
    let written = match format {
        LogFormat::Verbose => writeln!(
            out,
            "{} {method} {} {} {length} {:?}",
            quoted(host),
            quoted(target),
            answered.status,
            answered.took.unwrap_or_default(),
        ),
        LogFormat::Apache | LogFormat::RealIp => writeln!(
            out,
            "{} - - [{}] \"{method} {} HTTP/{version}\" {} {length} \"{}\" \"{}\"",
            quoted(host),
            answered.time,
            quoted(target),
            answered.status,
            quoted(request.agent.0.unwrap_or("-")),
            quoted(request.agent.1.unwrap_or("-")),
        ),
    };
    let _: std::fmt::Result = written;
}

/// What a client sent, so that it can neither end the line nor its field, nor steer a terminal.
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
    use crate::http::request::Parsed;

    fn logged(format: LogFormat, head: &str) -> String {
        let Parsed::Head(request, _) = Request::parse(head.as_bytes()) else {
            panic!("{head:?} is no head");
        };
        let answered = RequestOutcome {
            peer: "127.0.0.1",
            time: "T",
            status: 200,
            length: Some(5),
            took: Some(Duration::from_micros(7)),
        };
        let mut out = String::new();
        line(&mut out, format, &request, &answered);
        out
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
