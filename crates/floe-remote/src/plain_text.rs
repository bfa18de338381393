//! Messages of other programs, for the terminal.

/// Returns a message of another program without characters that control a terminal, such as those
/// for colours.
pub(crate) fn plain_text(message: &str) -> String {
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
    }
    plain.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_text_has_no_escape_sequences() {
        let message = "\u{1b}[31;1merror:\u{1b}[0m cannot\nadd \u{7}x\r";
        assert_eq!(plain_text(message), "error: cannot add x");
        assert_eq!(plain_text("\u{1b}[31"), "");
    }
}
