//! Nix's base 32, the form of hashes in store paths, narinfos and NAR file names.
//!
//! It reads the bytes as one little-endian number and prints its digits most significant first,
//! in an alphabet of digits and lower-case letters without `e`, `o`, `t` and `u`.

/// Why a text is not base 32.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Base32Error {
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
    let at = |index: usize| bytes.get(index).map_or(0, |&byte| u16::from(byte));
    (0..encoded_len(bytes.len()))
        .rev()
        .map(|position| {
            let bit = position * 5;
            let window = at(bit / 8) | at(bit / 8 + 1) << 8;
            digit((window >> (bit % 8)) & 0x1f)
        })
        .collect()
}

/// Reads base 32.
///
/// Only the text that [`encode`] prints is read. Nix's own decoder takes texts of any length and
/// lets the result grow by a byte when the spare bits are set; its callers then refuse the wrong
/// length, so the hashes that Nix accepts are the same.
pub fn decode(text: &str) -> Result<Vec<u8>, Base32Error> {
    let len = text.len() / 8 * 5 + text.len() % 8 * 5 / 8;
    if let Some((index, character)) = text.char_indices().find(|(_, c)| value(*c).is_none()) {
        return Err(Base32Error::Character { character, index });
    }
    if encoded_len(len) != text.len() {
        return Err(Base32Error::Length(text.len()));
    }
    let mut bytes = vec![0; len];
    for (position, digit) in text.chars().rev().filter_map(value).enumerate() {
        let bit = position * 5;
        let [low, high] = (u16::from(digit) << (bit % 8)).to_le_bytes();
        if let Some(byte) = bytes.get_mut(bit / 8) {
            *byte |= low;
        }
        match bytes.get_mut(bit / 8 + 1) {
            Some(byte) => *byte |= high,
            None if high != 0 => return Err(Base32Error::SpareBits),
            None => {}
        }
    }
    Ok(bytes)
}

/// Whether the character is a digit of the alphabet.
pub fn is_digit(character: char) -> bool {
    value(character).is_some()
}

fn digit(value: u16) -> char {
    ALPHABET
        .get(usize::from(value))
        .map_or('0', |&byte| char::from(byte))
}

fn value(character: char) -> Option<u8> {
    let byte = u8::try_from(character).ok()?;
    match VALUES.get(usize::from(byte)) {
        Some(&value) if value != NO_DIGIT => Some(value),
        _ => None,
    }
}

const ALPHABET: [u8; 32] = *b"0123456789abcdfghijklmnpqrsvwxyz";
const NO_DIGIT: u8 = u8::MAX;
const VALUES: [u8; 128] = {
    let mut values = [NO_DIGIT; 128];
    let mut value = 0;
    while value < ALPHABET.len() {
        values[ALPHABET[value] as usize] = value as u8;
        value += 1;
    }
    values
};

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
                Err(Base32Error::Character {
                    character,
                    index: 1
                })
            );
        }
    }

    #[test]
    fn lengths_that_no_bytes_encode_to_are_refused() {
        for digits in [1, 3, 6, 9, 51, 54] {
            assert_eq!(
                decode(&"0".repeat(digits)),
                Err(Base32Error::Length(digits))
            );
        }
    }

    #[test]
    fn spare_bits_must_be_zero() {
        assert_eq!(decode("7z").unwrap(), [0xff]);
        assert_eq!(decode("8z"), Err(Base32Error::SpareBits));
        assert_eq!(decode("zz"), Err(Base32Error::SpareBits));
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
