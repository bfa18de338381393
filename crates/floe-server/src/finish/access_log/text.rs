//! The lines of the access log in the formats of Apache and in `verbose`.

use super::secrets::without_secrets;
use std::borrow::Cow;
use std::fmt::{self, Display, Formatter, Write as _};

use super::escape::{Quoted, QuotedWord};
use super::{LoggedRequest, first_line};
use crate::config::LogFormat;
use crate::finish::{Finished, Subject};

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
    let (method, target) = (Quoted(&request.method), Quoted(&request.target));
    let summary = &finished.summary;
    let (status, length) = (summary.status, OrDash(summary.length));
    let host = match format {
        LogFormat::RealIp => request.real_ip.as_deref().unwrap_or(finished.peer),
        _ => finished.peer,
    };
    // Without a proxy, the client chooses this text. It may be one word only.
    let host = Quoted(host.split_whitespace().next().unwrap_or("-"));
    if format == LogFormat::Verbose {
        // Writing to a string cannot fail.
        let _: fmt::Result = write!(out, "{host} {method} {target} {status} {length}");
        return end_verbose_line(out, finished);
    }
    let user = finished.user.map(without_secrets);
    let user = OrDash(user.as_deref().map(QuotedWord));
    let time = &finished.clock.log_time;
    let version = if request.is_http10 { "1.0" } else { "1.1" };
    let _: fmt::Result = write!(
        out,
        "{host} - {user} [{time}] \"{method} {target} HTTP/{version}\" {status} {length}"
    );
    let fields = [request.referer.as_deref(), request.user_agent.as_deref()];
    end_apache_line(out, format, fields);
}

/// Appends the line for bytes that are not a valid request, or for a client that was refused before
/// it has sent any. Instead of the request it has the beginning of the first line.
fn write_refusal(out: &mut String, format: LogFormat, bytes: &[u8], finished: &Finished<'_>) {
    let line = match first_line(bytes) {
        line if line.is_empty() => Cow::Borrowed("-"),
        line => line,
    };
    let summary = &finished.summary;
    let peer = Quoted(finished.peer);
    let (status, length) = (summary.status, summary.length.unwrap_or_default());
    if format == LogFormat::Verbose {
        // The fields of this format are single words.
        let line = line.replace(' ', "%20");
        let line = Quoted(&line);
        let _: fmt::Result = write!(out, "{peer} - {line} {status} {length}");
        return end_verbose_line(out, finished);
    }
    let time = &finished.clock.log_time;
    let line = Quoted(&line);
    let _: fmt::Result = write!(out, "{peer} - - [{time}] \"{line}\" {status} {length}");
    end_apache_line(out, format, [None, None]);
}

/// Ends a line with the time taken, and the reason and the user of a refusal.
fn end_verbose_line(out: &mut String, finished: &Finished<'_>) {
    let summary = &finished.summary;
    let _: fmt::Result = write!(out, " {:?}", summary.elapsed);
    if let Some(refusal) = summary.refusal {
        let _: fmt::Result = write!(out, " {}", refusal.name());
        if let Some(user) = finished.user {
            let _: fmt::Result = write!(out, " {}", QuotedWord(&without_secrets(user)));
        }
    }
    out.push('\n');
}

/// Ends a line of Apache. All of its formats but the common one have two more fields.
fn end_apache_line(out: &mut String, format: LogFormat, fields: [Option<&str>; 2]) {
    if format != LogFormat::Common {
        let [referer, user_agent] = fields.map(|field| OrDash(field.map(Quoted)));
        let _: fmt::Result = write!(out, " \"{referer}\" \"{user_agent}\"");
    }
    out.push('\n');
}

/// A field, or a dash if it is absent.
struct OrDash<T>(Option<T>);

impl<T: Display> Display for OrDash<T> {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Some(field) => field.fmt(out),
            None => out.write_char('-'),
        }
    }
}
