//! Hexadecimal, the form of hashes in Nix's database and inside store path preimages.

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
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        text.push(digit(byte >> 4));
        text.push(digit(byte & 0xf));
    }
    text
}

/// Reads hexadecimal in either case, as Nix does.
pub fn decode(text: &str) -> Result<Vec<u8>, Base16Error> {
    let mut bytes = Vec::with_capacity(text.len() / 2);
    let mut high = None;
    for (index, character) in text.char_indices() {
        let value = character
            .to_digit(16)
            .ok_or(Base16Error::Character { character, index })?;
        // A hexadecimal digit is below 16, so the conversion keeps it whole.
        let value = value as u8;
        high = match high {
            None => Some(value << 4),
            Some(high) => {
                bytes.push(high | value);
                None
            }
        };
    }
    match high {
        None => Ok(bytes),
        Some(_) => Err(Base16Error::Length(text.len())),
    }
}

fn digit(value: u8) -> char {
    char::from_digit(u32::from(value), 16).unwrap_or('0')
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
