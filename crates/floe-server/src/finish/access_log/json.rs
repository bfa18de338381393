//! The lines of the access log in JSON: one object a line. docs/operating.md lists the fields.

use super::secrets::without_secrets;
use std::fmt::{Display, Write as _};

use super::escape::JsonText;
use super::{LoggedRequest, RequestId, first_line};
use crate::finish::{Finished, Subject};
use crate::http::response::CacheUse;

/// Appends the line for a response. Unknown fields are absent.
pub(super) fn write_line(out: &mut String, id: RequestId, finished: &Finished<'_>) {
    let mut line = Line { out };
    line.begin(&finished.clock.utc_time, id);
    // A client on a Unix socket has no address.
    line.text(
        "remoteAddress",
        Some(finished.peer).filter(|peer| *peer != "-"),
    );
    line.text("user", finished.user.map(without_secrets).as_deref());
    match finished.request {
        Subject::Parsed(request) => line.request(&LoggedRequest::new(request)),
        Subject::Deferred(Some(request)) => line.request(request),
        Subject::Deferred(None) => {}
        Subject::Invalid(bytes) => {
            let text = first_line(bytes);
            line.text("requestLine", Some(&*text).filter(|text| !text.is_empty()));
        }
    }
    let summary = &finished.summary;
    line.number("status", summary.status);
    if let Some(length) = summary.length {
        line.number("bytes", length);
    }
    line.number("durationMicros", summary.elapsed.as_micros());
    line.text("cache", summary.cache.map(|(_, cache)| name(cache)));
    line.text("reason", summary.refusal.map(|refusal| refusal.name()));
    line.out.push_str("}\n");
}

fn name(cache: CacheUse) -> &'static str {
    match cache {
        CacheUse::Hit => "hit",
        CacheUse::Miss => "miss",
    }
}

/// A line with the fields so far.
struct Line<'o> {
    out: &'o mut String,
}

impl Line<'_> {
    fn begin(&mut self, time: &str, id: RequestId) {
        // Writing to a string cannot fail.
        let _: std::fmt::Result = write!(self.out, "{{\"time\":\"{time}\",\"requestId\":\"{id}\"");
    }

    fn request(&mut self, request: &LoggedRequest<'_>) {
        self.text("realIp", request.real_ip.as_deref());
        self.text("method", Some(&request.method));
        self.text("target", Some(&request.target));
        self.text("userAgent", request.user_agent.as_deref());
    }

    fn text(&mut self, name: &str, value: Option<&str>) {
        if let Some(value) = value {
            let value = JsonText(value);
            let _: std::fmt::Result = write!(self.out, ",\"{name}\":\"{value}\"");
        }
    }

    fn number(&mut self, name: &str, value: impl Display) {
        let _: std::fmt::Result = write!(self.out, ",\"{name}\":{value}");
    }
}
