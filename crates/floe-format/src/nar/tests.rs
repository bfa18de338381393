//! Strategies for file trees, for the tests of the NAR modules.

use proptest::collection::{btree_map, vec};
use proptest::prelude::*;

use crate::nar::layout::Node;
use crate::nar::{is_valid_entry_name, write};

/// Returns a strategy for trees of a few nodes. Files are smaller than 256 bytes.
pub(crate) fn node() -> impl Strategy<Value = Node> {
    let leaf = prop_oneof![
        (any::<bool>(), 0_u64..256).prop_map(|(executable, size)| Node::File { executable, size }),
        vec(1_u8..=255, 1..20).prop_map(|target| Node::Symlink { target }),
        Just(Node::Directory {
            entries: Default::default()
        }),
    ];
    let name =
        vec(1_u8..=255, 1..12).prop_filter("an entry name", |name| is_valid_entry_name(name));
    leaf.prop_recursive(5, 30, 6, move |node| {
        btree_map(name.clone(), node, 0..6).prop_map(|entries| Node::Directory { entries })
    })
}

/// Returns a strategy like [`node`], with names and targets in UTF-8 and any file sizes.
pub(crate) fn utf8_node() -> impl Strategy<Value = Node> {
    let leaf = prop_oneof![
        (any::<bool>(), any::<u64>())
            .prop_map(|(executable, size)| Node::File { executable, size }),
        "[^\\x00]{1,10}".prop_map(|target| Node::Symlink {
            target: target.into_bytes()
        }),
    ];
    let name = "[^\\x00/]{1,8}"
        .prop_map(String::into_bytes)
        .prop_filter("an entry name", |name| is_valid_entry_name(name));
    leaf.prop_recursive(5, 30, 6, move |node| {
        btree_map(name.clone(), node, 0..6).prop_map(|entries| Node::Directory { entries })
    })
}

/// Returns the NAR of a tree. Every byte of a file has the value of the file size.
pub(crate) fn write_node(node: &Node) -> Vec<u8> {
    let mut out = Vec::new();
    write::begin(&mut out);
    append_node(&mut out, node);
    out
}

fn append_node(out: &mut Vec<u8>, node: &Node) {
    match node {
        Node::File { executable, size } => {
            write::begin_file(out, *executable, *size);
            let byte = u8::try_from(*size).expect("sizes in tests are below 256");
            out.resize(out.len() + usize::from(byte), byte);
            write::end_file(out, *size);
        }
        Node::Symlink { target } => write::symlink(out, target),
        Node::Directory { entries } => {
            write::begin_directory(out);
            for (name, node) in entries {
                write::begin_entry(out, name);
                append_node(out, node);
                write::end_entry(out);
            }
            write::end_directory(out);
        }
    }
}
