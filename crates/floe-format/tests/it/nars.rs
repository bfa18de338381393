//! Tests with NARs and listings that Nix wrote.

use std::collections::BTreeMap;

use floe_format::content_address::ModuloHasher;
use floe_format::nar::layout::Node;
use floe_format::nar::listing::{self, Listing};
use floe_format::nar::read::{NarEvent, NarReader};
use floe_format::{HashAlgorithm, NarInfo, StoreDir};

use crate::{vector, vectors_in};

/// Reads the tree of a NAR.
fn read(nar: &[u8]) -> Node {
    let mut reader = NarReader::new();
    let mut input = nar;
    let mut open = Vec::new();
    let mut names: Vec<Vec<u8>> = Vec::new();
    let mut root = None;
    let mut file = None;
    while let Some(event) = reader.next(&mut input).expect("a valid NAR") {
        let done = match event {
            NarEvent::Directory => {
                open.push(BTreeMap::new());
                None
            }
            NarEvent::Entry { name } => {
                names.push(name.to_vec());
                None
            }
            NarEvent::File { executable, size } => {
                file = Some(Node::File { executable, size });
                None
            }
            NarEvent::Data(_) | NarEvent::End => None,
            NarEvent::EndDirectory => open.pop().map(|entries| Node::Directory { entries }),
            NarEvent::Symlink { target } => Some(Node::Symlink {
                target: target.to_vec(),
            }),
            NarEvent::EndFile => file.take(),
        };
        if let Some(node) = done {
            match (open.last_mut(), names.pop()) {
                (Some(entries), Some(name)) => {
                    entries.insert(name, node);
                }
                _ => root = Some(node),
            }
        }
    }
    reader.finish().expect("a complete NAR");
    root.expect("a NAR has a root")
}

#[test]
fn nars_of_nix_read_with_their_size() {
    for (name, nar) in vectors_in("nar", ".nar") {
        assert_eq!(read(&nar).nar_size(), nar.len() as u64, "{name}");
    }
}

#[test]
fn root_nodes_have_their_kind() {
    let root = |name: &str| read(&vector(&format!("nar/{name}.nar")));
    assert_eq!(
        root("file"),
        Node::File {
            executable: false,
            size: 9
        }
    );
    assert_eq!(
        root("empty-file"),
        Node::File {
            executable: false,
            size: 0
        }
    );
    assert_eq!(
        root("executable"),
        Node::File {
            executable: true,
            size: 21
        }
    );
    assert_eq!(
        root("symlink"),
        Node::Symlink {
            target: b"bin/hello".to_vec()
        }
    );
    assert_eq!(
        root("empty-directory"),
        Node::Directory {
            entries: BTreeMap::new()
        }
    );
}

#[test]
fn layout_has_offsets_of_file_contents() {
    let nar = vector("nar/tree.nar");
    let tree = read(&nar);
    let layout = tree.layout();
    let contents = |path: &[&[u8]]| {
        let extent = layout
            .files
            .iter()
            .find(|extent| extent.path == path)
            .unwrap();
        let start = usize::try_from(extent.offset).unwrap();
        &nar[start..start + usize::try_from(extent.size).unwrap()]
    };
    assert_eq!(contents(&[b"bin", b"hello"]), b"#!/bin/sh\necho hello\n");
    assert_eq!(contents(&[b"share", b"nine"]), b"123456789");
    assert_eq!(contents(&[b"share", b"nothing"]), b"");
    assert_eq!(contents(&[b"a.b"]), b"aa");
}

#[test]
fn listings_print_as_by_nix() {
    for (name, expected) in vectors_in("nar", ".ls") {
        let tree = read(&vector(&format!("nar/{}", name.replace(".ls", ".nar"))));
        assert_eq!(
            listing::to_text(&tree).unwrap().into_bytes(),
            expected,
            "{name}"
        );
    }
}

#[test]
fn listings_parse_to_tree_and_offsets_of_nar() {
    for (name, text) in vectors_in("nar", ".ls") {
        let listing = Listing::parse(&text).unwrap();
        assert_eq!(
            listing.root,
            read(&vector(&format!("nar/{}", name.replace(".ls", ".nar"))))
        );
        assert!(listing.offsets.iter().all(Option::is_some), "{name}");
        assert!(listing.offsets_match(), "{name}");
    }
}

#[test]
fn modulo_hash_is_content_address_of_nix() {
    // Nix 2.8.0 made the first path. Nix 2.34.8, which omits the offsets, made the second.
    for (name, with_offsets) in [
        ("self-reference-with-offsets", true),
        ("self-reference-without-offsets", false),
    ] {
        let text = vector(&format!("nar/{name}.narinfo"));
        let info = NarInfo::parse(&text, &StoreDir::default()).unwrap().info;
        let nar = vector(&format!("nar/{name}.nar"));
        assert!(info.has_self_reference());
        assert_eq!(
            info.matches_content_address(&StoreDir::default()),
            Some(true)
        );
        for len in [1, 7, 32, 100, nar.len()] {
            let mut hasher =
                ModuloHasher::new(HashAlgorithm::Sha256, info.path.hash_part().as_str());
            nar.chunks(len).for_each(|piece| hasher.update(piece));
            let hashes = hasher.finish_both();
            let hash = if with_offsets {
                hashes.hash
            } else {
                hashes.without_offsets
            };
            assert_eq!(hash, info.ca.unwrap().hash, "{name} in pieces of {len}");
            assert_ne!(hashes.hash, hashes.without_offsets);
        }
    }
}
