//! NARs: the archives that Nix hashes and transfers.
//!
//! A NAR is a sequence of strings. Each string is preceded by its length as eight little-endian
//! bytes, and padded with zeros to a multiple of eight bytes. Every file tree has exactly one NAR.

mod error;
pub mod layout;
pub mod listing;
pub mod read;
pub mod write;

#[cfg(test)]
pub(crate) mod tests;

/// The first string of every NAR.
pub const MAGIC: &[u8] = b"nix-archive-1";

/// Maximum number of nested nodes, counting the root. The reader rejects deeper NARs.
pub const DEPTH_MAX: usize = 64;

/// Maximum length of the name of a directory entry, in bytes.
pub const NAME_LEN_MAX: usize = 255;

/// Maximum length of a symlink target, in bytes.
pub const TARGET_LEN_MAX: usize = 4095;

/// Maximum length of a string where the format requires a tag such as `type`.
pub(crate) const TAG_LEN_MAX: usize = 32;

/// Returns whether a NAR may have a directory entry with this name.
pub fn is_valid_entry_name(name: &[u8]) -> bool {
    name.len() <= NAME_LEN_MAX
        && !matches!(name, b"" | b"." | b"..")
        && !name.iter().any(|&byte| byte == b'/' || byte == 0)
}

/// Returns whether a NAR may have a symlink with this target.
pub fn is_valid_symlink_target(target: &[u8]) -> bool {
    !target.is_empty() && target.len() <= TARGET_LEN_MAX && !target.contains(&0)
}

/// Returns the number of padding bytes after a string of length `len`.
pub(crate) const fn padding_len(len: u64) -> usize {
    // At most seven, so the conversion is lossless.
    ((8 - len % 8) % 8) as usize
}
