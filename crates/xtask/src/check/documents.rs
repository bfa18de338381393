//! Rules about files of any kind: ARCHITECTURE.md, CHANGELOG.md, large files, and paths of one
//! developer's machine.

use std::collections::BTreeSet;

use super::Fault;

/// Larger files are made by a script: history keeps every version for ever.
const BLOB_BYTES_MAX: usize = 200 * 1024;

/// Paths that exist on one machine only, in pieces so that this file does not contain them.
const MACHINE_PATHS: &[&str] = &[
    concat!("/wo", "rk/"),
    concat!("/fa", "rm/"),
    concat!("/ro", "ot/"),
    concat!("../sha", "red"),
];

/// Returns the faults of one file of any kind.
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
                let why = format!("`{path}` is a path of one machine");
                faults.push(Fault::new(file, number + 1, "machine", &why));
            }
        }
    }
    faults
}

/// Whether the line has the path by itself: `{dir}/root/x` and `https://host/work/` do not count.
fn holds_path(line: &str, path: &str) -> bool {
    line.match_indices(path).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        !path.starts_with('/')
            || !before.is_some_and(|c| c.is_alphanumeric() || "_-.}~)>*$".contains(c))
    })
}

/// Checks that no line of prose in a document is too wide. Tables, code blocks and single words
/// cannot be divided.
pub(super) fn width_faults(file: &str, text: &str) -> Vec<Fault> {
    let mut is_code = false;
    let mut faults = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let words = line.trim_start();
        is_code ^= words.starts_with("```");
        let is_whole = words.starts_with('|') || !words.contains(' ');
        let width = line.chars().count();
        if !is_code && !is_whole && width > WIDTH_MAX {
            let why = format!("{width} columns; at most {WIDTH_MAX}");
            faults.push(Fault::new(file, number + 1, "width", &why));
        }
    }
    faults
}

/// The widest line of a document, in characters.
const WIDTH_MAX: usize = 110;

/// Checks that CHANGELOG.md has a section for unreleased changes.
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

/// Checks that ARCHITECTURE.md names every crate, and no crate or module that does not exist.
///
/// In backquotes or in a fenced block, `floe-x` is a crate, and `floe-x/y` or `floe-x/y/{a,b}` are
/// its modules or files. In a paragraph that begins with `**floe-x**`, all words in backquotes are
/// modules or files of floe-x.
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
    for (line, name) in named_modules(text) {
        let (package, inner) = name.split_once('/').unwrap_or((&name, ""));
        if !crates.contains(package) {
            fault(
                line,
                format!("names the crate `{package}`, which does not exist"),
            );
        } else if !inner.is_empty() && !exists(files, package, inner) {
            fault(
                line,
                format!("names `{inner}` in crates/{package}, which does not exist"),
            );
        }
    }
    faults
}

/// Whether a crate has a module below `src/`, or a file or directory, of that name.
fn exists(files: &BTreeSet<String>, package: &str, inner: &str) -> bool {
    let has = |path: String| {
        let inside = format!("{path}/");
        files.contains(&path)
            || files
                .range(inside.clone()..)
                .next()
                .is_some_and(|file| file.starts_with(&inside))
    };
    [
        format!("crates/{package}/src/{inner}.rs"),
        format!("crates/{package}/src/{inner}"),
        format!("crates/{package}/{inner}"),
    ]
    .into_iter()
    .any(has)
}

/// Returns every crate, module and file that the text names, with its line, as `crate` or
/// `crate/inner`.
fn named_modules(text: &str) -> Vec<(usize, String)> {
    let mut named = Vec::new();
    let mut fenced = false;
    let mut paragraph = Vec::new();
    // The additional empty line closes the last paragraph.
    for (number, line) in text.lines().chain([""]).enumerate() {
        let fence = line.trim_start().starts_with("```");
        if fenced && !fence {
            named.extend(
                words(line)
                    .filter(|word| is_crate_path(word))
                    .map(|word| (number + 1, word.to_string())),
            );
        } else if fence || line.trim().is_empty() {
            named.extend(quoted_modules(&paragraph));
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

/// Returns the names in backquotes, which may continue on the next line.
fn quoted_modules(paragraph: &[(usize, &str)]) -> Vec<(usize, String)> {
    let opening = paragraph
        .first()
        .and_then(|(_, line)| line.strip_prefix("**"));
    let package = opening
        .and_then(|rest| rest.split_once("**"))
        .map(|(name, _)| name.trim_matches('`'));
    let mut found = Vec::new();
    let mut quoted = false;
    for (number, line) in paragraph {
        for (i, part) in line.split('`').enumerate() {
            quoted ^= i > 0;
            for word in words(part).filter(|_| quoted) {
                match package.filter(|package| is_crate_path(package)) {
                    _ if is_crate_path(word) => found.push((*number, word.into())),
                    Some(package) => found.push((*number, format!("{package}/{word}"))),
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

fn is_crate_path(word: &str) -> bool {
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
    fn blobs_and_machine_paths_are_faults() {
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
    fn changelog_needs_an_unreleased_section() {
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
    fn architecture_names_every_crate() {
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
    fn architecture_names_only_existing_modules() {
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

    #[test]
    fn wide_prose_is_a_fault_and_tables_and_code_are_not() {
        let wide = "ä ".repeat(56);
        let lines = |text: &str| -> Vec<usize> {
            let faults = width_faults("a.md", text);
            faults.iter().map(|fault| fault.line).collect()
        };
        assert_eq!(lines(&format!("short\n{wide}x\n")), [2]);
        assert_eq!(lines(&"ä ".repeat(55)), [0; 0]);
        assert_eq!(lines(&format!("| {wide} |\n```\n{wide}x\n```\n")), [0; 0]);
        assert_eq!(lines(&"x".repeat(200)), [0; 0]);
    }
}
