//! Hexadecimal, the form of hashes in Nix's database and inside store path preimages.

use data_encoding::{HEXLOWER, HEXLOWER_PERMISSIVE};

/// Why a text is not hexadecimal.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Base16Error {
    /// A character that is no hexadecimal digit.
    #[error("cannot decode base-16 text: {character:?} at character {index} is no digit")]
    Character {
        /// The offending character.
        character: char,
        /// Its byte offset in the text.
        index: usize,
    },
    /// An odd number of digits, which no bytes encode to.
    #[error("cannot decode base-16 text of {0} digits: the number is odd")]
    Length(usize),
}

/// Prints bytes as lower-case hexadecimal.
pub fn encode(bytes: &[u8]) -> String {
    HEXLOWER.encode(bytes)
}

/// Reads hexadecimal in either case, as Nix does.
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
    fn both_cases_are_read_and_lower_case_is_printed() {
        assert_eq!(decode("00fFAb").unwrap(), [0x00, 0xff, 0xab]);
        assert_eq!(encode(&[0x00, 0xff, 0xab]), "00ffab");
        assert_eq!(decode("").unwrap(), [] as [u8; 0]);
    }

    #[test]
    fn other_characters_and_odd_lengths_are_errors() {
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
        fn decoding_undoes_encoding(bytes: Vec<u8>) {
            prop_assert_eq!(decode(&encode(&bytes)).unwrap(), bytes);
        }
    }
}
