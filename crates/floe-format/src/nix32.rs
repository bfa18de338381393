//! Nix's base 32: the encoding of hashes in store paths, narinfos and names of NAR files.
//!
//! The bytes are one little-endian number, whose digits follow each other from the most
//! significant to the least. The alphabet has the decimal digits and the lower-case letters
//! without `e`, `o`, `t` and `u`. Nix calls the encoding nix32.

use std::sync::LazyLock;

use data_encoding::{BitOrder, DecodeKind, Encoding, Specification};

/// Reason why a text is not valid nix32.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Nix32Error {
    /// A character is not in the alphabet.
    #[error("cannot decode nix32 text: invalid character {character:?} at offset {index}")]
    Character {
        /// The first invalid character.
        character: char,
        /// Its byte offset in the text.
        index: usize,
    },
    /// No whole number of bytes has an encoding of this length.
    #[error("cannot decode nix32 text: no whole number of bytes has {0} digits")]
    Length(usize),
    /// The first digit has non-zero bits beyond the last byte.
    #[error("cannot decode nix32 text: the first digit has bits beyond the last byte")]
    SpareBits,
}

/// Returns the number of digits that encode `bytes` bytes.
pub const fn encoded_len(bytes: usize) -> usize {
    // `bytes * 8` would overflow for the lengths that a hostile header can claim.
    bytes / 5 * 8 + (bytes % 5 * 8).div_ceil(5)
}

/// Encodes bytes.
pub fn encode(bytes: &[u8]) -> String {
    let mut digits = LEAST_SIGNIFICANT_FIRST.encode(bytes).into_bytes();
    digits.reverse();
    // The digits are ASCII, so the default is never used.
    String::from_utf8(digits).unwrap_or_default()
}

/// Decodes exactly the texts that [`encode`] returns.
///
/// Nix's decoder accepts any length and appends a byte if the spare bits are not zero. The
/// callers in Nix then reject the wrong length, so Nix accepts the same hashes.
pub fn decode(text: &str) -> Result<Vec<u8>, Nix32Error> {
    let digits: Vec<u8> = text.bytes().rev().collect();
    LEAST_SIGNIFICANT_FIRST.decode(&digits).map_err(|error| {
        match text.char_indices().find(|(_, c)| !is_digit(*c)) {
            Some((index, character)) => Nix32Error::Character { character, index },
            None if error.kind == DecodeKind::Trailing => Nix32Error::SpareBits,
            None => Nix32Error::Length(text.len()),
        }
    })
}

/// Returns whether the character is in the alphabet.
pub const fn is_digit(character: char) -> bool {
    matches!(character, '0'..='9' | 'a'..='d' | 'f'..='n' | 'p'..='s' | 'v'..='z')
}

/// The same encoding with the least significant digit first, which the library can express.
static LEAST_SIGNIFICANT_FIRST: LazyLock<Encoding> = LazyLock::new(|| {
    let mut specification = Specification::new();
    specification.symbols = "0123456789abcdfghijklmnpqrsvwxyz".into();
    specification.bit_order = BitOrder::LeastSignificantFirst;
    specification
        .encoding()
        .expect("32 different ASCII characters are an alphabet")
});

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn sha256_of_abc_encodes_as_by_nix_hash() {
        assert_eq!(
            encode(&floe_hash::sha256(b"abc")),
            "1b8m03r63zqhnjf7l5wnldhh7c134ap5vpj0850ymkq1iyzicy5s"
        );
    }

    #[test]
    fn encoded_len_is_that_of_nix() {
        for (bytes, digits) in [(0, 0), (1, 2), (16, 26), (20, 32), (32, 52), (64, 103)] {
            assert_eq!(encoded_len(bytes), digits);
        }
        assert!(encoded_len(usize::MAX / 2) > usize::MAX / 2);
    }

    #[test]
    fn decode_of_characters_outside_alphabet_is_error() {
        for character in ['e', 'o', 't', 'u', 'A', '-', 'é'] {
            let text = format!("0{character}");
            assert_eq!(
                decode(&text),
                Err(Nix32Error::Character {
                    character,
                    index: 1
                })
            );
        }
    }

    #[test]
    fn decode_of_impossible_length_is_error() {
        for digits in [1, 3, 6, 9, 51, 54] {
            assert_eq!(decode(&"0".repeat(digits)), Err(Nix32Error::Length(digits)));
        }
    }

    #[test]
    fn decode_of_nonzero_spare_bits_is_error() {
        assert_eq!(decode("7z").unwrap(), [0xff]);
        assert_eq!(decode("8z"), Err(Nix32Error::SpareBits));
        assert_eq!(decode("zz"), Err(Nix32Error::SpareBits));
    }

    proptest! {
        #[test]
        fn decode_reverses_encode(bytes: Vec<u8>) {
            prop_assert_eq!(decode(&encode(&bytes)).unwrap(), bytes);
        }

        #[test]
        fn encode_reverses_decode(text in "[0-9a-z]{0,60}") {
            if let Ok(bytes) = decode(&text) {
                prop_assert_eq!(encode(&bytes), text);
            }
        }
    }
}
