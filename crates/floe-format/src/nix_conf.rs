//! Configuration files such as `nix.conf`: lines that set a setting or include another file.
//!
//! The grammar is that of Nix. A `#` starts a comment anywhere in a line, white space separates
//! words, and there are no quotes. This module does not interpret the names of settings and does
//! not read included files; both are up to the caller.

/// Reason why bytes are not a valid configuration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NixConfError {
    /// The configuration is longer than [`NIX_CONF_LEN_MAX`].
    #[error("cannot parse configuration: longer than {NIX_CONF_LEN_MAX} bytes")]
    TooLong(usize),
    /// A line is neither a setting nor an include.
    #[error("cannot parse line {number}: {fault}")]
    Line {
        /// The number of the line, counted from 1.
        number: usize,
        /// The reason.
        fault: LineFault,
    },
}

/// Reason why a line is not valid. It never contains a value, which may be a secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LineFault {
    /// The second word is not `=`.
    #[error("{0:?} is not followed by = between spaces; write NAME = VALUE, or include PATH")]
    NoEquals(String),
    /// `include` or `!include` is not followed by exactly one word.
    #[error("{directive} is followed by {words} words; it takes one path, without spaces")]
    NotOnePath {
        /// `include` or `!include`.
        directive: &'static str,
        /// The number of words after the directive.
        words: usize,
    },
}

/// A line with a statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line<'a> {
    /// The number of the line, counted from 1.
    pub number: usize,
    /// The statement.
    pub statement: Statement<'a>,
}

/// A statement. As in Nix, names, values and paths are bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Statement<'a> {
    /// `NAME = VALUE…`: sets a setting.
    Set {
        /// The word before `=`.
        name: &'a [u8],
        /// The words after `=`, separated by single spaces. May be empty.
        value: Vec<u8>,
    },
    /// `include PATH` or `!include PATH`: includes another file.
    Include {
        /// The path of the file, absolute or relative to the directory of the including file.
        path: &'a [u8],
        /// Whether the file may be missing, as after `!include`.
        may_be_missing: bool,
    },
}

/// Parses a configuration. Returns the lines that have a statement.
///
/// As in Nix, one invalid line makes the whole configuration invalid.
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
    let include = [INCLUDE, INCLUDE_OPTIONAL]
        .into_iter()
        .find(|directive| directive.as_bytes() == first);
    if let Some(directive) = include {
        let rest: Vec<&[u8]> = words.collect();
        return match rest[..] {
            [path] => Ok(Some(Statement::Include {
                path,
                may_be_missing: directive == INCLUDE_OPTIONAL,
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
        _ => Err(LineFault::NoEquals(printable_name(first))),
    }
}

/// Splits a line or a value into words, as Nix does: a form feed does not separate words.
pub fn words(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|byte| matches!(byte, b' ' | b'\t' | b'\n' | b'\r'))
        .filter(|word| !word.is_empty())
}

/// Parses a value that is true or false, in the words of Nix; `None` if it is neither.
pub fn parse_bool(value: &[u8]) -> Option<bool> {
    match value {
        b"true" | b"yes" | b"1" => Some(true),
        b"false" | b"no" | b"0" => Some(false),
        _ => None,
    }
}

/// Returns the part of a first word that an error may show.
///
/// In `access-tokens=host=secret`, the first word contains a secret, so the part ends at `=`.
fn printable_name(word: &[u8]) -> String {
    let end = word.iter().position(|&byte| byte == b'=');
    let name = String::from_utf8_lossy(&word[..end.unwrap_or(word.len())]);
    name.chars().take(PRINTED_CHARS_MAX).collect()
}

/// Length of the longest configuration that parses, in bytes. Real files have a few kilobytes.
pub const NIX_CONF_LEN_MAX: usize = 1024 * 1024;

/// Number of characters of a word that an error shows. The names of settings are shorter.
const PRINTED_CHARS_MAX: usize = 64;

const INCLUDE: &str = "include";
const INCLUDE_OPTIONAL: &str = "!include";

#[cfg(test)]
mod tests;
