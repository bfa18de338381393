//! Base 64 with the leniency of Nix's decoder, the form of keys, signatures and SRI hashes.

use std::sync::LazyLock;

use data_encoding::{BASE64, BASE64_NOPAD, Encoding};

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
    BASE64.encode(bytes)
}

/// Reads base 64 as leniently as Nix.
///
/// Newlines are skipped, the first `=` ends the text whatever follows it, padding may be absent,
/// and bits left over after the last whole byte are dropped. Several texts thus decode to the
/// same bytes, so a text must never stand for its bytes in a comparison.
pub fn decode(text: &str) -> Result<Vec<u8>, Base64Error> {
    let digits = text.split('=').next().unwrap_or_default();
    let mut digits = digits.replace('\n', "");
    let len = digits.len() * 6 / 8;
    // A single digit behind the last group holds no whole byte. Alone it is an error for the
    // decoder, so it gets company, and the byte that they make is dropped.
    if digits.len() % 4 == 1 {
        digits.push('A');
    }
    let mut bytes = LENIENT.decode(digits.as_bytes()).map_err(|_| {
        let is_invalid = |c: char| !c.is_ascii_alphanumeric() && !"+/\n".contains(c);
        // There is one: the decoder finds fault with nothing else.
        let found = text.char_indices().find(|&(_, c)| is_invalid(c));
        let (index, character) = found.unwrap_or_default();
        Base64Error::Character { character, index }
    })?;
    bytes.truncate(len);
    Ok(bytes)
}

/// The standard alphabet, without padding and without a look at bits that are left over.
static LENIENT: LazyLock<Encoding> = LazyLock::new(|| {
    let mut specification = BASE64_NOPAD.specification();
    specification.check_trailing_bits = false;
    specification
        .encoding()
        .expect("a standard encoding, less a check")
});

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
