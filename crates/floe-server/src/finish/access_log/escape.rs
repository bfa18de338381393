//! Foreign text in a log: it cannot end its field or the line, control a terminal, or fill a disk.

use std::fmt::{Display, Formatter, Result, Write as _};

/// Text in a format of Apache: quotes and backslashes have a backslash before them.
pub(super) struct Quoted<'a>(pub(super) &'a str);

/// The same as one word: whitespace would end the field.
pub(super) struct QuotedWord<'a>(pub(super) &'a str);

/// Text in a string of JSON.
pub(super) struct JsonText<'a>(pub(super) &'a str);

impl Display for Quoted<'_> {
    fn fmt(&self, out: &mut Formatter<'_>) -> Result {
        if is_plain(self.0) {
            return out.write_str(self.0);
        }
        let (shown, mark) = truncated(self.0);
        for character in shown.chars() {
            write_quoted(out, character)?;
        }
        out.write_str(mark)
    }
}

impl Display for QuotedWord<'_> {
    fn fmt(&self, out: &mut Formatter<'_>) -> Result {
        let (shown, mark) = truncated(self.0);
        for character in shown.chars() {
            if character.is_whitespace() {
                out.write_char('?')?
            } else {
                write_quoted(out, character)?
            }
        }
        out.write_str(mark)
    }
}

impl Display for JsonText<'_> {
    fn fmt(&self, out: &mut Formatter<'_>) -> Result {
        if is_plain(self.0) {
            return out.write_str(self.0);
        }
        let (shown, mark) = truncated(self.0);
        for character in shown.chars() {
            match character {
                '"' | '\\' => write!(out, "\\{character}")?,
                // All of them are in the basic plane, whose characters have four digits.
                character if is_harmful(character) => write!(out, "\\u{:04x}", character as u32)?,
                character => out.write_char(character)?,
            }
        }
        out.write_str(mark)
    }
}

fn write_quoted(out: &mut Formatter<'_>, character: char) -> Result {
    match character {
        '"' | '\\' => write!(out, "\\{character}"),
        character if is_harmful(character) => out.write_char('?'),
        character => out.write_char(character),
    }
}

/// Whether a text is short and needs no change. Nearly all are so.
fn is_plain(text: &str) -> bool {
    let is_plain = |byte: &u8| matches!(byte, b' '..=b'~') && !matches!(byte, b'"' | b'\\');
    text.len() <= FIELD_LEN_MAX && text.as_bytes().iter().all(is_plain)
}

/// Returns the beginning of a text, and the mark of a text that is longer.
fn truncated(text: &str) -> (&str, &'static str) {
    let mut end = text.len().min(FIELD_LEN_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let mark = if end < text.len() { "..." } else { "" };
    (text.get(..end).unwrap_or_default(), mark)
}

/// Whether a character is invisible, or changes the meaning of the characters after it.
fn is_harmful(character: char) -> bool {
    let is_format = matches!(character,
        '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}'
        | '\u{feff}');
    is_format || character.is_control()
}

/// The longest text of a client in a field of the log, in bytes. The targets of Nix have about 120,
/// and a head may have 16 KiB.
pub(super) const FIELD_LEN_MAX: usize = 1024;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn long_text_is_cut_at_a_character() {
        let text = "é".repeat(FIELD_LEN_MAX);
        let shown = Quoted(&text).to_string();
        assert_eq!(shown, format!("{}...", "é".repeat(FIELD_LEN_MAX / 2)));
        assert_eq!(JsonText(&text).to_string(), shown);
    }

    #[test]
    fn direction_of_text_is_escaped() {
        assert_eq!(Quoted("a\u{202e}b").to_string(), "a?b");
        assert_eq!(JsonText("a\u{202e}b").to_string(), "a\\u202eb");
    }

    #[test]
    fn word_has_no_space() {
        assert_eq!(QuotedWord("a \u{3000}\"b\"\n").to_string(), "a??\\\"b\\\"?");
    }

    proptest! {
        #[test]
        fn json_text_is_parsed_back(
            text in "\\PC{0,40}|[\\x00-\\x7f]{0,40}|[\u{80}-\u{2100}]{0,40}",
        ) {
            let json = format!("\"{}\"", JsonText(&text));
            prop_assert_eq!(serde_json::from_str::<String>(&json).unwrap(), text);
            prop_assert!(!json.chars().any(is_harmful));
        }
    }
}
