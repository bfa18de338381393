//! Hexadecimal: the encoding of hashes in Nix's database and in the hashes of store paths.

use data_encoding::{HEXLOWER, HEXLOWER_PERMISSIVE};

/// Reason why a text is not valid hexadecimal.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Base16Error {
    /// A character is not a hexadecimal digit.
    #[error("cannot decode hexadecimal text: invalid character {character:?} at offset {index}")]
    Character {
        /// The first invalid character.
        character: char,
        /// Its byte offset in the text.
        index: usize,
    },
    /// The number of digits is odd.
    #[error("cannot decode hexadecimal text: odd number of digits, {0}")]
    Length(usize),
}

/// Encodes bytes as lower-case hexadecimal.
pub fn encode(bytes: &[u8]) -> String {
    HEXLOWER.encode(bytes)
}

/// Decodes lower-case or upper-case hexadecimal, as Nix does.
pub fn decode(text: &str) -> Result<Vec<u8>, Base16Error> {
    HEXLOWER_PERMISSIVE.decode(text.as_bytes()).map_err(|_| {
        match text.char_indices().find(|(_, c)| !c.is_ascii_hexdigit()) {
            Some((index, character)) => Base16Error::Character { character, index },
            None => Base16Error::Length(text.len()),
        }
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn decode_accepts_both_cases_and_encode_prints_lower_case() {
        assert_eq!(decode("00fFAb").unwrap(), [0x00, 0xff, 0xab]);
        assert_eq!(encode(&[0x00, 0xff, 0xab]), "00ffab");
        assert_eq!(decode("").unwrap(), [] as [u8; 0]);
    }

    #[test]
    fn decode_of_other_characters_or_odd_length_is_error() {
        assert_eq!(
            decode("0g"),
            Err(Base16Error::Character {
                character: 'g',
                index: 1
            })
        );
        assert_eq!(
            decode("0é"),
            Err(Base16Error::Character {
                character: 'é',
                index: 1
            })
        );
        assert_eq!(decode("abc"), Err(Base16Error::Length(3)));
    }

    proptest! {
        #[test]
        fn decode_reverses_encode(bytes: Vec<u8>) {
            prop_assert_eq!(decode(&encode(&bytes)).unwrap(), bytes);
        }
    }
}
