//! Texts of servers and of other programs, for messages of floe.

/// Returns a text of a server or of another program as a part of one line: without line breaks,
/// which could forge a message of floe, and without characters that control a terminal. A long text
/// is cut off.
pub fn plain_text(message: &str) -> String {
    let mut plain = String::with_capacity(message.len());
    let mut characters = message.chars();
    while let Some(character) = characters.next() {
        match character {
            // An escape sequence: ESC, `[`, parameters, and a letter that ends it.
            '\u{1b}' => {
                if characters.next() == Some('[') {
                    characters.find(|end| ('@'..='~').contains(end));
                }
            }
            '\n' => plain.push(' '),
            other if other.is_control() => {}
            other => plain.push(other),
        }
        if plain.len() >= PLAIN_LEN_MAX {
            plain.push('…');
            break;
        }
    }
    plain.trim().to_owned()
}

/// The length after which a text is cut off, in bytes.
const PLAIN_LEN_MAX: usize = 1000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_text_has_no_escape_sequences() {
        let message = "\u{1b}[31;1merror:\u{1b}[0m cannot\nadd \u{7}x\r";
        assert_eq!(plain_text(message), "error: cannot add x");
        assert_eq!(plain_text("\u{1b}[31"), "");
        assert_eq!(plain_text("x\r\nfloe: all is well"), "x floe: all is well");
        let long = plain_text(&"a".repeat(3_000_000));
        assert_eq!(long, format!("{}…", "a".repeat(PLAIN_LEN_MAX)));
    }
}
