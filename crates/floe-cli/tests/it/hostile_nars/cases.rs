//! Hand-written NARs, most of them malformed.

use std::path::Path;

use floe_format::nar::{DEPTH_MAX, NAME_LEN_MAX, TARGET_LEN_MAX, write};
use floe_testkit::nars::{Node, directory, directory_node, file, file_node, start};

/// Returns a NAR with these strings, correctly padded.
fn nar_of_strings(strings: &[&[u8]]) -> Vec<u8> {
    let mut nar = start();
    for string in strings {
        nar.extend_from_slice(&(string.len() as u64).to_le_bytes());
        nar.extend_from_slice(string);
        nar.resize(nar.len().next_multiple_of(8), 0);
    }
    nar
}

/// Returns the NAR of a file below `directories` nested directories.
fn nested(directories: usize) -> Vec<u8> {
    let mut nar = start();
    for _ in 0..directories {
        write::begin_directory(&mut nar);
        write::begin_entry(&mut nar, b"d");
    }
    file_node(&mut nar, b"deep");
    for _ in 0..directories {
        write::end_entry(&mut nar);
        write::end_directory(&mut nar);
    }
    nar
}

/// Returns the NAR of an 8-byte file that claims another size.
fn file_with_size(size: u64) -> Vec<u8> {
    let mut nar = start();
    write::begin_file(&mut nar, false, size);
    nar.extend_from_slice(b"contents");
    write::end_file(&mut nar, 8);
    nar
}

/// Changes the padding byte at `at`, counted from the end.
fn with_padding_byte(mut nar: Vec<u8>, at: usize, byte: u8) -> Vec<u8> {
    let index = nar.len() - at;
    assert_eq!(nar[index], 0, "not padding");
    nar[index] = byte;
    nar
}

/// Returns hostile NARs with a name for each. NARs that write elsewhere try to write to the
/// canary.
pub(super) fn hostile(canary: &Path) -> Vec<(&'static str, Vec<u8>)> {
    let canary = canary.to_str().unwrap().as_bytes();
    let file_x: Node<'_> = &|nar| file_node(nar, b"x");
    let to_canary: Node<'_> = &|nar| write::symlink(nar, canary);
    let directory_x: Node<'_> = &|nar| directory_node(nar, &[(b"file", file_x)]);
    let named = |name: &[u8]| directory(&[(name, file_x)]);
    let target = |target: &[u8]| directory(&[(b"link", &|nar| write::symlink(nar, target))]);
    let inside = [canary, b"/evil"].concat();
    let mut nars = vec![
        // File names that lead outside the path.
        ("name-dot-dot", named(b"..")),
        ("name-dot", named(b".")),
        ("name-empty", named(b"")),
        ("name-slash", named(b"a/b")),
        ("name-relative", named(b"../../../../canary/evil")),
        ("name-absolute", named(&inside)),
        ("name-nul", named(b"a\0b")),
        ("name-too-long", named(&[b'n'; NAME_LEN_MAX + 1])),
        (
            "name-inner",
            directory(&[(b"d", &|nar| directory_node(nar, &[(b"..", file_x)]))]),
        ),
        // A symlink, followed by an entry below it.
        (
            "link-then-directory",
            directory(&[(b"x", to_canary), (b"x", directory_x)]),
        ),
        (
            "link-then-file",
            directory(&[(b"x", to_canary), (b"x", file_x)]),
        ),
        (
            "link-then-below",
            directory(&[(b"x", to_canary), (b"x/file", file_x)]),
        ),
        (
            "directory-then-link",
            directory(&[(b"x", directory_x), (b"x", to_canary)]),
        ),
        // Wrong order. Some entries are symlinks, which the cleanup must not follow.
        ("twice", directory(&[(b"x", file_x), (b"x", file_x)])),
        (
            "unsorted",
            directory(&[(b"b", to_canary), (b"a", directory_x)]),
        ),
        (
            "unsorted-prefix",
            directory(&[(b"aa", directory_x), (b"a", file_x)]),
        ),
        ("target-empty", target(b"")),
        ("target-nul", target(b"a\0b")),
        ("target-too-long", target(&[b't'; TARGET_LEN_MAX + 1])),
        ("too-deep", nested(DEPTH_MAX)),
        ("far-too-deep", nested(2000)),
        // Non-zero padding after a keyword and after file contents.
        ("padding-of-contents", with_padding_byte(file(b"x"), 17, 1)),
        ("padding-of-word", with_padding_byte(file(b"x"), 1, 1)),
        ("size-near-2-64", file_with_size(u64::MAX)),
        ("size-that-pads-to-zero", file_with_size(u64::MAX - 6)),
        ("size-near-2-63", file_with_size(1 << 63)),
        ("size-too-small", file_with_size(7)),
        ("size-too-large", file_with_size(9)),
        ("trailing-zeros", [file(b"x"), vec![0; 8]].concat()),
        ("trailing-nar", [file(b"x"), file(b"y")].concat()),
        ("magic", nar_of_strings(&[b"(", b")"])[16..].to_vec()),
        (
            "magic-2",
            [b"\x0d\0\0\0\0\0\0\0nix-archive-2\0\0\0", &file(b"x")[24..]].concat(),
        ),
        // Wrong grammar.
        ("no-type", nar_of_strings(&[b"(", b")"])),
        (
            "type-unknown",
            nar_of_strings(&[b"(", b"type", b"device", b")"]),
        ),
        (
            "type-twice",
            nar_of_strings(&[b"(", b"type", b"directory", b"type", b"directory", b")"]),
        ),
        (
            "file-with-target",
            nar_of_strings(&[b"(", b"type", b"regular", b"target", b"x", b")"]),
        ),
        (
            "file-with-entry",
            nar_of_strings(&[
                b"(", b"type", b"regular", b"entry", b"(", b"name", b"x", b")", b")",
            ]),
        ),
        (
            "directory-with-contents",
            nar_of_strings(&[b"(", b"type", b"directory", b"contents", b"x"]),
        ),
        (
            "link-without-target",
            nar_of_strings(&[b"(", b"type", b"symlink", b")"]),
        ),
        (
            "executable-with-value",
            nar_of_strings(&[
                b"(",
                b"type",
                b"regular",
                b"executable",
                b"x",
                b"contents",
                b"",
                b")",
            ]),
        ),
        ("entry-without-node", {
            nar_of_strings(&[
                b"(",
                b"type",
                b"directory",
                b"entry",
                b"(",
                b"name",
                b"x",
                b")",
                b")",
            ])
        }),
        ("entry-without-name", {
            nar_of_strings(&[
                b"(",
                b"type",
                b"directory",
                b"entry",
                b"(",
                b"node",
                b"(",
                b")",
                b")",
            ])
        }),
    ];
    // A length near 2^64 instead of the length of a name.
    let mut endless = named(b"x");
    let at = endless
        .windows(8)
        .rposition(|window| window == 1_u64.to_le_bytes())
        .unwrap();
    let name = endless
        .windows(4)
        .position(|window| window == b"name")
        .unwrap()
        + 8;
    assert!(name < at);
    endless[name..name + 8].copy_from_slice(&(u64::MAX - 6).to_le_bytes());
    nars.push(("name-of-2-64-bytes", endless));
    // Truncated NARs: in the magic, in a directory, in file contents and in the last word.
    let whole = directory(&[(b"link", to_canary), (b"x", file_x)]);
    for (name, len) in [
        ("cut-in-magic", 12),
        ("cut-in-directory", 130),
        ("cut-in-contents", whole.len() - 60),
        ("cut-by-a-word", whole.len() - 16),
        ("cut-by-a-byte", whole.len() - 1),
    ] {
        nars.push((name, whole[..len].to_vec()));
    }
    nars
}
