//! NARs written by hand.

use std::path::Path;

use floe_format::nar::write;

/// Writes a node.
pub type Node<'a> = &'a dyn Fn(&mut Vec<u8>);

/// Returns the start of a NAR.
pub fn start() -> Vec<u8> {
    let mut nar = Vec::new();
    write::begin(&mut nar);
    nar
}

/// Returns the NAR of a file.
pub fn file(contents: &[u8]) -> Vec<u8> {
    let mut nar = start();
    file_node(&mut nar, contents);
    nar
}

/// Returns the NAR of a symlink.
pub fn symlink(target: &Path) -> Vec<u8> {
    let mut nar = start();
    write::symlink(&mut nar, target.as_os_str().as_encoded_bytes());
    nar
}

/// Returns the NAR of a directory with these entries, in this order.
pub fn directory(entries: &[(&[u8], Node<'_>)]) -> Vec<u8> {
    let mut nar = start();
    directory_node(&mut nar, entries);
    nar
}

/// Writes the node of a file.
pub fn file_node(nar: &mut Vec<u8>, contents: &[u8]) {
    write::begin_file(nar, false, contents.len() as u64);
    nar.extend_from_slice(contents);
    write::end_file(nar, contents.len() as u64);
}

/// Writes the node of a directory with these entries, in this order.
pub fn directory_node(nar: &mut Vec<u8>, entries: &[(&[u8], Node<'_>)]) {
    write::begin_directory(nar);
    for (name, node) in entries {
        write::begin_entry(nar, name);
        node(nar);
        write::end_entry(nar);
    }
    write::end_directory(nar);
}
