//! File trees without file contents, and the offsets of the contents in the NAR.

use std::collections::BTreeMap;

use crate::nar::padding_len;

/// A file, a symlink, or a directory with its entries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Node {
    /// A regular file.
    File {
        /// Whether the file is executable.
        executable: bool,
        /// Size of the contents, in bytes.
        size: u64,
    },
    /// A symlink.
    Symlink {
        /// The target.
        target: Vec<u8>,
    },
    /// A directory.
    Directory {
        /// The entries, by name.
        entries: BTreeMap<Vec<u8>, Node>,
    },
}

impl Node {
    /// Returns the size of the NAR of this tree, in bytes.
    ///
    /// Returns `u64::MAX` if the size does not fit into 64 bits.
    pub fn nar_size(&self) -> u64 {
        self.walk(MAGIC_LEN, &mut |_, _, _| {}, &mut Vec::new())
    }

    /// Returns the size of the NAR of this tree and the extents of its files.
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

    /// Returns what stands at a place in the tree; `names` lead there from the root.
    pub fn find(&self, names: &[&[u8]]) -> FoundNode<'_> {
        let mut node = self;
        for (depth, name) in names.iter().enumerate() {
            match node {
                Node::Directory { entries } => match entries.get(*name) {
                    Some(entry) => node = entry,
                    None => return FoundNode::Absent,
                },
                Node::Symlink { target } => return FoundNode::Link { depth, target },
                Node::File { .. } => return FoundNode::Absent,
            }
        }
        FoundNode::Node(node)
    }

    /// Visits the files of a node that starts at `offset`, in the order of the NAR.
    ///
    /// Returns the offset of the end of the node.
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

/// The result of a search for a place in a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FoundNode<'node> {
    /// A node, which may be a symlink.
    Node(&'node Node),
    /// Nothing, because a symlink stands on the way.
    Link {
        /// How many of the names lead to the symlink.
        depth: usize,
        /// Its target.
        target: &'node [u8],
    },
    /// Nothing.
    Absent,
}

/// The size of a NAR and the extents of its files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NarLayout<'node> {
    /// Size of the NAR, in bytes.
    pub nar_size: u64,
    /// The extents of the files, in the order of the NAR.
    pub files: Vec<FileExtent<'node>>,
}

/// The position of the contents of a file in a NAR.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileExtent<'node> {
    /// The names from the root to the file. Empty if the root is a file.
    pub path: Vec<&'node [u8]>,
    /// Offset of the contents in the NAR, in bytes.
    pub offset: u64,
    /// Size of the contents, in bytes.
    pub size: u64,
}

/// A callback that gets the path of a file, and the offset and the size of its contents.
type Visit<'visit, 'node> = dyn FnMut(&[&'node [u8]], u64, u64) + 'visit;

/// Returns the length of contents and their padding.
fn padded(size: u64) -> u64 {
    size.saturating_add(padding_len(size) as u64)
}

/// Returns the length of a string, its length field and its padding.
fn string_len(string: &[u8]) -> u64 {
    padded(string.len() as u64).saturating_add(8)
}

// The lengths of the fixed parts of a NAR, as the sums of the lengths of their strings.
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
    fn sizes_near_u64_max_do_not_overflow() {
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
        fn layout_is_that_of_written_nar(node in node()) {
            let nar = write_node(&node);
            let layout = node.layout();
            prop_assert_eq!(layout.nar_size, nar.len() as u64);
            prop_assert_eq!(node.nar_size(), nar.len() as u64);
            for extent in &layout.files {
                // In these NARs, every byte of a file has the value of the file size.
                let start = usize::try_from(extent.offset).unwrap();
                let contents = &nar[start..start + usize::try_from(extent.size).unwrap()];
                prop_assert!(contents.iter().all(|&byte| u64::from(byte) == extent.size));
            }
        }
    }
}
