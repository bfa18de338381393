//! `/browse/HASH`: a path, its relations and its files.

use std::time::{Duration, SystemTime};

use floe_format::{HashPart, PathInfo, Size, StorePath};
use floe_store::StoreError;

use super::{LISTED_MAX, fact, head, links};
use crate::caches::narinfo_cache::StoreSession;
use crate::context::Context;
use crate::html::{self, escaped};

/// Returns the page of a path; `None` if there is no such path.
pub(super) fn page(
    context: &Context,
    session: &mut StoreSession,
    part: HashPart,
) -> Result<Option<String>, StoreError> {
    let Some((narinfo, _)) = context.narinfos.get(session, part)? else {
        return Ok(None);
    };
    // With the signatures of the server.
    let signed = context.narinfos.narinfo(part, &narinfo.info).info;
    let (path, info) = (&signed.path, &signed);
    let (referrer_count, referrers) = session.store.first_referrers(path, LISTED_MAX)?;
    let closure = session.store.closure_totals(path)?;
    let mut body = head(context, path.name(), "");
    let full_path = escaped(&context.layout.store_dir.full_path(path));
    body.push_str(&format!("<pre><code>{full_path}</code></pre>\n<dl>\n"));
    body.push_str(&fact("Size of the NAR", Size(info.nar_size)));
    let closure = format!("{} in {} paths", Size(closure.nar_bytes), closure.paths);
    body.push_str(&fact("Closure", closure));
    body.push_str(&fact("Contents", contents_links(context, part)));
    body.push_str(&facts(context, session, info));
    body.push_str("</dl>\n");
    let references: Vec<&StorePath> = info.references.iter().filter(|it| *it != path).collect();
    let count = references.len() as u64;
    body.push_str(&list(context, "References", (count, references)));
    let referrers = (referrer_count, referrers.iter().collect());
    body.push_str(&list(context, "Referrers", referrers));
    Ok(Some(html::page(path.name(), &body)))
}

fn contents_links(context: &Context, part: HashPart) -> String {
    let prefix = escaped(&context.prefix);
    format!(
        "<a href=\"{prefix}/serve/{part}/\">files</a>, \
         <a href=\"{prefix}/{part}.narinfo\">narinfo</a>, \
         <a href=\"{prefix}/{part}.ls\">listing</a>"
    )
}

/// The facts that not every path has, and its hash.
fn facts(context: &Context, session: &StoreSession, info: &PathInfo) -> String {
    let mut facts = String::new();
    if let Some(deriver) = &info.deriver {
        let name = escaped(deriver.as_str());
        let prefix = escaped(&context.prefix);
        let link = if has_row(session, deriver) {
            format!(
                "<a href=\"{prefix}/browse/{}\">{name}</a>",
                deriver.hash_part()
            )
        } else {
            name
        };
        let log = format!(
            "<a href=\"{prefix}/log/{}\">log</a>",
            escaped(deriver.as_str())
        );
        facts.push_str(&fact("Deriver", format!("{link}, {log}")));
    }
    if let Some(time) = info.registration_time.filter(|time| *time > 0) {
        let time = SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(time));
        // The library has no years after 9999.
        let known = time.filter(|time| *time < SystemTime::UNIX_EPOCH + YEAR_9999);
        let text = known.map(httpdate::fmt_http_date);
        facts.push_str(
            &text
                .map(|text| fact("Registered", text))
                .unwrap_or_default(),
        );
    }
    let hash = format!("<code>{}</code>", info.nar_hash.to_nix32());
    facts.push_str(&fact("NAR hash", hash));
    if let Some(ca) = &info.ca {
        let ca = escaped(&ca.to_string());
        facts.push_str(&fact("Content address", format!("<code>{ca}</code>")));
    }
    let signatures: Vec<String> = info
        .signatures
        .iter()
        .map(|signature| format!("<code>{}</code>", escaped(&signature.to_string())))
        .collect();
    let signatures = match &signatures[..] {
        [] => "none".into(),
        some => some.join("<br>"),
    };
    facts.push_str(&fact("Signatures", signatures));
    facts
}

/// A list of the first of some paths under a heading with their number.
fn list(context: &Context, title: &str, (count, paths): (u64, Vec<&StorePath>)) -> String {
    let mut html = format!("<h2>{title} ({count})</h2>\n");
    if count == 0 {
        html.push_str("<p>None.</p>\n");
        return html;
    }
    let shown = paths.len().min(LISTED_MAX) as u64;
    html.push_str(&links(context, paths.into_iter().take(LISTED_MAX)));
    if count > shown {
        html.push_str(&format!("<p>{} more are not shown.</p>\n", count - shown));
    }
    html
}

/// The beginning of the year 9999.
const YEAR_9999: Duration = Duration::from_secs(253_370_764_800);

/// Whether a path is valid. Its own page tells of a damaged row.
fn has_row(session: &StoreSession, path: &StorePath) -> bool {
    let found = session.store.path_info(path);
    found.is_ok_and(|found| found.is_some())
}
