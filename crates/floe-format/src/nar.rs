//! NARs, the archives that Nix hashes and ships: reading, writing, measuring and listing them.
//!
//! A NAR is a sequence of strings, each preceded by its length as eight little-endian bytes and
//! followed by zeros up to a multiple of eight. For every file tree there is exactly one.

mod error;
pub mod layout;
pub mod listing;
pub mod read;
pub mod write;

#[cfg(test)]
pub(crate) mod tests;

/// The string that every NAR begins with.
pub const MAGIC: &[u8] = b"nix-archive-1";

/// How many nodes may contain one another: the root and 63 more. Deeper NARs are refused.
pub const DEPTH_MAX: usize = 64;

/// The longest name of a directory entry.
pub const NAME_LEN_MAX: usize = 255;

/// The longest symlink target.
pub const TARGET_LEN_MAX: usize = 4095;

/// The longest string that is read where one of the format's own words is expected.
pub(crate) const TAG_LEN_MAX: usize = 32;

/// Whether a NAR may have a directory entry with this name.
pub fn is_valid_entry_name(name: &[u8]) -> bool {
    name.len() <= NAME_LEN_MAX
        && !matches!(name, b"" | b"." | b"..")
        && !name.iter().any(|&byte| byte == b'/' || byte == 0)
}

/// Whether a NAR may have a symlink with this target.
pub fn is_valid_symlink_target(target: &[u8]) -> bool {
    !target.is_empty() && target.len() <= TARGET_LEN_MAX && !target.contains(&0)
}

/// Number of zeros between so many bytes and the next multiple of eight.
pub(crate) const fn padding_len(len: u64) -> usize {
    // At most seven, so the conversion keeps it whole.
    ((8 - len % 8) % 8) as usize
}
