//! The access log: a line for each request.

mod escape;
mod json;
mod secrets;
mod text;
pub(crate) mod writer;

use std::borrow::Cow;
use std::fmt::{self, Display, Formatter};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use super::Finished;
use crate::config::LogFormat;
use crate::http::request::Request;
use secrets::{without_credentials, without_secrets};
use writer::LogWriter;

/// The access log of a server.
#[derive(Debug)]
pub(crate) struct AccessLog {
    format: LogFormat,
    pub(crate) writer: LogWriter,
    ids: RequestIds,
}

/// Numbers the requests of a server.
#[derive(Debug)]
struct RequestIds {
    /// The time at which the server started, so that another run has other numbers.
    run: u64,
    next: AtomicU64,
}

/// The name of a request in the log.
#[derive(Clone, Copy, Debug)]
struct RequestId {
    run: u64,
    number: u64,
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
            method: without_secrets(request.method_text),
            target: without_secrets(request.target),
            is_http10: request.is_http10,
            real_ip: request.real_ip.map(without_secrets),
            referer: request.referer.map(without_secrets),
            user_agent: request.user_agent.map(without_secrets),
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

impl AccessLog {
    pub(crate) fn new(format: LogFormat, writer: LogWriter) -> AccessLog {
        let ids = RequestIds::new(SystemTime::now());
        AccessLog {
            format,
            writer,
            ids,
        }
    }

    /// Appends the line for a response.
    pub(super) fn write_line(&self, out: &mut String, finished: &Finished<'_>) {
        match self.format {
            LogFormat::Json => json::write_line(out, self.ids.next(), finished),
            format => text::write_line(out, format, finished),
        }
    }
}

impl RequestIds {
    fn new(start: SystemTime) -> RequestIds {
        let since = start.duration_since(SystemTime::UNIX_EPOCH);
        let micros = since.unwrap_or_default().as_micros();
        RequestIds {
            // Microseconds fit for 500,000 years.
            run: u64::try_from(micros).unwrap_or_default(),
            next: AtomicU64::new(1),
        }
    }

    fn next(&self) -> RequestId {
        RequestId {
            run: self.run,
            number: self.next.fetch_add(1, Ordering::Relaxed),
        }
    }
}

impl Display for RequestId {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        write!(out, "{:x}-{:x}", self.run, self.number)
    }
}

/// Returns the beginning of the first line of bytes that are not a valid request.
fn first_line(bytes: &[u8]) -> Cow<'_, str> {
    let line = bytes
        .split(|&byte| byte == b'\n')
        .next()
        .unwrap_or_default();
    let line = line.trim_ascii_end();
    let shown = String::from_utf8_lossy(line.get(..REFUSED_LEN_MAX).unwrap_or(line));
    let shown = match shown {
        Cow::Borrowed(text) => without_secrets(text),
        Cow::Owned(text) => Cow::Owned(without_secrets(&text).into_owned()),
    };
    without_credentials(shown)
}

/// The longest part of a refused request that is logged, in bytes.
const REFUSED_LEN_MAX: usize = 200;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::{Subject, Summary};
    use super::*;
    use crate::clock::Clock;
    use crate::config::HEAD_LEN_MAX;
    use crate::http::refusal::Refusal;
    use crate::http::request::Parsed;
    use crate::http::response::{CacheKind, CacheUse};
    use crate::http::route_kind::RouteKind;

    fn line_of(format: LogFormat, request: Subject<'_>, summary: Summary) -> String {
        let mut clock = Clock::new();
        clock.log_time = "T".into();
        clock.utc_time = "U".into();
        let finished = Finished {
            peer: "127.0.0.1",
            user: Some("a user"),
            route: RouteKind::Other,
            request,
            summary,
            clock: &clock,
        };
        let mut out = String::new();
        match format {
            LogFormat::Json => {
                json::write_line(&mut out, RequestId { run: 11, number: 1 }, &finished)
            }
            format => text::write_line(&mut out, format, &finished),
        }
        out
    }

    /// Returns the line of a request, which is the same in a network thread and in a worker.
    fn logged(format: LogFormat, head: &str) -> String {
        let Parsed::Head(request, _) = Request::parse(head.as_bytes(), HEAD_LEN_MAX) else {
            panic!("{head:?} is not a request");
        };
        let summary = Summary {
            status: 200,
            length: Some(5),
            body_bytes: 5,
            elapsed: Duration::from_micros(7),
            cache: Some((CacheKind::Nar, CacheUse::Hit)),
            refusal: None,
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
    fn log_lines_match_the_formats_of_apache_and_nix_serve_ng() {
        let head = "GET /x?y HTTP/1.0\r\nX-Real-IP: 10.0.0.1\r\nUser-Agent: curl\r\n\r\n";
        assert_eq!(
            logged(LogFormat::Combined, head),
            "127.0.0.1 - a?user [T] \"GET /x?y HTTP/1.0\" 200 5 \"-\" \"curl\"\n"
        );
        assert_eq!(
            logged(LogFormat::Common, head),
            "127.0.0.1 - a?user [T] \"GET /x?y HTTP/1.0\" 200 5\n"
        );
        assert!(logged(LogFormat::RealIp, head).starts_with("10.0.0.1 - a?user [T]"));
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
            body_bytes: 12,
            elapsed: Duration::ZERO,
            cache: None,
            refusal: Some(Refusal::MalformedHead),
        };
        let logged = |format, bytes| line_of(format, Subject::Invalid(bytes), summary);
        assert_eq!(
            logged(LogFormat::Combined, b"GET \"x\" \xff\x1b\r\nHost: a\r\n"),
            "127.0.0.1 - - [T] \"GET \\\"x\\\" \u{fffd}?\" 400 12 \"-\" \"-\"\n"
        );
        assert_eq!(
            logged(LogFormat::Common, b"GET /\n"),
            "127.0.0.1 - - [T] \"GET /\" 400 12\n"
        );
        assert_eq!(
            logged(LogFormat::Verbose, b"GET a b\n"),
            "127.0.0.1 - GET%20a%20b 400 12 0ns malformedHead a?user\n"
        );
        assert!(logged(LogFormat::RealIp, b"").contains("\"-\" 400"));
        assert!(logged(LogFormat::Verbose, &[b'x'; 100_000]).len() < 300);
    }

    #[test]
    fn client_text_cannot_forge_a_log_line() {
        let head = "GET /x HTTP/1.0\r\nUser-Agent: a\" \\ \t\u{9b}\r\n\r\n";
        let line = logged(LogFormat::Combined, head);
        assert!(line.ends_with("\"a\\\" \\\\ ??\"\n"), "{line}");
        assert_eq!(line.matches('\n').count(), 1);
    }

    #[test]
    fn json_line_has_all_that_is_known() {
        let head = "HEAD /x?\\ HTTP/1.0\r\nX-Real-IP: 10.0.0.1\r\nUser-Agent: a \"b\"\r\n\r\n";
        assert_eq!(
            logged(LogFormat::Json, head),
            "{\"time\":\"U\",\"requestId\":\"b-1\",\"remoteAddress\":\"127.0.0.1\",\
             \"user\":\"a user\",\"realIp\":\"10.0.0.1\",\"method\":\"HEAD\",\
             \"target\":\"/x?\\\\\",\"userAgent\":\"a \\\"b\\\"\",\"status\":200,\"bytes\":5,\
             \"durationMicros\":7,\"cache\":\"hit\"}\n"
        );
    }

    #[test]
    fn json_line_of_a_refusal_has_reason_and_first_line() {
        let summary = Summary::without_response(Refusal::HeadTimeout);
        let bytes = b"GET \xff\r\nHost: a";
        assert_eq!(
            line_of(LogFormat::Json, Subject::Invalid(bytes), summary),
            "{\"time\":\"U\",\"requestId\":\"b-1\",\"remoteAddress\":\"127.0.0.1\",\
             \"user\":\"a user\",\"requestLine\":\"GET \u{fffd}\",\"status\":408,\
             \"durationMicros\":0,\"reason\":\"headTimeout\"}\n"
        );
    }

    #[test]
    fn request_ids_differ_within_and_between_runs() {
        let start = SystemTime::UNIX_EPOCH + Duration::from_micros(0xabc);
        let ids = RequestIds::new(start);
        let names = [ids.next(), ids.next()].map(|id| id.to_string());
        assert_eq!(names, ["abc-1", "abc-2"]);
    }
}
