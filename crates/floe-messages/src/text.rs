//! Text out of bytes.
//!
//! The one unsafe line of this crate, and why there is one: the standard check for UTF-8 took a
//! quarter to two fifths of the time in which a small message goes there and back.
#![allow(unsafe_code)]

/// The text that these bytes are, or how many of them are some.
#[inline]
pub(crate) fn check(bytes: &[u8]) -> Result<&str, usize> {
    // Nearly all text is ASCII, for which the check is shorter.
    if bytes.is_ascii() {
        // SAFETY: ASCII is UTF-8.
        return Ok(unsafe { std::str::from_utf8_unchecked(bytes) });
    }
    std::str::from_utf8(bytes).map_err(|error| error.valid_up_to())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn bytes_are_text_where_the_standard_library_says_so(
            bytes in prop_oneof![
                any::<Vec<u8>>(),
                any::<String>().prop_map(String::into_bytes),
                "[ -~]{0,40}[\u{80}-\u{ff}]?".prop_map(String::into_bytes),
            ]
        ) {
            let standard = std::str::from_utf8(&bytes).map_err(|error| error.valid_up_to());
            prop_assert_eq!(check(&bytes), standard);
        }
    }
}
