//! The hash part of a store path, by which binary caches and servers look it up.

use crate::nix32;

/// The hash part of a store path, checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HashPart([u8; HashPart::LEN]);

impl HashPart {
    /// Length of the part before the dash: 160 bits in base 32.
    pub const LEN: usize = 32;

    /// Checks a text.
    pub fn parse(text: &str) -> Option<HashPart> {
        let bytes = text.as_bytes().try_into().ok()?;
        let is_valid = text.bytes().all(|byte| nix32::is_digit(char::from(byte)));
        is_valid.then_some(HashPart(bytes))
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        // It was text when it was checked.
        std::str::from_utf8(&self.0).unwrap_or_default()
    }
}
