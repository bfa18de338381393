//! The hash part of a store path: the key of a path in binary caches and on servers.

use std::fmt;

use crate::nix32;

/// A valid hash part: 32 digits of nix32, which encode 160 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HashPart([u8; HashPart::LEN]);

impl HashPart {
    /// Number of characters in a hash part.
    pub const LEN: usize = 32;

    /// Parses a hash part. Returns `None` for another length or for other characters.
    pub fn parse(text: &str) -> Option<HashPart> {
        let bytes: [u8; HashPart::LEN] = text.as_bytes().try_into().ok()?;
        let is_valid = bytes.iter().all(|&byte| nix32::is_digit(char::from(byte)));
        is_valid.then_some(HashPart(bytes))
    }

    /// The hash part at the start of the base name of a valid store path.
    pub(crate) fn of_base_name(name: &str) -> HashPart {
        let digits = name.as_bytes().first_chunk();
        HashPart(digits.copied().unwrap_or([b'0'; HashPart::LEN]))
    }

    /// The hash part of 32 valid digits.
    pub(crate) const fn of_digits(digits: [u8; HashPart::LEN]) -> HashPart {
        HashPart(digits)
    }

    /// Returns the 32 characters.
    pub fn as_str(&self) -> &str {
        // The digits are ASCII, so the default is never used.
        std::str::from_utf8(&self.0).unwrap_or_default()
    }
}

impl fmt::Display for HashPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "7bw2d1cqdpnxi05lr3s6pmcgl5xazl2c";

    #[test]
    fn hash_part_with_32_digits_parses() {
        assert_eq!(HashPart::parse(TEXT).unwrap().as_str(), TEXT);
    }

    #[test]
    fn hash_part_with_other_length_or_digits_is_rejected() {
        let upper = TEXT.to_uppercase();
        let with_e = TEXT.replace('b', "e");
        for text in ["", "7bw2", &TEXT[1..], &format!("{TEXT}a"), &upper, &with_e] {
            assert_eq!(HashPart::parse(text), None, "{text}");
        }
        assert_eq!(HashPart::parse(&format!("{}é", &TEXT[2..])), None);
    }
}
