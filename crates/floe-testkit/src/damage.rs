//! Damage to files that other programs find.

/// Changes the integrity check of the last block of an xz file, whose contents stay right.
///
/// The check lies before the index and the footer. The footer has 12 bytes; its second word is the
/// length of the index in words, less one (the .xz file format, section 2.1.2).
///
/// # Panics
/// If the file is not a whole xz file.
pub fn with_wrong_xz_check(mut file: Vec<u8>) -> Vec<u8> {
    let footer = file.len() - 12;
    let index_words = file[footer + 4..footer + 8].try_into().unwrap();
    let index_len = 4 * (u32::from_le_bytes(index_words) as usize + 1);
    file[footer - index_len - 1] ^= 1;
    file
}
