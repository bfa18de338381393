//! `nix.conf` and its kin: lines that set something or include another file.
//!
//! The grammar is Nix's own and knows no setting: a `#` begins a comment wherever it stands, words
//! are separated by white space, and there is no quoting. What the names mean, and where included
//! files are, is for the caller, since this crate reads none.

/// Why bytes are no configuration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NixConfError {
    /// It is longer than [`NIX_CONF_LEN_MAX`].
    #[error(
        "cannot parse a configuration of {0} bytes: longer than NIX_CONF_LEN_MAX, \
         {NIX_CONF_LEN_MAX} bytes"
    )]
    TooLong(usize),
    /// A line is neither a setting nor an include.
    #[error("cannot parse line {number}: {fault}")]
    Line {
        /// Which line, counted from 1.
        number: usize,
        /// What is wrong with it.
        fault: LineFault,
    },
}

/// What is wrong with a line. Values are not repeated, for some are secrets.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LineFault {
    /// The first word is not followed by `=` as a word of its own.
    #[error("{0:?} is not followed by = between spaces; write NAME = VALUE, or include PATH")]
    NoEquals(String),
    /// `include` or `!include` has no path, or more than one word.
    #[error("{directive} is followed by {words} words; it takes one path, without spaces")]
    NotOnePath {
        /// `include` or `!include`.
        directive: &'static str,
        /// How many words follow it.
        words: usize,
    },
}

/// A line that says something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line<'a> {
    /// Which line it is, counted from 1.
    pub number: usize,
    /// What it says.
    pub statement: Statement<'a>,
}

/// What a line says. Names, values and paths are bytes, as they are for Nix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Statement<'a> {
    /// `NAME = VALUE…`; the words of the value are joined by one space.
    Set {
        /// The word before `=`.
        name: &'a [u8],
        /// What follows it; may be empty.
        value: Vec<u8>,
    },
    /// `include PATH`, or `!include PATH`, which may be missing.
    Include {
        /// Relative to the directory of the file that the line stands in, unless absolute.
        path: &'a [u8],
        /// Whether it may be missing.
        may_be_missing: bool,
    },
}

/// The lines that say something, in their order.
///
/// Errors: [`NixConfError`]; as in Nix, one bad line spoils the whole.
pub fn parse(text: &[u8]) -> Result<Vec<Line<'_>>, NixConfError> {
    if text.len() > NIX_CONF_LEN_MAX {
        return Err(NixConfError::TooLong(text.len()));
    }
    let mut lines = Vec::new();
    for (index, line) in text.split(|&byte| byte == b'\n').enumerate() {
        let number = index + 1;
        match parse_line(line) {
            Ok(None) => {}
            Ok(Some(statement)) => lines.push(Line { number, statement }),
            Err(fault) => return Err(NixConfError::Line { number, fault }),
        }
    }
    Ok(lines)
}

fn parse_line(line: &[u8]) -> Result<Option<Statement<'_>>, LineFault> {
    let end = line.iter().position(|&byte| byte == b'#');
    let mut words = words(&line[..end.unwrap_or(line.len())]);
    let Some(first) = words.next() else {
        return Ok(None);
    };
    let include = [INCLUDE, INCLUDE_IF_THERE]
        .into_iter()
        .find(|directive| directive.as_bytes() == first);
    if let Some(directive) = include {
        let rest: Vec<&[u8]> = words.collect();
        return match rest[..] {
            [path] => Ok(Some(Statement::Include {
                path,
                may_be_missing: directive == INCLUDE_IF_THERE,
            })),
            _ => Err(LineFault::NotOnePath {
                directive,
                words: rest.len(),
            }),
        };
    }
    match words.next() {
        Some(b"=") => Ok(Some(Statement::Set {
            name: first,
            value: words.collect::<Vec<_>>().join(&b' '),
        })),
        _ => Err(LineFault::NoEquals(shown(first))),
    }
}

/// The words that Nix finds in a line or a value. A form feed is no white space to it.
pub fn words(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|byte| matches!(byte, b' ' | b'\t' | b'\n' | b'\r'))
        .filter(|word| !word.is_empty())
}

/// As much of a first word as cannot be a secret: `access-tokens=host=secret` has no space.
fn shown(word: &[u8]) -> String {
    let end = word.iter().position(|&byte| byte == b'=');
    let name = String::from_utf8_lossy(&word[..end.unwrap_or(word.len())]);
    name.chars().take(SHOWN_CHARS_MAX).collect()
}

/// The longest configuration that is parsed. Real ones have a few kilobytes.
pub const NIX_CONF_LEN_MAX: usize = 1024 * 1024;

/// How much of a word an error repeats: longer than any name of a setting.
const SHOWN_CHARS_MAX: usize = 64;

const INCLUDE: &str = "include";
const INCLUDE_IF_THERE: &str = "!include";

#[cfg(test)]
mod tests;
