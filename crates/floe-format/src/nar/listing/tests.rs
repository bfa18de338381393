//! Tests with hand-written listings. The integration tests use listings by Nix.

use proptest::prelude::*;

use super::*;
use crate::nar::tests::utf8_node;

fn parse(text: &str) -> Result<Listing, ListingError> {
    Listing::parse(text.as_bytes())
}

fn with_root(root: &str) -> Result<Listing, ListingError> {
    parse(&format!(r#"{{"version":1,"root":{root}}}"#))
}

/// Returns `depth` nested directories.
fn nested(depth: usize) -> Node {
    let mut node = Node::Directory {
        entries: BTreeMap::new(),
    };
    for _ in 1..depth {
        node = Node::Directory {
            entries: BTreeMap::from([(b"d".to_vec(), node)]),
        };
    }
    node
}

#[test]
fn optional_and_unknown_fields_are_accepted() {
    let listing = with_root(r#"{"type":"regular","size":3,"more":[]}"#).unwrap();
    assert_eq!(
        listing.root,
        Node::File {
            executable: false,
            size: 3
        }
    );
    assert_eq!(listing.offsets, [None]);
    assert!(listing.offsets_match());
    let listing = with_root(r#"{"type":"regular","size":3,"narOffset":0}"#).unwrap();
    assert_eq!(listing.offsets, [None], "an offset of zero means none");
    let listing = with_root(r#"{"type":"regular","size":3,"executable":false}"#).unwrap();
    assert_eq!(
        listing.root,
        Node::File {
            executable: false,
            size: 3
        }
    );
}

#[test]
fn wrong_offsets_do_not_match() {
    let listing = |offset| {
        with_root(&format!(
            r#"{{"type":"regular","size":3,"narOffset":{offset}}}"#
        ))
        .unwrap()
    };
    assert!(listing(96).offsets_match());
    assert!(!listing(104).offsets_match());
}

#[test]
fn other_version_is_error() {
    let root = r#""root":{"type":"regular","size":3}"#;
    assert!(matches!(
        parse(&format!("{{{root}}}")),
        Err(ListingError::Version(_))
    ));
    for version in ["0", "2", "\"1\"", "1.0", "null"] {
        let text = format!(r#"{{"version":{version},{root}}}"#);
        assert!(
            matches!(parse(&text), Err(ListingError::Version(_))),
            "{version}"
        );
    }
}

#[test]
fn malformed_node_is_error_with_path_and_field() {
    for (root, field) in [
        ("[]", "type"),
        ("{}", "type"),
        (r#"{"type":"fifo"}"#, "type"),
        (r#"{"type":"regular"}"#, "size"),
        (r#"{"type":"regular","size":-1}"#, "size"),
        (
            r#"{"type":"regular","size":1,"executable":1}"#,
            "executable",
        ),
        (
            r#"{"type":"regular","size":1,"narOffset":"8"}"#,
            "narOffset",
        ),
        (r#"{"type":"symlink"}"#, "target"),
        (r#"{"type":"symlink","target":""}"#, "target"),
        (r#"{"type":"directory"}"#, "entries"),
        (r#"{"type":"directory","entries":[]}"#, "entries"),
    ] {
        let nested = format!(r#"{{"type":"directory","entries":{{"a":{root}}}}}"#);
        match with_root(&nested) {
            Err(ListingError::Field { path, field: found }) => {
                assert_eq!((path.as_str(), found), ("a", field), "{root}");
            }
            other => panic!("{root}: {other:?}"),
        }
    }
    for text in ["", "{", "[]", "null", "{}x"] {
        assert!(
            matches!(parse(text), Err(ListingError::Json(_))),
            "{text:?}"
        );
    }
}

#[test]
fn invalid_entry_name_is_error() {
    for name in ["", ".", "..", "a/b", "\\u0000"] {
        let root = format!(
            r#"{{"type":"directory","entries":{{"{name}":{{"type":"regular","size":1}}}}}}"#
        );
        assert!(
            matches!(with_root(&root), Err(ListingError::Name { .. })),
            "{name:?}"
        );
    }
}

#[test]
fn tree_with_non_utf8_strings_has_no_listing() {
    let target = Node::Symlink {
        target: b"\xff".to_vec(),
    };
    assert!(matches!(to_text(&target), Err(ListingError::NotUtf8(_))));
    let entries = BTreeMap::from([(
        b"\xff".to_vec(),
        Node::File {
            executable: false,
            size: 0,
        },
    )]);
    assert!(matches!(
        to_text(&Node::Directory { entries }),
        Err(ListingError::NotUtf8(_))
    ));
}

#[test]
fn depth_and_length_are_limited() {
    let deepest = nested(LISTING_DEPTH_MAX);
    let text = to_text(&deepest).unwrap();
    assert_eq!(parse(&text).unwrap().root, deepest);
    assert!(matches!(
        to_text(&nested(LISTING_DEPTH_MAX + 1)),
        Err(ListingError::TooDeep)
    ));
    let hostile = r#"{"entries":{"d":"#.repeat(100_000);
    assert!(matches!(parse(&hostile), Err(ListingError::Json(_))));
    let long = vec![b' '; LISTING_LEN_MAX + 1];
    assert!(matches!(
        Listing::parse(&long),
        Err(ListingError::TooLong(_))
    ));
}

proptest! {
    #[test]
    fn parse_reverses_to_text(node in utf8_node()) {
        let listing = Listing::parse(to_text(&node).unwrap().as_bytes()).unwrap();
        prop_assert!(listing.offsets_match());
        prop_assert!(listing.offsets.iter().all(Option::is_some));
        prop_assert_eq!(listing.root, node);
    }
}
