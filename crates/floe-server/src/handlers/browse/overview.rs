//! `/browse`: the size of the store, the traffic, and a search.

use std::time::SystemTime;

use floe_format::Size;
use floe_store::StoreError;
use percent_encoding::percent_decode_str;

use super::{LISTED_MAX, fact, head, links};
use crate::caches::narinfo_cache::StoreSession;
use crate::context::Context;
use crate::html::{self, escaped};
use crate::metrics::{DAY, HOUR, Traffic};

/// Returns the page about the store.
pub(super) fn page(context: &Context, session: &mut StoreSession) -> Result<String, StoreError> {
    let totals = session.store.totals()?;
    let mut body = head(context, "Store", "");
    body.push_str("<dl>\n");
    let dir = escaped(context.layout.store_dir.as_str());
    body.push_str(&fact("Store directory", format!("<code>{dir}</code>")));
    body.push_str(&fact("Paths", totals.paths));
    body.push_str(&fact("Size of their NARs", Size(totals.nar_bytes)));
    let metrics = &context.metrics;
    body.push_str(&traffic_fact("Last hour", metrics.traffic_within(HOUR)));
    body.push_str(&traffic_fact("Last 24 hours", metrics.traffic_within(DAY)));
    let since = match metrics.start() {
        Some(start) => {
            let start = httpdate::fmt_http_date(SystemTime::UNIX_EPOCH + start);
            format!("Since {start}")
        }
        None => "Since the start".into(),
    };
    body.push_str(&traffic_fact(&since, metrics.traffic()));
    body.push_str("</dl>\n");
    Ok(html::page("Store", &body))
}

fn traffic_fact(time: &str, traffic: Traffic) -> String {
    let (requests, sent) = (traffic.requests, Size(traffic.sent_bytes));
    let requests = match requests {
        1 => "1 request".to_owned(),
        number => format!("{number} requests"),
    };
    fact(time, format!("{requests}, {sent} sent"))
}

/// Returns the page with the paths whose names have a text, as a form has encoded it.
pub(super) fn search_page(
    context: &Context,
    session: &mut StoreSession,
    text: &str,
) -> Result<String, StoreError> {
    let text = text.replace('+', " ");
    let text = percent_decode_str(&text).decode_utf8_lossy();
    let text = text.trim();
    if text.is_empty() {
        return page(context, session);
    }
    let found = session
        .store
        .find_paths(wanted(context, text), LISTED_MAX + 1)?;
    let mut body = head(context, "Search", text);
    let shown = found.iter().take(LISTED_MAX);
    let words = match found.len() {
        0 => "No path has this text in its name.".into(),
        1 => "1 path".into(),
        more if more > LISTED_MAX => format!("The first {LISTED_MAX} paths"),
        some => format!("{some} paths"),
    };
    body.push_str(&format!("<p role=\"status\">{words}</p>\n"));
    if !found.is_empty() {
        body.push_str(&links(context, shown));
    }
    Ok(html::page(&format!("{text} – Search"), &body))
}

/// Returns the part of a text that a base name may have: that of a path, for a file in it.
fn wanted<'t>(context: &Context, text: &'t str) -> &'t str {
    let dir = context.layout.store_dir.as_str();
    match text
        .strip_prefix(dir)
        .and_then(|rest| rest.strip_prefix('/'))
    {
        Some(rest) => rest.split('/').next().unwrap_or(rest),
        None => text,
    }
}
