//! Divides Rust sources into tokens, comments and literals.
//!
//! The rules about code look at tokens only, so a comment or a string may name what a rule forbids.
//! The rules about prose look at comments and string literals only.

use ra_ap_rustc_lexer::{FrontmatterAllowed, LiteralKind, TokenKind, tokenize};

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
    /// A character literal, or a lifetime.
    Quote,
    /// A word, a number, `::`, or a single character of punctuation.
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
    let mut found: Vec<Piece<'_>> = Vec::new();
    let (mut at, mut line) = (0, 1);
    for token in tokenize(text, FrontmatterAllowed::No) {
        let end = at + token.len as usize;
        let piece = &text[at..end];
        match kind(token.kind) {
            None => {}
            // The lexer knows single characters of punctuation only.
            Some(_) if piece == ":" && is_colon_before(text, at, &found) => {
                if let Some(colon) = found.last_mut() {
                    colon.text = &text[at - 1..end];
                }
            }
            Some(kind) => found.push(Piece {
                kind,
                text: piece,
                line,
            }),
        }
        line += piece.bytes().filter(|&byte| byte == b'\n').count();
        at = end;
    }
    found
}

/// Whether a colon that belongs to no pair stands directly before this place.
fn is_colon_before(text: &str, at: usize, found: &[Piece<'_>]) -> bool {
    text[..at].ends_with(':') && found.last().is_some_and(|piece| piece.text == ":")
}

/// Returns the kind of a token, without one for white space.
fn kind(token: TokenKind) -> Option<PieceKind> {
    Some(match token {
        TokenKind::Whitespace => return None,
        TokenKind::LineComment { .. } | TokenKind::BlockComment { .. } => PieceKind::Comment,
        TokenKind::Lifetime { .. } | TokenKind::RawLifetime => PieceKind::Quote,
        TokenKind::Literal { kind, .. } => match kind {
            LiteralKind::Int { .. } | LiteralKind::Float { .. } => PieceKind::Code,
            LiteralKind::Char { .. } | LiteralKind::Byte { .. } => PieceKind::Quote,
            _ => PieceKind::Text,
        },
        _ => PieceKind::Code,
    })
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
        assert_eq!(words(text), ["a", "f", "n"]);
        assert_eq!(words("x: &'a str"), ["x", ":", "&", "str"]);
        assert_eq!(words("'é' 'ä' r#type"), ["r#type"]);
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
