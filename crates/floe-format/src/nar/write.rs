//! The writer of NARs: appends the framing to a buffer. The caller adds the contents of files.
//!
//! A NAR is [`begin`] and one node. A node is one of:
//!
//! - [`begin_file`], the announced number of bytes, [`end_file`];
//! - [`symlink`];
//! - [`begin_directory`], then for each entry [`begin_entry`], a node and [`end_entry`], then
//!   [`end_directory`].
//!
//! The functions check nothing. The caller must sort the entries by name, and check names and
//! targets with [`is_valid_entry_name`](crate::nar::is_valid_entry_name) and
//! [`is_valid_symlink_target`](crate::nar::is_valid_symlink_target).

use crate::nar::{MAGIC, padding_len};

/// Appends the start of a NAR.
pub fn begin(out: &mut Vec<u8>) {
    string(out, MAGIC);
}

/// Appends the start of a directory.
pub fn begin_directory(out: &mut Vec<u8>) {
    strings(out, &[b"(", b"type", b"directory"]);
}

/// Appends the start of a directory entry, up to its node.
pub fn begin_entry(out: &mut Vec<u8>, name: &[u8]) {
    strings(out, &[b"entry", b"(", b"name", name, b"node"]);
}

/// Appends the end of a directory entry.
pub fn end_entry(out: &mut Vec<u8>) {
    string(out, b")");
}

/// Appends the end of a directory.
pub fn end_directory(out: &mut Vec<u8>) {
    string(out, b")");
}

/// Appends a symlink.
pub fn symlink(out: &mut Vec<u8>, target: &[u8]) {
    strings(out, &[b"(", b"type", b"symlink", b"target", target, b")"]);
}

/// Appends the start of a file, up to its contents of `size` bytes.
pub fn begin_file(out: &mut Vec<u8>, executable: bool, size: u64) {
    strings(out, &[b"(", b"type", b"regular"]);
    if executable {
        strings(out, &[b"executable", b""]);
    }
    string(out, b"contents");
    out.extend_from_slice(&size.to_le_bytes());
}

/// Appends the end of a file with contents of `size` bytes.
pub fn end_file(out: &mut Vec<u8>, size: u64) {
    pad(out, size);
    string(out, b")");
}

fn strings(out: &mut Vec<u8>, strings: &[&[u8]]) {
    for bytes in strings {
        string(out, bytes);
    }
}

fn string(out: &mut Vec<u8>, bytes: &[u8]) {
    let len = bytes.len() as u64;
    out.extend_from_slice(&len.to_le_bytes());
    out.extend_from_slice(bytes);
    pad(out, len);
}

fn pad(out: &mut Vec<u8>, len: u64) {
    out.resize(out.len() + padding_len(len), 0);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_padded_to_multiple_of_eight() {
        for (len, written) in [(0, 8), (1, 16), (7, 16), (8, 16), (9, 24)] {
            let mut out = Vec::new();
            string(&mut out, &vec![b'x'; len]);
            assert_eq!(out.len(), written);
            assert_eq!(out.first().copied(), u8::try_from(len).ok());
            assert_eq!(&out[8..8 + len], vec![b'x'; len]);
            assert!(out[8 + len..].iter().all(|&byte| byte == 0));
        }
    }

    #[test]
    fn nar_of_empty_file_has_112_bytes() {
        let mut out = Vec::new();
        begin(&mut out);
        begin_file(&mut out, false, 0);
        end_file(&mut out, 0);
        assert_eq!(out.len(), 112);
    }
}
