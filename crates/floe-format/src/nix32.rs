//! Nix's base 32, the form of hashes in store paths, narinfos and NAR file names.
//!
//! It reads the bytes as one little-endian number and prints its digits most significant first,
//! in an alphabet of digits and lower-case letters without `e`, `o`, `t` and `u`.

use std::sync::LazyLock;

use data_encoding::{BitOrder, DecodeKind, Encoding, Specification};

/// Why a text is not base 32.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Nix32Error {
    /// A character outside the alphabet.
    #[error("cannot decode base-32 text: {character:?} at character {index} is no digit")]
    Character {
        /// The offending character.
        character: char,
        /// Its byte offset in the text.
        index: usize,
    },
    /// A number of digits that no whole number of bytes encodes to.
    #[error("cannot decode base-32 text of {0} digits: no whole number of bytes has that many")]
    Length(usize),
    /// The first digit has bits beyond the last byte.
    #[error("cannot decode base-32 text: its first digit has bits beyond the last byte")]
    SpareBits,
}

/// Number of digits that so many bytes encode to.
pub const fn encoded_len(bytes: usize) -> usize {
    // Not `bytes * 8`, which overflows for lengths that only a hostile header could claim.
    bytes / 5 * 8 + (bytes % 5 * 8).div_ceil(5)
}

/// Prints bytes in base 32.
pub fn encode(bytes: &[u8]) -> String {
    let mut digits = LEAST_SIGNIFICANT_FIRST.encode(bytes).into_bytes();
    digits.reverse();
    String::from_utf8(digits).unwrap_or_default()
}

/// Reads base 32.
///
/// Only the text that [`encode`] prints is read. Nix's own decoder takes texts of any length and
/// lets the result grow by a byte when the spare bits are set; its callers then refuse the wrong
/// length, so the hashes that Nix accepts are the same.
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

/// Whether the character is a digit of the alphabet.
pub fn is_digit(character: char) -> bool {
    matches!(character, '0'..='9' | 'a'..='d' | 'f'..='n' | 'p'..='s' | 'v'..='z')
}

/// The encoding, but for the order of the digits.
static LEAST_SIGNIFICANT_FIRST: LazyLock<Encoding> = LazyLock::new(|| {
    let mut specification = Specification::new();
    specification.symbols = "0123456789abcdfghijklmnpqrsvwxyz".into();
    specification.bit_order = BitOrder::LeastSignificantFirst;
    specification.encoding().expect("32 different symbols")
});

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_sha256_of_abc_prints_as_nix_hash_prints_it() {
        assert_eq!(
            encode(&floe_hash::sha256(b"abc")),
            "1b8m03r63zqhnjf7l5wnldhh7c134ap5vpj0850ymkq1iyzicy5s"
        );
    }

    #[test]
    fn lengths_are_those_of_nix() {
        for (bytes, digits) in [(0, 0), (1, 2), (16, 26), (20, 32), (32, 52), (64, 103)] {
            assert_eq!(encoded_len(bytes), digits);
        }
        assert!(encoded_len(usize::MAX / 2) > usize::MAX / 2);
    }

    #[test]
    fn letters_outside_the_alphabet_are_refused() {
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
    fn lengths_that_no_bytes_encode_to_are_refused() {
        for digits in [1, 3, 6, 9, 51, 54] {
            assert_eq!(decode(&"0".repeat(digits)), Err(Nix32Error::Length(digits)));
        }
    }

    #[test]
    fn spare_bits_must_be_zero() {
        assert_eq!(decode("7z").unwrap(), [0xff]);
        assert_eq!(decode("8z"), Err(Nix32Error::SpareBits));
        assert_eq!(decode("zz"), Err(Nix32Error::SpareBits));
    }

    proptest! {
        #[test]
        fn decoding_undoes_encoding(bytes: Vec<u8>) {
            prop_assert_eq!(decode(&encode(&bytes)).unwrap(), bytes);
        }

        #[test]
        fn what_decodes_is_what_encodes(text in "[0-9a-z]{0,60}") {
            if let Ok(bytes) = decode(&text) {
                prop_assert_eq!(encode(&bytes), text);
            }
        }
    }
}
