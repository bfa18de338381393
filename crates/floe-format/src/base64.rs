//! Base 64 as Nix decodes it: the encoding of keys, signatures and SRI hashes.

use std::sync::LazyLock;

use data_encoding::{BASE64, BASE64_NOPAD, Encoding};

/// Reason why a text is not valid base 64.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Base64Error {
    /// A character is not in the alphabet.
    #[error("cannot decode base64 text: invalid character {character:?} at offset {index}")]
    Character {
        /// The first invalid character.
        character: char,
        /// Its byte offset in the text.
        index: usize,
    },
}

/// Returns the length of the encoding of `bytes` bytes, padding included.
pub const fn encoded_len(bytes: usize) -> usize {
    bytes.div_ceil(3).saturating_mul(4)
}

/// Encodes bytes in the standard alphabet, padded with `=`.
pub fn encode(bytes: &[u8]) -> String {
    BASE64.encode(bytes)
}

/// Decodes base 64 as leniently as Nix does.
///
/// The decoder skips newlines, ignores everything from the first `=` on, accepts texts without
/// padding, and drops the bits after the last whole byte. Several texts therefore decode to the
/// same bytes: to compare two values, compare the bytes and never the texts.
pub fn decode(text: &str) -> Result<Vec<u8>, Base64Error> {
    let digits = text.split('=').next().unwrap_or_default();
    let mut digits = digits.replace('\n', "");
    let len = digits.len() * 6 / 8;
    // Nix drops a single digit after the last group of four, because it is less than a byte. The
    // library rejects it. A second digit completes a byte, which `truncate` removes.
    if digits.len() % 4 == 1 {
        digits.push('A');
    }
    let mut bytes = LENIENT.decode(digits.as_bytes()).map_err(|_| {
        let is_invalid = |c: char| !c.is_ascii_alphanumeric() && !"+/\n".contains(c);
        // Only an invalid character makes this encoding fail, so the search finds one.
        let found = text.char_indices().find(|&(_, c)| is_invalid(c));
        let (index, character) = found.unwrap_or_default();
        Base64Error::Character { character, index }
    })?;
    bytes.truncate(len);
    Ok(bytes)
}

/// The standard alphabet without padding, and without the check that the last bits are zero.
static LENIENT: LazyLock<Encoding> = LazyLock::new(|| {
    let mut specification = BASE64_NOPAD.specification();
    specification.check_trailing_bits = false;
    specification
        .encoding()
        .expect("a standard encoding without one check is valid")
});

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn rfc_4648_vectors_encode_and_decode() {
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
    fn decode_is_as_lenient_as_nix() {
        assert_eq!(decode("Zm8").unwrap(), b"fo", "without padding");
        assert_eq!(decode("Zm\n8=\n").unwrap(), b"fo", "newlines are skipped");
        assert_eq!(decode("Zm8=!rubbish").unwrap(), b"fo", "= ends the text");
        assert_eq!(decode("Zm9=").unwrap(), b"fo", "spare bits are dropped");
        assert_eq!(decode("Z").unwrap(), b"", "a single digit is not a byte");
    }

    #[test]
    fn decode_of_characters_outside_alphabet_is_error() {
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
        fn decode_reverses_encode(bytes: Vec<u8>) {
            prop_assert_eq!(decode(&encode(&bytes)).unwrap(), bytes);
        }
    }
}
