//! Symlinks and names in trees.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use floe_testkit::{Nix, nixes, run};

use super::{from, query};

/// Lets Nix add a tree with symlinks to a store, and returns its path and that of another tree.
fn add_trees(nix: &Nix, root: &Path, scratch: &Path) -> (String, String) {
    let add = |tree: &Path| nix.store(root, ["--add".as_ref(), tree.as_os_str()]);
    let other = scratch.join("other");
    fs::create_dir_all(other.join("share")).unwrap();
    fs::write(other.join("share/file"), "of the other path").unwrap();
    let other = add(&other).trim().to_owned();
    let tree = scratch.join("tree");
    fs::create_dir_all(tree.join("a/b")).unwrap();
    fs::write(tree.join("a/b/file"), "of the path").unwrap();
    fs::write(tree.join("a/b/line\nbreak\u{1b}[1m"), "odd").unwrap();
    for (target, link) in [
        ("file", "a/b/same"),
        ("b", "a/up"),
        ("a", "first"),
        ("first/up", "second"),
        ("second/../../beside-first", "through"),
        ("a", "beside-first"),
        ("loop", "loop"),
        ("/etc/passwd", "outside"),
        ("../../../etc/passwd", "climbs"),
        (&other, "other"),
        (
            &format!("../{}/share", other.rsplit_once('/').unwrap().1),
            "beside",
        ),
    ] {
        symlink(target, tree.join(link)).unwrap();
    }
    (add(&tree).trim().to_owned(), other)
}

#[test]
fn symlinks_are_followed_within_the_store() {
    let scratch = tempfile::tempdir().unwrap();
    for (number, nix) in nixes().into_iter().enumerate() {
        let scratch = scratch.path().join(number.to_string());
        fs::create_dir(&scratch).unwrap();
        let root = scratch.join("root");
        let (tree, other) = add_trees(&nix, &root, &scratch);
        let root = root.display().to_string();
        let cache = format!("file://{}", scratch.join("cache").display());
        for compression in ["none", "zstd"] {
            let cache = format!("{cache}-{compression}?write-nar-listing=true");
            let to = format!("{cache}&compression={compression}");
            let words = [
                "copy",
                "--no-check-sigs",
                "--from",
                &root,
                "--to",
                &to,
                &tree,
                &other,
            ];
            run(&mut nix.command("nix", words)).expect(0);
        }
        for place in [root, format!("{cache}-none"), format!("{cache}-zstd")] {
            let cat = |file: &str| query(&["cat", &format!("{tree}/{file}")], &place);
            for file in ["a/b/same", "a/up/same", "first/b/file", "second/same"] {
                assert_eq!(cat(file), b"of the path", "{file} {place}");
            }
            // The system follows "second" before it goes up.
            assert_eq!(cat("through/b/file"), b"of the path");
            for file in ["other/share/file", "beside/file"] {
                assert_eq!(cat(file), b"of the other path", "{file} {place}");
            }
            assert_eq!(
                query(&["ls", &format!("{tree}/second")], &place),
                b"second\n"
            );
            let below = query(&["ls", &format!("{tree}/second/.")], &place);
            assert_eq!(below, b"second\n");
            assert_eq!(
                query(&["ls", &format!("{tree}/beside/file")], &place),
                b"file\n"
            );
            let listed = String::from_utf8(query(&["ls", &format!("{tree}/first/b")], &place));
            assert_eq!(
                listed.unwrap(),
                "./file\n./line\\nbreak\\u{1b}[1m\n./same\n"
            );
            for (file, message) in [
                ("loop", "behind more than 40 symlinks"),
                ("loop/x", "behind more than 40 symlinks"),
                ("outside", "leads out of the store"),
                ("climbs", "leads out of the store"),
            ] {
                let file = format!("{tree}/{file}");
                run(&mut from(&["cat", &file], &place))
                    .expect(1)
                    .stderr_contains(message);
            }
        }
    }
}
