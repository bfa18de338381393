//! A file tree without its contents, and where in its NAR each file's contents are.

use std::collections::BTreeMap;

use crate::nar::padding_len;

/// A file, a symlink or a directory with all that is in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Node {
    /// A file.
    File {
        /// Whether it may be executed.
        executable: bool,
        /// The size of its contents.
        size: u64,
    },
    /// A symlink.
    Symlink {
        /// What it points to.
        target: Vec<u8>,
    },
    /// A directory.
    Directory {
        /// What is in it, by name.
        entries: BTreeMap<Vec<u8>, Node>,
    },
}

impl Node {
    /// The size of the NAR of this tree.
    ///
    /// Sizes that add up to more than a NAR can have give `u64::MAX`.
    pub fn nar_size(&self) -> u64 {
        self.walk(MAGIC_LEN, &mut |_, _, _| {}, &mut Vec::new())
    }

    /// Where in the NAR of this tree the contents of each file are.
    pub fn layout(&self) -> NarLayout<'_> {
        let mut files = Vec::new();
        let nar_size = self.walk(
            MAGIC_LEN,
            &mut |path, offset, size| {
                files.push(FileExtent {
                    path: path.to_vec(),
                    offset,
                    size,
                })
            },
            &mut Vec::new(),
        );
        NarLayout { nar_size, files }
    }

    /// Goes through the tree in the order of its NAR, with the node beginning at `offset`, tells
    /// `file` of each file, and gives the offset at which the node ends.
    fn walk<'node>(
        &'node self,
        offset: u64,
        file: &mut Visit<'_, 'node>,
        path: &mut Vec<&'node [u8]>,
    ) -> u64 {
        match self {
            Node::File { executable, size } => {
                let marker = if *executable { EXECUTABLE_LEN } else { 0 };
                let contents = offset.saturating_add(FILE_HEADER_LEN + marker);
                file(path, contents, *size);
                contents
                    .saturating_add(padded(*size))
                    .saturating_add(CLOSE_LEN)
            }
            Node::Symlink { target } => offset
                .saturating_add(SYMLINK_LEN)
                .saturating_add(string_len(target)),
            Node::Directory { entries } => {
                let mut offset = offset.saturating_add(DIRECTORY_LEN);
                for (name, node) in entries {
                    path.push(name);
                    let start = offset
                        .saturating_add(ENTRY_LEN)
                        .saturating_add(string_len(name));
                    offset = node.walk(start, file, path).saturating_add(CLOSE_LEN);
                    path.pop();
                }
                offset.saturating_add(CLOSE_LEN)
            }
        }
    }
}

/// Where things are in the NAR of a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NarLayout<'node> {
    /// The size of the NAR.
    pub nar_size: u64,
    /// The files, in the order of the NAR.
    pub files: Vec<FileExtent<'node>>,
}

/// Where in a NAR the contents of a file are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileExtent<'node> {
    /// The names that lead from the root to the file; none if the root is the file.
    pub path: Vec<&'node [u8]>,
    /// Where the contents begin.
    pub offset: u64,
    /// How long they are.
    pub size: u64,
}

/// What is told of each file: its path, and the offset and size of its contents.
type Visit<'visit, 'node> = dyn FnMut(&[&'node [u8]], u64, u64) + 'visit;

/// The length of contents with their padding.
fn padded(size: u64) -> u64 {
    size.saturating_add(padding_len(size) as u64)
}

/// The length of a string with its length in front and its padding.
fn string_len(string: &[u8]) -> u64 {
    padded(string.len() as u64).saturating_add(8)
}

// The lengths of the parts of a NAR, written as the sums of their strings.
const MAGIC_LEN: u64 = 24;
const CLOSE_LEN: u64 = 16; // ")"
const FILE_HEADER_LEN: u64 = 16 + 16 + 16 + 16 + 8; // "(" "type" "regular" "contents", size
const EXECUTABLE_LEN: u64 = 24 + 8; // "executable" ""
const SYMLINK_LEN: u64 = 16 + 16 + 16 + 16 + CLOSE_LEN; // "(" "type" "symlink" "target" …
const DIRECTORY_LEN: u64 = 16 + 16 + 24; // "(" "type" "directory"
const ENTRY_LEN: u64 = 16 + 16 + 16 + 16; // "entry" "(" "name" … "node"

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::nar::tests::{node, write_node};

    #[test]
    fn hostile_sizes_do_not_overflow() {
        let file = Node::File {
            executable: true,
            size: u64::MAX,
        };
        assert_eq!(file.nar_size(), u64::MAX);
        let entries = BTreeMap::from([(b"a".to_vec(), file.clone()), (b"b".to_vec(), file)]);
        assert_eq!(Node::Directory { entries }.layout().nar_size, u64::MAX);
    }

    proptest! {
        #[test]
        fn the_layout_is_that_of_the_written_nar(node in node()) {
            let nar = write_node(&node);
            let layout = node.layout();
            prop_assert_eq!(layout.nar_size, nar.len() as u64);
            prop_assert_eq!(node.nar_size(), nar.len() as u64);
            for extent in &layout.files {
                // The contents of each file are its size, over and over.
                let start = usize::try_from(extent.offset).unwrap();
                let contents = &nar[start..start + usize::try_from(extent.size).unwrap()];
                prop_assert!(contents.iter().all(|&byte| u64::from(byte) == extent.size));
            }
        }
    }
}
