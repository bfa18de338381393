//! Finds the prose of the repository (comments, string literals, documents) and judges its words.
//!
//! Inline code in backquotes and fenced code blocks are not prose. STYLE.md says which words are
//! retired and why.

use super::code::{self, Piece, PieceKind};

/// A paragraph of prose on one line, without inline code.
#[derive(Debug, PartialEq)]
pub(crate) struct Paragraph {
    /// The line on which the paragraph begins, counted from 1.
    pub(crate) line: usize,
    pub(crate) text: String,
}

/// Pronouns that stand where the name of an actor belongs. The search ignores case.
pub(crate) const PRONOUNS: &[&str] = &["nobody", "somebody", "anybody", "whoever"];

/// Words that open a sentence with a relative clause.
const OPENERS: &[&str] = &["What", "Who", "Whoever", "That"];

/// Returns the prose of one file: of Rust and C sources their comments and strings, of Markdown
/// files their text, and of scripts and manifests their `#` comments. Other files have none.
pub(crate) fn paragraphs(file: &str, text: &str) -> Vec<Paragraph> {
    let extension = file.rsplit_once('.').map_or("", |(_, extension)| extension);
    match extension {
        "rs" | "c" | "h" | "hpp" | "cpp" | "cddl" => of_source(text),
        "md" => of_markdown(text.lines().enumerate().map(|(at, line)| (at + 1, line))),
        "toml" | "sh" | "py" | "messages" => of_markdown(hash_comments(text)),
        "" if text.starts_with("#!") => of_markdown(hash_comments(text)),
        _ => Vec::new(),
    }
}

/// The files whose prose counts. The change log names retired words to say what replaced them.
pub(crate) fn is_judged(file: &str) -> bool {
    let names_words = [
        "CHANGELOG.md",
        "STYLE.md",
        "crates/xtask/src/check/prose.rs",
    ];
    !names_words.contains(&file)
        && file != "crates/xtask/src/check/retired.rs"
        && !file.starts_with("fuzz/corpus/")
        && !file.contains("/vectors/")
}

/// Counts how often the paragraph uses each of [`PRONOUNS`] and, last, the words `That of`.
pub(crate) fn pronouns(text: &str) -> Vec<(&'static str, usize)> {
    // A single word in a string is a value, such as the user `nobody`.
    let is_prose = text.contains(' ');
    let lower = if is_prose {
        text.to_lowercase()
    } else {
        String::new()
    };
    let words = || lower.split(|c: char| !c.is_alphanumeric() && c != '_');
    let mut found: Vec<_> = PRONOUNS
        .iter()
        .map(|&pronoun| (pronoun, words().filter(|word| *word == pronoun).count()))
        .collect();
    found.push(("That of", text.matches("That of ").count()));
    found
}

/// Returns the sentences that open with a relative clause and are not questions.
pub(crate) fn relative_openings(text: &str) -> Vec<&str> {
    sentences(text)
        .into_iter()
        .filter(|sentence| {
            let first = sentence.split(|c: char| !c.is_alphabetic()).next();
            OPENERS.contains(&first.unwrap_or("")) && !sentence.ends_with('?')
        })
        .collect()
}

/// A sentence ends with `.`, `!`, `?` or `:` before a space and a capital letter.
fn sentences(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut start = 0;
    for (at, end) in text.match_indices(['.', '!', '?', ':']) {
        let rest = &text[at + end.len()..];
        let next = rest.trim_start();
        if rest.starts_with(' ') && next.starts_with(char::is_uppercase) {
            found.push(text[start..at + end.len()].trim());
            start = text.len() - next.len();
        }
    }
    found.push(text[start..].trim());
    found
}

fn of_source(text: &str) -> Vec<Paragraph> {
    let pieces = code::pieces(text);
    let comments = pieces
        .iter()
        .filter(|piece| piece.kind == PieceKind::Comment)
        .flat_map(comment_lines);
    let mut found = of_markdown(comments);
    let strings = pieces.iter().filter(|piece| piece.kind == PieceKind::Text);
    for piece in strings {
        let content = piece.text.trim_start_matches(['r', 'b', 'c', '#']);
        let joined = content.replace("\\n", "\n").replace("\\\n", "");
        found.extend(of_markdown(
            joined
                .trim_matches(['"', '#'])
                .lines()
                .map(|line| (piece.line, line)),
        ));
    }
    found
}

/// The lines of a comment without their markers.
fn comment_lines<'a>(piece: &Piece<'a>) -> impl Iterator<Item = (usize, &'a str)> {
    let first = piece.line;
    piece.text.lines().enumerate().map(move |(at, line)| {
        let line = line.trim().trim_end_matches("*/");
        (first + at, line.trim_start_matches(['/', '*', '!']))
    })
}

/// The comments of a language whose comments begin with `#`.
fn hash_comments(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines().enumerate().filter_map(|(at, line)| {
        let comment = line.trim_start().strip_prefix('#')?;
        (!comment.starts_with('!')).then_some((at + 1, comment))
    })
}

/// Joins lines to paragraphs. An empty line, a gap in the numbers, a list item, a heading or the
/// cell of a table begins a new one.
fn of_markdown<'a>(lines: impl Iterator<Item = (usize, &'a str)>) -> Vec<Paragraph> {
    let mut found: Vec<Paragraph> = Vec::new();
    let mut is_open = false;
    let mut is_fenced = false;
    let mut last = 0;
    for (number, line) in lines {
        let line = line.trim();
        if line.starts_with("```") {
            is_fenced = !is_fenced;
            is_open = false;
            continue;
        }
        if is_fenced {
            continue;
        }
        is_open &= number <= last + 1;
        last = number;
        let (is_new, line) = without_marker(line);
        if line.is_empty() {
            is_open = false;
        }
        for (at, cell) in line.split(" | ").enumerate() {
            let cell = cell.trim_matches(['|', ' ', '*', '"']);
            match found.last_mut() {
                Some(paragraph) if is_open && !is_new && at == 0 => {
                    paragraph.text.push(' ');
                    paragraph.text += cell;
                }
                _ if !cell.is_empty() => found.push(Paragraph {
                    line: number,
                    text: cell.into(),
                }),
                _ => {}
            }
            is_open = !line.is_empty() && !line.starts_with('|');
        }
    }
    for paragraph in &mut found {
        paragraph.text = without_inline_code(&paragraph.text);
    }
    found
}

/// Whether a line begins a list item or a heading, and the line without that marker.
fn without_marker(line: &str) -> (bool, &str) {
    for marker in ["- ", "* ", "# ", "## ", "### ", "> "] {
        if let Some(rest) = line.strip_prefix(marker) {
            return (true, rest);
        }
    }
    let number = line.trim_start_matches(|c: char| c.is_ascii_digit());
    match number.strip_prefix(". ") {
        Some(rest) if number.len() < line.len() => (true, rest),
        _ => (false, line),
    }
}

/// Inline code becomes `…`, which no rule looks for.
fn without_inline_code(text: &str) -> String {
    let parts: Vec<&str> = text.split('`').collect();
    let replaced = parts
        .iter()
        .enumerate()
        .map(|(at, part)| if at % 2 == 1 { "…" } else { part });
    replaced.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(file: &str, text: &str) -> Vec<String> {
        let paragraphs = paragraphs(file, text).into_iter();
        paragraphs.map(|paragraph| paragraph.text).collect()
    }

    #[test]
    fn source_prose_is_comments_and_strings() {
        let text = "//! One\n//! two.\n//!\n//! Three.\n\nfn f() { g(\"four `five`\") } // six\n";
        assert_eq!(texts("a.rs", text), ["One two.", "Three.", "six", "four …"]);
        assert_eq!(texts("a.rs", "let nobody = 1;"), [""; 0]);
    }

    #[test]
    fn markdown_prose_excludes_code_and_divides_cells() {
        let text = "# Head\n\nA `b`\nc.\n- item\n- next\n```\ncode\n```\n| x | What y |\n";
        assert_eq!(
            texts("a.md", text),
            ["Head", "A … c.", "item", "next", "x", "What y"]
        );
    }

    #[test]
    fn script_prose_is_hash_comments() {
        assert_eq!(texts("a.toml", "# Why.\nx = 1\n# Next."), ["Why.", "Next."]);
        assert_eq!(texts("run", "#!/bin/sh\n# Why.\n").last().unwrap(), "Why.");
    }

    #[test]
    fn pronouns_are_whole_words_in_any_case() {
        let count = |text| -> usize { pronouns(text).iter().map(|(_, count)| count).sum() };
        assert_eq!(count("Nobody asks; somebody's whoever. That of us."), 4);
        assert_eq!(count("nobodyx that of"), 0);
    }

    #[test]
    fn relative_openings_are_statements_only() {
        assert_eq!(relative_openings("Good. What is new. Who asks?").len(), 1);
        assert_eq!(
            relative_openings("Whatever comes. It is what it is."),
            [""; 0]
        );
        assert_eq!(
            relative_openings("That is read first"),
            ["That is read first"]
        );
    }
}
