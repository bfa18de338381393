//! The problems of paths that are not in a local store.

use floe_format::StorePath;
use floe_transfer::{CacheContents, Error, ErrorKind};
use serde_json::{Value, json};

/// A problem of a path.
#[derive(Debug)]
pub(in crate::commands) struct Problem {
    /// Its kind in JSON.
    kind: &'static str,
    /// The base name of the path, or its hash part if floe does not know more.
    pub(in crate::commands) path: String,
    pub(in crate::commands) message: String,
    error_kind: ErrorKind,
}

impl Problem {
    fn new(kind: &'static str, path: &str, message: String) -> Problem {
        Problem {
            kind,
            path: path.to_owned(),
            message,
            error_kind: ErrorKind::Untrusted,
        }
    }

    /// Whether the narinfo or the NAR of the path cannot be used.
    pub(in crate::commands) fn is_of_objects(&self) -> bool {
        ["damagedNarinfo", "missingNar", "modified", "notValid"].contains(&self.kind)
    }

    pub(in crate::commands) fn to_json(&self) -> Value {
        json!({ "kind": self.kind, "path": self.path, "message": self.message })
    }
}

impl From<&Error> for Problem {
    fn from(error: &Error) -> Problem {
        let kind = match error {
            Error::NotFound { .. } => "notValid",
            Error::Untrusted { .. } | Error::TooFewSignatures { .. } => "untrusted",
            Error::Mismatch { .. } | Error::Decode { .. } | Error::InvalidNar { .. } => "modified",
            error if error.kind() == ErrorKind::Untrusted => "damagedNarinfo",
            _ => "unreadable",
        };
        let message = match error {
            // These are the words of a copy.
            Error::Nar { path, source } => format!("cannot verify {path}: {source}"),
            Error::Untrusted {
                path, signed_by, ..
            } => {
                let signers = match &**signed_by {
                    [] => "it has no signature".into(),
                    names => format!("only {} signed it", names.join(" and ")),
                };
                format!("no trusted key has signed {path}: {signers}")
            }
            error => error.to_string(),
        };
        Problem {
            kind,
            path: path_of(error),
            message,
            error_kind: error.kind(),
        }
    }
}

/// Returns the base name of the path of an error, or the hash part in the URL of a narinfo.
fn path_of(error: &Error) -> String {
    let of_url = || {
        let (_, name) = error.url()?.rsplit_once('/')?;
        name.strip_suffix(".narinfo")
    };
    let name = error.path_name().or_else(of_url);
    name.unwrap_or_default().to_owned()
}

/// Returns the problems that the narinfos of a cache and its lists show.
pub(in crate::commands) fn of_contents(contents: &CacheContents) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (name, reason) in &contents.unusable {
        let part = name.trim_end_matches(".narinfo");
        let message = format!("cannot use {name}: {reason}");
        problems.push(Problem::new("damagedNarinfo", part, message));
    }
    for (name, reason) in &contents.unreadable {
        let part = name.trim_end_matches(".narinfo");
        let message = format!("cannot use {name}: {reason}");
        problems.push(Problem::new("unreadable", part, message));
    }
    let is_unreadable = |path: &StorePath| {
        let name = format!("{}.narinfo", path.hash_part());
        contents.unreadable.contains_key(&name)
    };
    for (path, found) in &contents.narinfos {
        let mut add = |kind, reason: String| {
            let message = format!("cannot install {path}: {reason}");
            problems.push(Problem::new(kind, path.as_str(), message));
        };
        let narinfo = &found.narinfo;
        let references = narinfo.info.references.iter();
        let missing = references.filter(|it| !contents.narinfos.contains_key(*it));
        for missing in missing.filter(|it| !is_unreadable(it)) {
            add(
                "missingReference",
                format!("its reference {missing} is missing"),
            );
        }
        // A file elsewhere is not listed.
        let url = &narinfo.url;
        if !url.starts_with("nar/") {
            continue;
        }
        let lens = contents
            .nars
            .get(url)
            .map(|file| (file.len, narinfo.file_size));
        match lens {
            None => add("missingNar", format!("{url} is missing")),
            Some((Some(len), Some(expected))) if len != expected => {
                add(
                    "modified",
                    format!("{url} has {len} bytes instead of {expected}"),
                );
            }
            Some(_) => {}
        }
    }
    problems
}

/// Adds the problems that a verification has found in paths without a problem.
pub(in crate::commands) fn add(problems: &mut Vec<Problem>, errors: &[Error]) {
    add_all(problems, errors.iter().map(Problem::from));
}

/// Adds problems of paths without one.
pub(in crate::commands) fn add_all(
    problems: &mut Vec<Problem>,
    found: impl Iterator<Item = Problem>,
) {
    let is_new = |found: &Problem| {
        let same = |known: &Problem| known.path == found.path && known.kind != "missingReference";
        !problems.iter().any(same)
    };
    let found: Vec<Problem> = found.filter(is_new).collect();
    problems.extend(found);
    problems.sort_by(|a, b| a.path.cmp(&b.path));
}

/// The kind of the error of a command that has found problems: one of the contents counts more than
/// a failure of the network.
pub(in crate::commands) fn error_kind(problems: &[Problem]) -> ErrorKind {
    let mut kinds = problems.iter().map(|problem| problem.error_kind);
    if kinds.all(|kind| kind == ErrorKind::Network) {
        ErrorKind::Network
    } else {
        ErrorKind::Untrusted
    }
}
