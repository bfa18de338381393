//! `cargo xtask count`: counts the hand-written lines of code and the words that STYLE.md retires.
//!
//! A line counts as code if it is neither blank nor a comment. The count leaves out tests,
//! benchmarks, generated files, floe-testkit, xtask and `bench/`: the rest is the product.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context as _, Result};

use crate::Outcome;
use crate::check::code::{self, PieceKind};
use crate::check::prose;
use crate::generate::GENERATED;

#[derive(Default)]
struct Lines {
    files: usize,
    code: usize,
    comment: usize,
}

pub(crate) fn command(root: &Path, arguments: &[String]) -> Result<Outcome> {
    if let Some(argument) = arguments.first() {
        return Ok(Outcome::Usage(format!(
            "count takes no argument `{argument}`"
        )));
    }
    let mut parts: BTreeMap<String, Lines> = BTreeMap::new();
    let mut words: BTreeMap<&'static str, usize> = BTreeMap::new();
    let mut openings = 0;
    for file in crate::check::files(root)? {
        let bytes = std::fs::read(root.join(&file)).with_context(|| format!("reading {file}"))?;
        let Ok(text) = String::from_utf8(bytes) else {
            continue;
        };
        if is_product(&file, &text) {
            parts.entry(part(&file)).or_default().add(&text);
        }
        if prose::is_judged(&file) {
            for paragraph in prose::paragraphs(&file, &text) {
                for (word, count) in prose::pronouns(&paragraph.text) {
                    *words.entry(word).or_default() += count;
                }
                openings += prose::relative_openings(&paragraph.text).len();
            }
        }
    }
    print(&parts, &words, openings);
    Ok(Outcome::Good)
}

fn print(parts: &BTreeMap<String, Lines>, words: &BTreeMap<&str, usize>, openings: usize) {
    println!("{:<24} {:>6} {:>8} {:>8}", "", "files", "code", "comment");
    let mut total = Lines::default();
    for (name, lines) in parts {
        println!(
            "{name:<24} {:>6} {:>8} {:>8}",
            lines.files, lines.code, lines.comment
        );
        total.files += lines.files;
        total.code += lines.code;
        total.comment += lines.comment;
    }
    println!(
        "{:<24} {:>6} {:>8} {:>8}",
        "total", total.files, total.code, total.comment
    );
    for (word, count) in words {
        println!("{word:<24} {count:>6}");
    }
    println!(
        "{:<24} {:>6}",
        "pronouns in all",
        words.values().sum::<usize>()
    );
    println!("{:<24} {openings:>6}", "relative openings");
}

impl Lines {
    fn add(&mut self, text: &str) {
        let (code, comment) = count(text);
        self.files += 1;
        self.code += code;
        self.comment += comment;
    }
}

/// Counts the lines that hold code, and those that hold nothing but a comment. Items behind
/// `#[cfg(test)]` are left out of the first.
fn count(text: &str) -> (usize, usize) {
    let pieces = code::pieces(text);
    let mut is_code = vec![false; text.lines().count() + 2];
    let mut is_comment = is_code.clone();
    for piece in code::without_tests(&pieces) {
        let lines = piece.line..=piece.line + piece.text.matches('\n').count();
        let kind = match piece.kind {
            PieceKind::Comment => &mut is_comment,
            PieceKind::Code | PieceKind::Text | PieceKind::Quote => &mut is_code,
        };
        kind[lines].fill(true);
    }
    let code = is_code.iter().filter(|is_code| **is_code).count();
    let both = is_code.iter().zip(&is_comment);
    (
        code,
        both.filter(|(code, comment)| !**code && **comment).count(),
    )
}

/// Hand-written sources of the product: the crates and the bindings.
fn is_product(file: &str, text: &str) -> bool {
    let is_source = [".rs", ".h", ".hpp"].iter().any(|end| file.ends_with(end));
    let is_ours = file.starts_with("crates/") || file.starts_with("bindings/");
    let left_out = file.split('/').any(|part| {
        matches!(
            part,
            "tests" | "tests.rs" | "benches" | "xtask" | "floe-testkit"
        )
    });
    let head = text.lines().take(3).collect::<String>();
    is_source && is_ours && !left_out && !head.contains(GENERATED)
}

fn part(file: &str) -> String {
    let mut parts = file.split('/');
    match (parts.next(), parts.next()) {
        (Some("crates"), Some(name)) => name.into(),
        (first, _) => first.unwrap_or_default().into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn count_separates_code_comments_and_tests() {
        let text =
            "//! Head.\n\nfn f() { // why\n    g(\"a\n\nb\");\n}\n#[cfg(test)]\nmod t {\n}\n";
        assert_eq!(count(text), (5, 1));
    }

    #[test]
    fn product_excludes_tests_benches_and_generated_files() {
        assert!(is_product("crates/floe-cli/src/main.rs", ""));
        assert!(is_product("bindings/cpp/floe/floe.hpp", ""));
        for file in [
            "crates/floe-cli/tests/it/main.rs",
            "crates/floe-cli/src/config/tests.rs",
            "crates/floe-ffi/benches/call.rs",
            "crates/xtask/src/main.rs",
            "fuzz/src/lib.rs",
        ] {
            assert!(!is_product(file, ""), "{file}");
        }
        let generated = format!("// {GENERATED} x");
        assert!(!is_product("crates/a/src/g.rs", &generated));
    }
}
