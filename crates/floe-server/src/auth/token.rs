//! Tokens: random secrets that floe makes, for clients that are programs.

use std::fmt;

use floe_format::nix32;

/// A new token. Its text is shown once and kept nowhere.
pub struct Token(String);

impl Token {
    /// Makes a token from random bytes.
    pub fn from_random(bytes: [u8; TOKEN_BYTES]) -> Token {
        Token(format!("{PREFIX}{}", nix32::encode(&bytes)))
    }

    /// Returns the text, which is secret.
    pub fn secret(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Token(…)")
    }
}

/// Whether a text begins like a token. No name of a login does, so that a token which a client
/// sends in the place of the name is not logged.
pub(crate) fn may_be_token(text: &str) -> bool {
    text.starts_with(PREFIX)
}

/// How many random bytes a token has.
pub const TOKEN_BYTES: usize = 32;

/// The beginning of every token, by which tools find tokens in texts where they must not be.
pub const PREFIX: &str = "floe_";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_is_one_word_and_debug_hides_it() {
        let token = Token::from_random([0xa5; TOKEN_BYTES]);
        let text = token.secret();
        assert!(may_be_token(text) && text.len() == 57, "{text}");
        let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        assert!(text.chars().all(is_plain), "{text}");
        assert!(!format!("{token:?}").contains(&text[5..]));
    }
}
