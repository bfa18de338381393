//! Divides Rust sources into tokens, comments and literals.
//!
//! The rules about code look at tokens only, so a comment or a string may name what a rule forbids.
//! The rules about prose look at comments and string literals only.

/// The code that a rule looks for.
#[derive(Clone, Copy)]
pub(super) enum Pattern {
    /// A word that contains these letters, in any case.
    Letters(&'static str),
    /// `#[name` at the head of an attribute.
    Attribute(&'static str),
    /// `parent::child`, also as `parent::{…, child, …}`.
    Path(&'static str, &'static str),
    /// `.name(`
    Method(&'static str),
    /// `object.name(`
    MethodOf(&'static str, &'static str),
}

/// Returns the lines on which the pattern occurs.
pub(super) fn lines_with(tokens: &[Piece<'_>], pattern: Pattern) -> Vec<usize> {
    let text = |at: usize| tokens.get(at).map_or("", |token| token.text);
    let matches = |at: usize| match pattern {
        Pattern::Letters(letters) => text(at).to_lowercase().contains(letters),
        Pattern::Attribute(name) => text(at) == "#" && text(at + 1) == "[" && text(at + 2) == name,
        Pattern::Method(name) => text(at) == "." && text(at + 1) == name && text(at + 2) == "(",
        Pattern::MethodOf(object, name) => {
            text(at) == object && text(at + 1) == "." && text(at + 2) == name && text(at + 3) == "("
        }
        Pattern::Path(parent, child) => {
            text(at) == parent && text(at + 1) == "::" && is_next(tokens, at + 2, child)
        }
    };
    (0..tokens.len())
        .filter(|&at| matches(at))
        .map(|at| tokens[at].line)
        .collect()
}

/// Whether `child` comes next, alone or in a group `{a, child::b, c}`.
fn is_next(tokens: &[Piece<'_>], at: usize, child: &str) -> bool {
    let Some(first) = tokens.get(at) else {
        return false;
    };
    if first.text != "{" {
        return first.text == child;
    }
    let mut depth = 0;
    for pair in tokens[at..].windows(2) {
        match pair[0].text {
            "{" => depth += 1,
            "}" => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return false;
        }
        if depth == 1 && matches!(pair[0].text, "{" | ",") && pair[1].text == child {
            return true;
        }
    }
    false
}

/// Removes each item behind `#[cfg(test)]`, and everything behind `#![cfg(test)]`.
pub(crate) fn without_tests<'a>(tokens: &[Piece<'a>]) -> Vec<Piece<'a>> {
    let begins = |at: usize, with: &[&str]| {
        with.iter()
            .enumerate()
            .all(|(i, text)| tokens.get(at + i).is_some_and(|t| t.text == *text))
    };
    let mut kept = Vec::with_capacity(tokens.len());
    let mut at = 0;
    while at < tokens.len() {
        if begins(at, &["#", "!", "[", "cfg", "(", "test", ")", "]"]) {
            return kept;
        }
        if begins(at, &["#", "[", "cfg", "(", "test", ")", "]"])
            || begins(at, &["#", "[", "cfg", "(", "all", "(", "test"])
        {
            at = end_of_item(tokens, at);
        } else {
            kept.push(tokens[at]);
            at += 1;
        }
    }
    kept
}

/// Returns the index after the item at `at`: after its `;`, or after the `}` of its first block.
fn end_of_item(tokens: &[Piece<'_>], at: usize) -> usize {
    let mut depth = 0;
    for (i, token) in tokens.iter().enumerate().skip(at) {
        match token.text {
            "{" | "(" | "[" => depth += 1,
            ")" | "]" => depth -= 1,
            "}" => {
                depth -= 1;
                if depth == 0 {
                    return i + 1;
                }
            }
            ";" if depth == 0 => return i + 1,
            _ => {}
        }
    }
    tokens.len()
}

/// One lexical piece of a source.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Piece<'a> {
    pub(crate) kind: PieceKind,
    pub(crate) text: &'a str,
    /// The line on which the piece begins, counted from 1.
    pub(crate) line: usize,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum PieceKind {
    /// A line comment or a block comment, with its markers.
    Comment,
    /// A string literal, with its quotes.
    Text,
    /// A character literal, or the quote of a lifetime.
    Quote,
    /// A word, `::`, or a single character of punctuation.
    Code,
}

/// The code of a source, without comments and literals.
pub(crate) fn tokens(text: &str) -> Vec<Piece<'_>> {
    pieces(text)
        .into_iter()
        .filter(|piece| piece.kind == PieceKind::Code)
        .collect()
}

/// Divides a source into pieces and leaves out the white space between them.
pub(crate) fn pieces(text: &str) -> Vec<Piece<'_>> {
    let bytes = text.as_bytes();
    let mut found = Vec::new();
    let (mut at, mut line) = (0, 1);
    while at < bytes.len() {
        let (kind, end) = match bytes[at] {
            byte if byte.is_ascii_whitespace() => {
                line += usize::from(byte == b'\n');
                at += 1;
                continue;
            }
            b'/' if bytes[at..].starts_with(b"//") => (PieceKind::Comment, end_of_line(bytes, at)),
            b'/' if bytes[at..].starts_with(b"/*") => {
                (PieceKind::Comment, end_of_block_comment(bytes, at))
            }
            b'"' => (PieceKind::Text, end_of_string(bytes, at)),
            b'\'' => (PieceKind::Quote, end_of_quote(bytes, at)),
            byte if is_word(byte) => {
                let end = end_of_word(bytes, at);
                match end_of_raw_string(bytes, at, end) {
                    Some(end) => (PieceKind::Text, end),
                    None => (PieceKind::Code, end),
                }
            }
            _ if bytes[at..].starts_with(b"::") => (PieceKind::Code, at + 2),
            _ => (PieceKind::Code, at + 1),
        };
        let text = &text[at..end];
        found.push(Piece { kind, text, line });
        line += text.bytes().filter(|&byte| byte == b'\n').count();
        at = end;
    }
    found
}

/// Bytes beyond ASCII count as word bytes, so that no slice ends within a character.
fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || !byte.is_ascii()
}

fn end_of_word(bytes: &[u8], at: usize) -> usize {
    bytes[at..]
        .iter()
        .position(|&byte| !is_word(byte))
        .map_or(bytes.len(), |length| at + length)
}

fn end_of_line(bytes: &[u8], at: usize) -> usize {
    bytes[at..]
        .iter()
        .position(|&byte| byte == b'\n')
        .map_or(bytes.len(), |length| at + length)
}

/// Rust's block comments nest.
fn end_of_block_comment(bytes: &[u8], mut at: usize) -> usize {
    let mut depth = 0;
    while at < bytes.len() {
        if bytes[at..].starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if bytes[at..].starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    bytes.len()
}

fn end_of_string(bytes: &[u8], at: usize) -> usize {
    let mut i = at + 1;
    while i < bytes.len() && bytes[i] != b'"' {
        i += if bytes[i] == b'\\' { 2 } else { 1 };
    }
    (i + 1).min(bytes.len())
}

/// Returns the end of a character literal. Of a lifetime only the quote belongs to the piece.
fn end_of_quote(bytes: &[u8], at: usize) -> usize {
    let rest = &bytes[at + 1..];
    match rest.first() {
        Some(b'\\') => {
            // The escaped character may itself be a quote.
            let closing = rest.iter().skip(2).position(|&byte| byte == b'\'');
            closing.map_or(bytes.len(), |length| at + 1 + 2 + length + 1)
        }
        Some(&first) => {
            let width = match first {
                0..0x80 => 1,
                0x80..0xe0 => 2,
                0xe0..0xf0 => 3,
                _ => 4,
            };
            if rest.get(width) == Some(&b'\'') {
                at + 1 + width + 1
            } else {
                at + 1
            }
        }
        None => bytes.len(),
    }
}

/// Returns the end of a raw string, if the word at `at` is `r`, `br` or `cr` and a string follows.
fn end_of_raw_string(bytes: &[u8], at: usize, word_end: usize) -> Option<usize> {
    if !matches!(&bytes[at..word_end], b"r" | b"br" | b"cr") {
        return None;
    }
    let hashes = bytes[word_end..]
        .iter()
        .take_while(|&&byte| byte == b'#')
        .count();
    let open = word_end + hashes;
    if bytes.get(open) != Some(&b'"') {
        return None;
    }
    let mut closing = vec![b'"'];
    closing.resize(1 + hashes, b'#');
    let body = &bytes[open + 1..];
    let length = body
        .windows(closing.len())
        .position(|window| window == closing);
    Some(length.map_or(bytes.len(), |length| open + 1 + length + closing.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<&str> {
        tokens(text).into_iter().map(|token| token.text).collect()
    }

    #[test]
    fn comments_and_literals_are_not_code() {
        let text =
            "a // b\n/* c /* d */ e */ f \"g \\\" h\" r#\"i \" j\"# b'k' '\\'' 'l' br\"m\" n";
        assert_eq!(words(text), ["a", "f", "b", "n"]);
        assert_eq!(words("x: &'a str"), ["x", ":", "&", "a", "str"]);
        assert_eq!(words("'é' 'ä' r#type"), ["r", "#", "type"]);
        assert_eq!(words("\"open"), Vec::<&str>::new());
        assert_eq!(words("/* open"), Vec::<&str>::new());
    }

    #[test]
    fn lines_count_through_literals_and_comments() {
        let text = "/*\n*/ \"\n\" a\nb";
        assert_eq!(
            tokens(text)
                .iter()
                .map(|t| (t.text, t.line))
                .collect::<Vec<_>>(),
            [("a", 3), ("b", 4)]
        );
    }

    #[test]
    fn paths_match_alone_and_in_groups() {
        let path = Pattern::Path("std", "fs");
        for text in [
            "std::fs::read",
            "use std::{io, fs};",
            "use std::{io::{A, B}, fs::File};",
        ] {
            assert_eq!(lines_with(&tokens(text), path), [1], "{text}");
        }
        for text in [
            "std::fsx",
            "use std::{io::{self, fs}};",
            "use std::{io}; fs",
            "std::{",
        ] {
            assert!(lines_with(&tokens(text), path).is_empty(), "{text}");
        }
    }

    #[test]
    fn methods_match_only_where_they_are_called() {
        let method = Pattern::Method("make");
        assert_eq!(lines_with(&tokens("a\n    .make(b)"), method), [2]);
        for text in [
            "make(b)",
            "a.make",
            "A::make(b)",
            "a.makes(b)",
            "fn make() {}",
        ] {
            assert!(lines_with(&tokens(text), method).is_empty(), "{text}");
        }
    }

    #[test]
    fn test_items_are_removed_and_following_items_stay() {
        let text = "a #[cfg(test)] mod tests { fn b() { c } } d #[cfg(test)] mod e; f \
                    #[cfg(all(test, unix))] fn g(h: [u8; 2]) {} i";
        let kept: Vec<&str> = without_tests(&tokens(text))
            .iter()
            .map(|t| t.text)
            .collect();
        assert_eq!(kept, ["a", "d", "f", "i"]);
        assert!(without_tests(&tokens("#![cfg(test)] a")).is_empty());
    }
}
