//! Tests of the rules of the reader, each with several ways to cut the input into pieces.

use proptest::prelude::*;

use super::*;
use crate::nar::tests::{node, write_node};
use crate::nar::{DEPTH_MAX, layout::Node, write};

/// An event that owns its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Owned {
    Directory,
    Entry(Vec<u8>),
    EndDirectory,
    Symlink(Vec<u8>),
    File(bool, u64),
    Data(Vec<u8>),
    EndFile,
    End,
}

/// Returns the events of a NAR in pieces, with adjacent data joined.
fn read_pieces<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Result<Vec<Owned>, NarError> {
    let mut reader = NarReader::new();
    let mut events = Vec::new();
    let mut offset = 0;
    for mut piece in pieces {
        offset += piece.len() as u64;
        while let Some(event) = reader.next(&mut piece)? {
            match (event, events.last_mut()) {
                (NarEvent::Data(data), Some(Owned::Data(before))) => before.extend(data),
                (NarEvent::Directory, _) => events.push(Owned::Directory),
                (NarEvent::Entry { name }, _) => events.push(Owned::Entry(name.to_vec())),
                (NarEvent::EndDirectory, _) => events.push(Owned::EndDirectory),
                (NarEvent::Symlink { target }, _) => events.push(Owned::Symlink(target.to_vec())),
                (NarEvent::File { executable, size }, _) => {
                    events.push(Owned::File(executable, size))
                }
                (NarEvent::Data(data), _) => events.push(Owned::Data(data.to_vec())),
                (NarEvent::EndFile, _) => events.push(Owned::EndFile),
                (NarEvent::End, _) => events.push(Owned::End),
            }
        }
        assert!(piece.is_empty(), "None means that the input is used up");
        assert_eq!(reader.offset(), offset);
    }
    reader.finish()?;
    assert!(reader.is_finished());
    Ok(events)
}

fn read(nar: &[u8]) -> Result<Vec<Owned>, NarError> {
    let whole = read_pieces([nar]);
    assert_eq!(read_pieces(nar.chunks(1)), whole, "cut into single bytes");
    assert_eq!(read_pieces(nar.chunks(13)), whole, "cut into 13 bytes each");
    whole
}

/// Returns a NAR of these strings after the magic string.
fn nar(strings: &[&[u8]]) -> Vec<u8> {
    let mut out = Vec::new();
    write::begin(&mut out);
    for string in strings {
        append(&mut out, string);
    }
    out
}

fn append(out: &mut Vec<u8>, string: &[u8]) {
    out.extend((string.len() as u64).to_le_bytes());
    out.extend(string);
    out.resize(out.len().next_multiple_of(8), 0);
}

fn symlink(target: &[u8]) -> Vec<u8> {
    nar(&[b"(", b"type", b"symlink", b"target", target, b")"])
}

/// Returns the NAR of a directory of symlinks with these names.
fn directory(names: &[&[u8]]) -> Vec<u8> {
    let mut out = Vec::new();
    write::begin(&mut out);
    write::begin_directory(&mut out);
    for name in names {
        write::begin_entry(&mut out, name);
        write::symlink(&mut out, b"t");
        write::end_entry(&mut out);
    }
    write::end_directory(&mut out);
    out
}

/// Returns the NAR of `depth` nested directories.
fn nested(depth: usize) -> Vec<u8> {
    let mut out = Vec::new();
    write::begin(&mut out);
    for _ in 1..depth {
        write::begin_directory(&mut out);
        write::begin_entry(&mut out, b"d");
    }
    write::begin_directory(&mut out);
    write::end_directory(&mut out);
    for _ in 1..depth {
        write::end_entry(&mut out);
        write::end_directory(&mut out);
    }
    out
}

fn is_tag_error(nar: &[u8], wanted: &str) -> bool {
    matches!(read(nar), Err(NarError::Tag { expected, .. }) if expected == wanted)
}

#[test]
fn tree_returns_events_in_order() {
    let nar = [
        nar(&[
            b"(",
            b"type",
            b"directory",
            b"entry",
            b"(",
            b"name",
            b"a",
            b"node",
        ]),
        nar(&[
            b"(",
            b"type",
            b"regular",
            b"executable",
            b"",
            b"contents",
            b"123456789",
            b")",
        ])[24..]
            .to_vec(),
        nar(&[b")", b"entry", b"(", b"name", b"b", b"node"])[24..].to_vec(),
        nar(&[b"(", b"type", b"symlink", b"target", b"a", b")", b")", b")"])[24..].to_vec(),
    ]
    .concat();
    let expected = [
        Owned::Directory,
        Owned::Entry(b"a".to_vec()),
        Owned::File(true, 9),
        Owned::Data(b"123456789".to_vec()),
        Owned::EndFile,
        Owned::Entry(b"b".to_vec()),
        Owned::Symlink(b"a".to_vec()),
        Owned::EndDirectory,
        Owned::End,
    ];
    assert_eq!(read(&nar).unwrap(), expected);
}

#[test]
fn truncated_nar_is_error_at_finish() {
    let whole = directory(&[b"a", b"bb"]);
    for len in 0..whole.len() {
        let cut = &whole[..len];
        assert_eq!(
            read(cut),
            Err(NarError::Truncated { offset: len as u64 }),
            "after {len}"
        );
    }
    assert!(read(&whole).is_ok());
}

#[test]
fn changed_byte_is_error_or_changes_events() {
    let mut entries = std::collections::BTreeMap::new();
    entries.insert(
        b"a".to_vec(),
        Node::File {
            executable: true,
            size: 9,
        },
    );
    entries.insert(
        b"l".to_vec(),
        Node::Symlink {
            target: b"target".to_vec(),
        },
    );
    let whole = write_node(&Node::Directory { entries });
    let original = read(&whole).unwrap();
    let mut changed = whole.clone();
    for index in 0..whole.len() {
        for value in 0..=255 {
            if value == whole[index] {
                continue;
            }
            changed[index] = value;
            if let Ok(events) = read_pieces([changed.as_slice()]) {
                assert_ne!(events, original, "byte {index} is {value}");
            }
        }
        changed[index] = whole[index];
    }
}

#[test]
fn magic_is_required() {
    for start in ["nix-archive-2", "nix-archive-", "nix-archive-10", ""] {
        let mut bytes = Vec::new();
        append(&mut bytes, start.as_bytes());
        bytes.resize(64, 0);
        assert_eq!(read(&bytes), Err(NarError::Magic), "{start}");
    }
    assert_eq!(read(&[255; 8]), Err(NarError::Magic));
    let mut padded = symlink(b"t");
    padded[22] = 1;
    assert_eq!(read(&padded), Err(NarError::Magic));
    assert_eq!(read(&[]), Err(NarError::Truncated { offset: 0 }));
}

#[test]
fn wrong_tag_is_error() {
    assert!(is_tag_error(&nar(&[b"["]), "("));
    assert!(is_tag_error(&nar(&[b"(", b"kind"]), "type"));
    assert!(is_tag_error(
        &nar(&[b"(", b"type", b"fifo"]),
        "regular, directory or symlink"
    ));
    let regular = |rest: &[&[u8]]| nar(&[&[&b"("[..], b"type", b"regular"], rest].concat());
    assert!(
        is_tag_error(&regular(&[b")"]), "executable or contents"),
        "contents are mandatory"
    );
    assert!(is_tag_error(&regular(&[b"contents", b"", b"("]), ")"));
    assert!(is_tag_error(
        &regular(&[b"contents", b"", b"executable"]),
        ")"
    ));
    assert!(is_tag_error(
        &regular(&[b"executable", b"", b")"]),
        "contents"
    ));
    assert!(is_tag_error(
        &regular(&[b"executable", b"", b"executable"]),
        "contents"
    ));
    let symlink = |rest: &[&[u8]]| nar(&[&[&b"("[..], b"type", b"symlink"], rest].concat());
    assert!(is_tag_error(&symlink(&[b")"]), "target"));
    assert!(is_tag_error(&symlink(&[b"target", b"t", b"target"]), ")"));
    let directory = |rest: &[&[u8]]| nar(&[&[&b"("[..], b"type", b"directory"], rest].concat());
    assert!(is_tag_error(&directory(&[b"name"]), "entry or )"));
    assert!(is_tag_error(&directory(&[b"entry", b"name"]), "("));
    assert!(is_tag_error(&directory(&[b"entry", b"(", b"node"]), "name"));
    assert!(is_tag_error(
        &directory(&[b"entry", b"(", b"name", b"a", b")"]),
        "node"
    ));
}

#[test]
fn unclosed_entry_is_error() {
    let mut bytes = directory(&[b"a"]);
    bytes.truncate(bytes.len() - 32);
    append(&mut bytes, b"entry");
    assert!(is_tag_error(&bytes, ")"));
}

#[test]
fn string_length_is_limited_by_kind() {
    let limit = |nar: &[u8]| match read(nar) {
        Err(NarError::StringTooLong { kind, len, .. }) => (kind, len),
        other => panic!("{other:?}"),
    };
    assert_eq!(limit(&nar(&[&[b'('; 33]])), ("tag", 33));
    assert!(is_tag_error(&nar(&[&[b'('; 32]]), "("));
    assert!(read(&directory(&[&[b'n'; 255]])).is_ok());
    assert_eq!(limit(&directory(&[&[b'n'; 256]])), ("entry name", 256));
    assert!(read(&symlink(&[b't'; 4095])).is_ok());
    assert_eq!(limit(&symlink(&[b't'; 4096])), ("symlink target", 4096));
    let executable = nar(&[b"(", b"type", b"regular", b"executable", b"x"]);
    assert_eq!(limit(&executable), ("executable marker", 1));
    let mut endless = nar(&[]);
    endless.extend([255; 8]);
    assert_eq!(limit(&endless), ("tag", u64::MAX));
}

#[test]
fn invalid_entry_name_is_error() {
    for name in [&b""[..], b".", b"..", b"a/b", b"/", b"a\0b", b"\0"] {
        assert!(
            matches!(read(&directory(&[name])), Err(NarError::Name { .. })),
            "{name:?}"
        );
    }
    for name in [&b"..."[..], b".a", b" ", b"\xff\xfe", b"\\", b"a\nb"] {
        assert!(read(&directory(&[name])).is_ok(), "{name:?}");
    }
}

#[test]
fn unsorted_or_equal_entry_names_are_errors() {
    assert!(read(&directory(&[b"A", b"a", b"a.", b"a0", b"b", b"\xff"])).is_ok());
    for names in [[b"a", b"a"], [b"b", b"a"], [b"a", b"A"], [b"\xff", b"a"]] {
        let nar = directory(&names.map(|name| &name[..]));
        assert!(
            matches!(read(&nar), Err(NarError::Order { .. })),
            "{names:?}"
        );
    }
    assert!(matches!(
        read(&directory(&[b"ab", b"a"])),
        Err(NarError::Order { .. })
    ));
}

#[test]
fn entry_order_is_checked_per_directory() {
    let mut out = Vec::new();
    write::begin(&mut out);
    write::begin_directory(&mut out);
    write::begin_entry(&mut out, b"m");
    write::begin_directory(&mut out);
    write::begin_entry(&mut out, b"a");
    write::symlink(&mut out, b"t");
    write::end_entry(&mut out);
    write::end_directory(&mut out);
    write::end_entry(&mut out);
    let front = out.clone();
    for (name, is_ok) in [(b"n", true), (b"b", false), (b"m", false)] {
        let mut out = front.clone();
        write::begin_entry(&mut out, name);
        write::symlink(&mut out, b"t");
        write::end_entry(&mut out);
        write::end_directory(&mut out);
        assert_eq!(
            read(&out).is_ok(),
            is_ok,
            "{name:?} after m, which contains a"
        );
    }
}

#[test]
fn invalid_symlink_target_is_error() {
    for target in [&b""[..], b"a\0"] {
        assert!(
            matches!(read(&symlink(target)), Err(NarError::Target { .. })),
            "{target:?}"
        );
    }
    assert!(read(&symlink(b"/../\xff")).is_ok());
}

#[test]
fn nonzero_padding_is_error() {
    let mut out = symlink(b"t");
    let at = out.len() - 17;
    out[at] = 1;
    let offset = at as u64 - 6;
    assert_eq!(read(&out), Err(NarError::Padding { offset }));
    let mut out = nar(&[b"(", b"type", b"regular", b"contents", b"12345", b")"]);
    let at = out.len() - 17;
    out[at] = 1;
    let offset = at as u64 - 2;
    assert_eq!(read(&out), Err(NarError::Padding { offset }));
}

#[test]
fn depth_is_limited() {
    assert!(read(&nested(DEPTH_MAX)).is_ok());
    assert!(matches!(
        read(&nested(DEPTH_MAX + 1)),
        Err(NarError::TooDeep { .. })
    ));
    assert!(matches!(
        read(&nested(10_000)),
        Err(NarError::TooDeep { .. })
    ));
}

#[test]
fn bytes_after_end_are_error() {
    for end in [0, 1] {
        let mut out = symlink(b"t");
        let offset = out.len() as u64;
        out.push(end);
        assert_eq!(read(&out), Err(NarError::TrailingBytes { offset }));
    }
}

#[test]
fn file_sizes_near_u64_max_do_not_overflow() {
    for size in [u64::MAX, u64::MAX - 7, 1 << 63] {
        let mut out = Vec::new();
        write::begin(&mut out);
        write::begin_file(&mut out, false, size);
        out.extend(b"some contents");
        let mut reader = NarReader::new();
        let mut input = out.as_slice();
        assert_eq!(
            reader.next(&mut input),
            Ok(Some(NarEvent::File {
                executable: false,
                size
            }))
        );
        assert_eq!(
            reader.next(&mut input),
            Ok(Some(NarEvent::Data(b"some contents")))
        );
        assert_eq!(reader.next(&mut input), Ok(None));
        assert_eq!(
            reader.finish(),
            Err(NarError::Truncated {
                offset: out.len() as u64
            })
        );
    }
}

#[test]
fn data_borrows_from_input() {
    let nar = nar(&[b"(", b"type", b"regular", b"contents", &[7; 1000], b")"]);
    let mut reader = NarReader::new();
    let mut input = nar.as_slice();
    reader.next(&mut input).unwrap();
    let Some(NarEvent::Data(data)) = reader.next(&mut input).unwrap() else {
        panic!("no data")
    };
    assert_eq!(data.len(), 1000);
    assert!(nar.as_ptr_range().contains(&data.as_ptr()));
}

#[test]
fn error_is_returned_again() {
    let bytes = nar(&[b"["]);
    let good = symlink(b"t");
    let mut reader = NarReader::new();
    let error = reader.next(&mut bytes.as_slice()).unwrap_err();
    assert_eq!(reader.next(&mut good.as_slice()), Err(error.clone()));
    assert_eq!(reader.finish(), Err(error));
    assert!(!reader.is_finished());
}

/// Returns the tree that the events describe.
fn tree(events: &mut impl Iterator<Item = Owned>) -> Node {
    match events.next() {
        Some(Owned::File(executable, size)) => {
            while !matches!(events.next(), Some(Owned::EndFile)) {}
            Node::File { executable, size }
        }
        Some(Owned::Symlink(target)) => Node::Symlink { target },
        Some(Owned::Directory) => {
            let mut entries = std::collections::BTreeMap::new();
            while let Some(Owned::Entry(name)) = events.next() {
                entries.insert(name, tree(events));
            }
            Node::Directory { entries }
        }
        other => panic!("no node begins with {other:?}"),
    }
}

proptest! {
    #[test]
    fn read_reverses_write(node in node()) {
        let nar = write_node(&node);
        prop_assert_eq!(tree(&mut read(&nar).unwrap().into_iter()), node);
    }

    #[test]
    fn events_are_independent_of_cuts(
        node in node(),
        cuts in prop::collection::vec(0_usize..90, 0..40),
    ) {
        let nar = write_node(&node);
        let mut pieces = Vec::new();
        let mut rest = nar.as_slice();
        for cut in cuts {
            let (piece, after) = rest.split_at(cut.min(rest.len()));
            pieces.push(piece);
            rest = after;
        }
        pieces.push(rest);
        prop_assert_eq!(read_pieces(pieces), read_pieces([nar.as_slice()]));
    }

    #[test]
    fn damaged_nar_result_is_independent_of_cuts(
        node in node(),
        at: prop::sample::Index,
        value: u8,
    ) {
        let mut nar = write_node(&node);
        let at = at.index(nar.len());
        nar[at] = value;
        let _ = read(&nar);
    }
}
