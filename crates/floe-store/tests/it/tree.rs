//! Trees and their NARs: unpacking a NAR and dumping the tree gives the same NAR.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::Path;

use floe_format::nar::layout::Node;
use floe_store::StoreError;
use floe_store::tree::{dump_path, list_tree};
use proptest::prelude::*;

use crate::support::{Scratch, names, nar_of, path, unpack};

pub(crate) fn nar(path: &Path) -> Vec<u8> {
    let mut nar = Vec::new();
    dump_path(path, &mut |chunk| {
        nar.extend_from_slice(chunk);
        Ok::<_, StoreError>(())
    })
    .unwrap();
    nar
}

/// A tree to create: contents for files, targets for links.
#[derive(Clone, Debug)]
pub(crate) enum Tree {
    File { executable: bool, contents: Vec<u8> },
    Link(String),
    Directory(BTreeMap<String, Tree>),
}

pub(crate) fn trees() -> impl Strategy<Value = Tree> {
    let contents = prop_oneof![
        proptest::collection::vec(any::<u8>(), 0..40),
        // Sizes around and above the size of a chunk.
        (0..3_usize, 0..20_usize).prop_map(|(chunks, rest)| vec![7; chunks * 262_144 + rest]),
    ];
    let leaf = prop_oneof![
        (any::<bool>(), contents).prop_map(|(executable, contents)| Tree::File {
            executable,
            contents
        }),
        "[a-z./]{1,20}".prop_map(Tree::Link),
    ];
    leaf.prop_recursive(4, 30, 6, |inner| {
        proptest::collection::btree_map("[a-zA-Z0-9 é._-]{3,12}", inner, 0..6)
            .prop_map(Tree::Directory)
    })
}

pub(crate) fn make(tree: &Tree, at: &Path) {
    match tree {
        Tree::File {
            executable,
            contents,
        } => {
            fs::write(at, contents).unwrap();
            let mode = if *executable { 0o755 } else { 0o600 };
            fs::set_permissions(at, fs::Permissions::from_mode(mode)).unwrap();
        }
        Tree::Link(target) => symlink(target, at).unwrap(),
        Tree::Directory(entries) => {
            fs::create_dir(at).unwrap();
            for (name, tree) in entries {
                make(tree, &at.join(name));
            }
        }
    }
}

pub(crate) fn assert_sealed(at: &Path) {
    let stat = fs::symlink_metadata(at).unwrap();
    assert_eq!(stat.mtime(), 1, "{}", at.display());
    if stat.is_dir() {
        assert_eq!(stat.mode() & 0o7777, 0o555, "{}", at.display());
        for entry in fs::read_dir(at).unwrap() {
            assert_sealed(&entry.unwrap().path());
        }
    } else if stat.is_file() {
        assert!(
            matches!(stat.mode() & 0o7777, 0o444 | 0o555),
            "{}",
            at.display()
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    #[test]
    fn unpacked_tree_dumps_to_the_same_nar(
        tree in trees(),
        cut in 1..100_000_usize,
    ) {
        let scratch = Scratch::new();
        let writer = scratch.writer();
        let original = scratch.path().join("original");
        make(&tree, &original);
        let expected = nar(&original);
        prop_assert_eq!(list_tree(&original).unwrap().nar_size(), expected.len() as u64);
        let mut tree_writer = writer.tree_writer(&path('1', "tree"));
        for chunk in expected.chunks(cut) {
            tree_writer.write(chunk).unwrap();
        }
        let unpacked = tree_writer.finish().unwrap();
        assert_sealed(unpacked.location());
        prop_assert!(nar(unpacked.location()) == expected);
    }
}

#[test]
fn dropped_tree_is_removed() {
    let scratch = Scratch::new();
    let writer = scratch.writer();
    let tree = unpack(&writer, &path('1', "tree"), &nar_of(b"contents"));
    assert_eq!(names(&scratch.layout()).len(), 1);
    drop(tree);
    assert!(names(&scratch.layout()).is_empty());
    // An unfinished tree is removed as well.
    let nar = nar_of(b"contents");
    let mut unfinished = writer.tree_writer(&path('1', "tree"));
    unfinished.write(&nar[..nar.len() - 1]).unwrap();
    assert_eq!(names(&scratch.layout()).len(), 1);
    assert!(matches!(unfinished.finish(), Err(StoreError::Nar { .. })));
    assert!(names(&scratch.layout()).is_empty());
}

#[test]
fn unsupported_file_is_named_in_the_error() {
    let scratch = Scratch::new();
    let socket = scratch.path().join("socket");
    let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    let read = dump_path(&socket, &mut |_| Ok::<_, StoreError>(()));
    assert!(matches!(read, Err(StoreError::UnsupportedFile(path)) if path == socket));
    let mut deep = scratch.path().join("deep");
    for _ in 0..70 {
        fs::create_dir(&deep).unwrap();
        deep.push("d");
    }
    let read = dump_path(&scratch.path().join("deep"), &mut |_| {
        Ok::<_, StoreError>(())
    });
    assert!(matches!(read, Err(StoreError::TooDeep(_))));
}

#[test]
fn list_tree_returns_sizes_modes_and_targets() {
    let scratch = Scratch::new();
    let root = scratch.path().join("root");
    fs::create_dir(&root).unwrap();
    fs::write(root.join("file"), "12345").unwrap();
    symlink("file", root.join("link")).unwrap();
    let Node::Directory { entries } = list_tree(&root).unwrap() else {
        panic!("no directory")
    };
    assert_eq!(
        entries[&b"file"[..]],
        Node::File {
            executable: false,
            size: 5
        }
    );
    assert_eq!(
        entries[&b"link"[..]],
        Node::Symlink {
            target: b"file".to_vec()
        }
    );
}

#[test]
fn existing_tree_of_other_process_is_untouched() {
    let scratch = Scratch::new();
    let writer = scratch.writer();
    let path = path('1', "tree");
    // The name that a process with the same number in another PID namespace would use.
    let name = format!("{}-floe-{}-0", path.hash_part(), std::process::id());
    let foreign = scratch.layout().real_store_dir.join(name);
    fs::create_dir(&foreign).unwrap();
    fs::write(foreign.join("file"), "theirs").unwrap();
    let tree = unpack(&writer, &path, &nar_of(b"ours"));
    assert_ne!(tree.location(), foreign);
    assert_eq!(fs::read(tree.location()).unwrap(), b"ours");
    drop(tree);
    drop(writer.tree_writer(&path));
    assert_eq!(fs::read(foreign.join("file")).unwrap(), b"theirs");
    assert_eq!(names(&scratch.layout()).len(), 1);
}
