//! Base 64 with the leniency of Nix's decoder, the form of keys, signatures and SRI hashes.

/// Why a text is not base 64.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Base64Error {
    /// A character outside the alphabet.
    #[error("cannot decode base-64 text: {character:?} at character {index} is no digit")]
    Character {
        /// The offending character.
        character: char,
        /// Its byte offset in the text.
        index: usize,
    },
}

/// Number of characters that so many bytes encode to, padding included.
pub const fn encoded_len(bytes: usize) -> usize {
    bytes.div_ceil(3).saturating_mul(4)
}

/// Prints bytes in the standard alphabet, padded with `=`.
pub fn encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(encoded_len(bytes.len()));
    for chunk in bytes.chunks(3) {
        let group = (0..3).fold(0, |group, index| {
            group << 8 | chunk.get(index).map_or(0, |&byte| u32::from(byte))
        });
        for index in 0..4 {
            text.push(if index <= chunk.len() {
                digit(group >> (18 - 6 * index))
            } else {
                '='
            });
        }
    }
    text
}

/// Reads base 64 as leniently as Nix.
///
/// Newlines are skipped, the first `=` ends the text whatever follows it, padding may be absent,
/// and bits left over after the last whole byte are dropped. Several texts thus decode to the
/// same bytes, so a text must never stand for its bytes in a comparison.
pub fn decode(text: &str) -> Result<Vec<u8>, Base64Error> {
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3 + 2);
    let mut pending = 0_u32;
    let mut bits = 0;
    for (index, character) in text.char_indices() {
        match character {
            '=' => break,
            '\n' => continue,
            _ => {}
        }
        let value = value(character).ok_or(Base64Error::Character { character, index })?;
        pending = pending << 6 | u32::from(value);
        bits += 6;
        if bits >= 8 {
            bits -= 8;
            // Only the low eight bits are wanted: those above were pushed before.
            bytes.push((pending >> bits) as u8);
        }
    }
    Ok(bytes)
}

fn digit(value: u32) -> char {
    ALPHABET
        .get((value & 0x3f) as usize)
        .map_or('A', |&byte| char::from(byte))
}

fn value(character: char) -> Option<u8> {
    let byte = u8::try_from(character).ok()?;
    match byte {
        b'A'..=b'Z' => Some(byte - b'A'),
        b'a'..=b'z' => Some(byte - b'a' + 26),
        b'0'..=b'9' => Some(byte - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    }
}

const ALPHABET: [u8; 64] = *b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_vectors_of_rfc_4648_come_out() {
        for (bytes, text) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(encode(bytes.as_bytes()), text);
            assert_eq!(decode(text).unwrap(), bytes.as_bytes());
            assert_eq!(encoded_len(bytes.len()), text.len());
        }
    }

    #[test]
    fn the_leniency_is_that_of_nix() {
        assert_eq!(decode("Zm8").unwrap(), b"fo", "padding may be absent");
        assert_eq!(decode("Zm\n8=\n").unwrap(), b"fo", "newlines are skipped");
        assert_eq!(
            decode("Zm8=!rubbish").unwrap(),
            b"fo",
            "the first = ends the text"
        );
        assert_eq!(decode("Zm9=").unwrap(), b"fo", "left-over bits are dropped");
        assert_eq!(decode("Z").unwrap(), b"", "a single digit holds no byte");
    }

    #[test]
    fn characters_outside_the_alphabet_are_refused() {
        for character in [' ', '-', '_', '\r', 'é', '\0'] {
            let text = format!("Zm{character}8");
            assert_eq!(
                decode(&text),
                Err(Base64Error::Character {
                    character,
                    index: 2
                })
            );
        }
    }

    proptest! {
        #[test]
        fn decoding_undoes_encoding(bytes: Vec<u8>) {
            prop_assert_eq!(decode(&encode(&bytes)).unwrap(), bytes);
        }
    }
}
