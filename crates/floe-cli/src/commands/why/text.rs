//! The answer as text.

use std::fmt::Write as _;

use floe_copy::{SourceReply, SourceResult};
use floe_format::{PathInfo, StorePath};
use floe_transfer::Size;

use super::closure::InstallClosure;
use super::trust::SignatureState;
use super::{Explanation, Keeper};
use crate::messages::{counted, escaped};
use crate::stdout::print;
use crate::times;

pub(super) fn print_text(explanation: &Explanation<'_>) -> anyhow::Result<()> {
    let texts = explanation
        .paths
        .iter()
        .map(|path| explain(explanation, path));
    let texts = texts.collect::<anyhow::Result<Vec<_>>>()?;
    print(texts.join("\n"))
}

/// Returns the lines about a requested path.
fn explain(explanation: &Explanation<'_>, path: &StorePath) -> anyhow::Result<String> {
    let Explanation {
        dir,
        found,
        store: (_, store),
        ..
    } = explanation;
    let mut text = format!("{}\n", dir.full_path(path));
    let Some(availability) = found.get(path) else {
        return Ok(text);
    };
    if availability.registered.is_some() {
        let kept = match explanation.keepers(path)? {
            Some(keepers) => kept_by(explanation, keepers),
            None => "it is valid".into(),
        };
        line(&mut text, 1, format_args!("{store}: {kept}"));
    } else {
        line(&mut text, 1, format_args!("{store}: it is not valid"));
    }
    for (source, reply) in explanation.sources.list.iter().zip(&availability.replies) {
        add_reply(&mut text, explanation, (&source.name(), reply));
    }
    if explanation.sources.list.is_empty() {
        line(&mut text, 1, "no cache can be asked");
    }
    let closure = InstallClosure::of(path, found);
    let is_complete = closure.missing.is_empty() && closure.to_fetch == 0;
    let is_known = availability.registered.is_some() || availability.narinfo().is_some();
    if is_known && (availability.registered.is_none() || !is_complete) {
        add_closure(&mut text, explanation, (path, &closure));
    }
    text.truncate(text.trim_end().len());
    Ok(text)
}

/// Adds a line that is indented by two spaces for each level.
fn line(text: &mut String, level: usize, content: impl std::fmt::Display) {
    // Writing to a string cannot fail. A cache chooses some of the contents.
    let _: std::fmt::Result = writeln!(
        text,
        "{:indent$}{}",
        "",
        escaped(content),
        indent = 2 * level
    );
}

fn kept_by(explanation: &Explanation<'_>, keepers: Vec<Keeper>) -> String {
    let Some(first) = keepers.first() else {
        return "it is valid, and no root keeps it: the next floe gc deletes it".into();
    };
    let dir = explanation.dir;
    let path = dir.full_path(&first.root.path);
    let place = first.root.place.describe_use(&path);
    let place = place.unwrap_or_else(|| first.root.place.to_string());
    let through = match first.chain.len() {
        0 | 1 => String::new(),
        _ => format!(" through {path}"),
    };
    let others = match keepers.len() {
        1 => String::new(),
        count => format!(
            " and {} (floe roots --why)",
            counted(count - 1, "other root")
        ),
    };
    format!("it is valid, kept by {place}{through}{others}")
}

fn add_reply(
    text: &mut String,
    explanation: &Explanation<'_>,
    (name, reply): (&str, &SourceReply),
) {
    let verdict = match &reply.result {
        SourceResult::Usable => "it has the path".to_owned(),
        SourceResult::Absent => "it does not have the path".to_owned(),
        SourceResult::Refused(error) => error.to_string(),
    };
    let sizes = reply.narinfo.as_ref().map(|narinfo| {
        let nar = Size(narinfo.info.nar_size);
        match narinfo.download_size() {
            Some(file) => format!(", {} to fetch and {nar} unpacked", Size(file)),
            None => format!(", {nar} unpacked"),
        }
    });
    let sizes = sizes.filter(|_| matches!(reply.result, SourceResult::Usable));
    line(
        text,
        1,
        format_args!("{name}: {verdict}{}", sizes.unwrap_or_default()),
    );
    if let Some(remembered) = reply.remembered {
        let what = if remembered.has_path { "has" } else { "lacks" };
        let at = times::date_and_time(remembered.at);
        let fix = "floe why --refresh asks again";
        line(
            text,
            2,
            format_args!("remembered since {at} that it {what} the path; {fix}"),
        );
    }
    let narinfo = reply.narinfo.as_ref();
    let signatures = narinfo.map(|it| explanation.trust.signatures(it, explanation.dir));
    for signature in signatures.into_iter().flatten() {
        let key = &signature.key;
        let state = match signature.state {
            SignatureState::Trusted(origin) => format!("trusted by {origin}"),
            SignatureState::Unknown => "not trusted".into(),
            SignatureState::Wrong => "wrong: the trusted key of this name did not make it".into(),
        };
        line(text, 2, format_args!("signed by {key}: {state}"));
    }
    let is_addressed =
        |info: &PathInfo| info.matches_content_address(explanation.dir) == Some(true);
    let info = narinfo.map(|it| &it.info).filter(|info| is_addressed(info));
    if let Some(ca) = info.and_then(|info| info.ca) {
        line(
            text,
            2,
            format_args!("content address {ca}, which needs no signature"),
        );
    }
}

fn add_closure(
    text: &mut String,
    explanation: &Explanation<'_>,
    (root, closure): (&StorePath, &InstallClosure<'_>),
) {
    let (paths, valid) = (counted(closure.to_fetch, "path"), closure.valid);
    let (file, nar) = (Size(closure.download_bytes), Size(closure.nar_bytes));
    line(
        text,
        1,
        format_args!("closure: {paths} to fetch ({file}, {nar} unpacked), {valid} valid"),
    );
    let missing: Vec<_> = closure
        .missing
        .iter()
        .filter(|(path, _)| *path != root)
        .collect();
    for (index, (path, availability)) in missing.iter().take(MISSING_SHOWN).enumerate() {
        let path = explanation.dir.full_path(path);
        let referrer = availability.referrer.as_ref();
        let referrer = referrer.map_or("", |referrer| referrer.as_str());
        line(
            text,
            2,
            format_args!("missing: {path}, which {referrer} needs"),
        );
        // Caches mostly refuse all paths for the same reason.
        let replies = explanation.sources.list.iter().zip(&availability.replies);
        for (source, reply) in replies.filter(|_| index == 0) {
            if let SourceResult::Refused(error) = &reply.result {
                line(text, 3, format_args!("{}: {error}", source.name()));
            }
        }
    }
    if let Some(others) = missing
        .len()
        .checked_sub(MISSING_SHOWN)
        .filter(|it| *it > 0)
    {
        let others = counted(others, "other path");
        line(
            text,
            2,
            format_args!("missing: {others}, which --json lists"),
        );
    }
}

/// More lines hide the others.
const MISSING_SHOWN: usize = 5;
