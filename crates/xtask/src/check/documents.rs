//! Rules about everything that is not Rust: the map of the house, the change log, stray blobs
//! and the traces of one developer's machine.

use std::collections::BTreeSet;

use super::Fault;

/// Anything larger is made by a script, not kept in history for ever.
const BLOB_BYTES_MAX: usize = 200 * 1024;

/// Places that exist on one machine only. Put together here so that this file does not hold them.
const MACHINE_PATHS: &[&str] = &[
    concat!("/wo", "rk/"),
    concat!("/fa", "rm/"),
    concat!("/ro", "ot/"),
    concat!("../sha", "red"),
];

/// Rules for one file of any kind.
pub(super) fn faults(file: &str, bytes: &[u8]) -> Vec<Fault> {
    let mut faults = Vec::new();
    if bytes.len() > BLOB_BYTES_MAX {
        let why = format!(
            "{} bytes; at most {BLOB_BYTES_MAX} in the repository",
            bytes.len()
        );
        faults.push(Fault::new(file, 0, "blob", &why));
    }
    if let Ok(text) = std::str::from_utf8(bytes) {
        for (number, line) in text.lines().enumerate() {
            for path in MACHINE_PATHS.iter().filter(|path| holds_path(line, path)) {
                let why = format!("`{path}` is a place on one machine");
                faults.push(Fault::new(file, number + 1, "machine", &why));
            }
        }
    }
    faults
}

/// Whether the path stands there by itself: `{dir}/root/x` and `https://host/work/` do not count.
fn holds_path(line: &str, path: &str) -> bool {
    line.match_indices(path).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        !path.starts_with('/')
            || !before.is_some_and(|c| c.is_alphanumeric() || "_-.}~)>*$".contains(c))
    })
}

/// CHANGELOG.md has a place for what is not yet released.
pub(super) fn changelog_faults(text: &str) -> Vec<Fault> {
    let unreleased = |line: &str| matches!(line.trim_end(), "## Unreleased" | "## [Unreleased]");
    if text.lines().any(unreleased) {
        return Vec::new();
    }
    vec![Fault::new(
        "CHANGELOG.md",
        0,
        "changelog",
        "has no section `## Unreleased`",
    )]
}

/// ARCHITECTURE.md names every crate that exists, and no crate or module that does not.
///
/// In backquotes or in a fenced block, `floe-x` is a crate and `floe-x/y` or `floe-x/y/{a,b}` are
/// modules or files of it. In a paragraph that begins with `**floe-x**`, all that is in backquotes
/// are modules or files of floe-x.
pub(super) fn architecture_faults(text: &str, files: &BTreeSet<String>) -> Vec<Fault> {
    let mut faults = Vec::new();
    let mut fault = |line, why: String| {
        faults.push(Fault::new("ARCHITECTURE.md", line, "map", &why));
    };
    let crates: BTreeSet<&str> = files
        .iter()
        .filter_map(|file| {
            file.strip_prefix("crates/")?
                .split_once('/')
                .map(|(name, _)| name)
        })
        .collect();
    for name in &crates {
        if !words(text).any(|word| word.split('/').any(|part| part == *name)) {
            fault(0, format!("does not name crates/{name}"));
        }
    }
    for (line, name) in named_rooms(text) {
        let (room, inner) = name.split_once('/').unwrap_or((&name, ""));
        if !crates.contains(room) {
            fault(
                line,
                format!("names the crate `{room}`, which does not exist"),
            );
        } else if !inner.is_empty() && !exists(files, room, inner) {
            fault(
                line,
                format!("names `{inner}` in crates/{room}, which does not exist"),
            );
        }
    }
    faults
}

/// A module by its name under `src/`, or any file or directory of the crate.
fn exists(files: &BTreeSet<String>, room: &str, inner: &str) -> bool {
    let has = |path: String| {
        let inside = format!("{path}/");
        files.contains(&path)
            || files
                .range(inside.clone()..)
                .next()
                .is_some_and(|file| file.starts_with(&inside))
    };
    [
        format!("crates/{room}/src/{inner}.rs"),
        format!("crates/{room}/src/{inner}"),
        format!("crates/{room}/{inner}"),
    ]
    .into_iter()
    .any(has)
}

/// Every crate, module and file that the text speaks of, with its line: `crate` or `crate/inner`.
fn named_rooms(text: &str) -> Vec<(usize, String)> {
    let mut named = Vec::new();
    let mut fenced = false;
    let mut paragraph = Vec::new();
    // An empty line at the end closes the last paragraph.
    for (number, line) in text.lines().chain([""]).enumerate() {
        let fence = line.trim_start().starts_with("```");
        if fenced && !fence {
            named.extend(
                words(line)
                    .filter(|word| is_room(word))
                    .map(|word| (number + 1, word.to_string())),
            );
        } else if fence || line.trim().is_empty() {
            named.extend(quoted_rooms(&paragraph));
            paragraph.clear();
            fenced ^= fence;
        } else {
            paragraph.push((number + 1, line));
        }
    }
    named
        .into_iter()
        .flat_map(|(line, word)| expand(&word).into_iter().map(move |name| (line, name)))
        .collect()
}

/// What stands in backquotes, which may reach over line ends.
fn quoted_rooms(paragraph: &[(usize, &str)]) -> Vec<(usize, String)> {
    let opening = paragraph
        .first()
        .and_then(|(_, line)| line.strip_prefix("**"));
    let room = opening
        .and_then(|rest| rest.split_once("**"))
        .map(|(name, _)| name.trim_matches('`'));
    let mut found = Vec::new();
    let mut quoted = false;
    for (number, line) in paragraph {
        for (i, part) in line.split('`').enumerate() {
            quoted ^= i > 0;
            for word in words(part).filter(|_| quoted) {
                match room.filter(|room| is_room(room)) {
                    _ if is_room(word) => found.push((*number, word.into())),
                    Some(room) => found.push((*number, format!("{room}/{word}"))),
                    None => {}
                }
            }
        }
    }
    found
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    let within = |c: char| c.is_ascii_alphanumeric() || "-_/.{},".contains(c);
    let trim = |word: &'static str| move |c: char| word.contains(c);
    text.split(move |c: char| !within(c))
        .map(move |word| word.trim_end_matches(trim(".,/")))
        .filter(|word| !word.is_empty())
}

fn is_room(word: &str) -> bool {
    let name = word.strip_prefix("crates/").unwrap_or(word);
    name.strip_prefix("floe-")
        .is_some_and(|rest| rest.starts_with(|c: char| c.is_alphabetic()))
        || name == "xtask"
        || name.starts_with("xtask/")
}

/// `crates/a/b/{c,d}.rs` is `a/b/c.rs` and `a/b/d.rs`.
fn expand(word: &str) -> Vec<String> {
    let word = word.strip_prefix("crates/").unwrap_or(word);
    let Some((before, rest)) = word.split_once('{') else {
        return vec![word.into()];
    };
    let (group, after) = rest.split_once('}').unwrap_or((rest, ""));
    group
        .split(',')
        .filter(|name| !name.is_empty())
        .map(|name| format!("{before}{}{after}", name.trim_end_matches('/')))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(faults: Vec<Fault>) -> Vec<&'static str> {
        faults.into_iter().map(|fault| fault.rule).collect()
    }

    #[test]
    fn blobs_and_places_of_one_machine_are_refused() {
        assert_eq!(rules(faults("a", &vec![0xff; BLOB_BYTES_MAX])), [""; 0]);
        assert_eq!(
            rules(faults("a", &vec![0xff; BLOB_BYTES_MAX + 1])),
            ["blob"]
        );
        for path in MACHINE_PATHS {
            assert_eq!(
                rules(faults("a", format!("x\nin {path}main\n").as_bytes())),
                ["machine"]
            );
            assert_eq!(
                rules(faults("a", format!("\"{path}main\"").as_bytes())),
                ["machine"]
            );
        }
        for path in &MACHINE_PATHS[..3] {
            assert_eq!(
                rules(faults("a", format!("{{dir}}{path}nix").as_bytes())),
                [""; 0]
            );
            assert_eq!(
                rules(faults("a", format!("https://host{path}x").as_bytes())),
                [""; 0]
            );
        }
    }

    #[test]
    fn the_change_log_has_a_place_for_the_unreleased() {
        assert_eq!(
            rules(changelog_faults("# Changes\n\n## Unreleased\n")),
            [""; 0]
        );
        assert_eq!(rules(changelog_faults("## [Unreleased]")), [""; 0]);
        assert_eq!(
            rules(changelog_faults("# Changes\nunreleased\n## 0.1.0\n")),
            ["changelog"]
        );
    }

    fn files() -> BTreeSet<String> {
        [
            "crates/floe-store/Cargo.toml",
            "crates/floe-store/src/lib.rs",
            "crates/floe-store/src/tree/read.rs",
            "crates/floe-store/src/verify.rs",
            "crates/xtask/src/main.rs",
        ]
        .map(String::from)
        .into()
    }

    #[test]
    fn the_map_names_every_crate() {
        assert_eq!(
            architecture_faults("floe-store and crates/xtask.", &files()).len(),
            0
        );
        assert_eq!(
            architecture_faults("floe-stores and crates/xtask", &files()).len(),
            1
        );
        assert_eq!(architecture_faults("", &files()).len(), 2);
    }

    #[test]
    fn the_map_names_nothing_that_is_not_there() {
        let why = |text: &str| -> Vec<String> {
            let whole = format!("floe-store xtask\n\n{text}");
            architecture_faults(&whole, &files())
                .into_iter()
                .map(|fault| fault.why)
                .collect()
        };
        for text in [
            "`floe-store/tree/read`, `floe-store/verify.rs`, `crates/floe-store/src/lib.rs`",
            "`floe-store/{tree,verify}` and `<pid>-floe-<n>`, a floe-made store",
            "```\ncrates/\n  floe-store/   the disk\n```",
            "**floe-store**: `lib tree\nverify` and `tree/{read}`.\n\n**xtask**: `main`",
            "floe-store has a `lock`",
            "floe-later is not there yet",
        ] {
            assert_eq!(why(text), [""; 0], "{text}");
        }
        for text in [
            "`floe-later`",
            "`floe-store/lock`",
            "`floe-store/{tree,lock}`",
            "```\n  floe-later/\n```",
            "**floe-store**: `lib\nlock`",
            "\n**floe-store**: `lib`, `tree/{read,lock}`\n\nand on",
            "**xtask**: `main`\n```\na `b\n```\n\n**floe-store**: `lock`",
        ] {
            assert_eq!(why(text).len(), 1, "{text}");
        }
    }
}
