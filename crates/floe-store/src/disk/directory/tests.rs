//! Tests of opening directories and of names in them.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, lchown, symlink};

use super::*;

/// A user id that is neither root's nor that of the tests.
const OTHER_USER: u32 = 65534;

#[test]
fn links_on_the_way_are_followed_only_if_their_owner_is_trusted() {
    let scratch = tempfile::tempdir().unwrap();
    let place = |name: &str| scratch.path().join(name);
    fs::create_dir_all(place("a/b/c")).unwrap();
    symlink("a/b", place("relative")).unwrap();
    symlink(place("a"), place("absolute")).unwrap();
    symlink("../../relative/../b", place("a/b/back")).unwrap();
    symlink("loop", place("loop")).unwrap();
    fs::write(place("a/file"), "").unwrap();
    let inode = |directory: Directory| fstat(directory.descriptor()).unwrap().st_ino;
    let open = |name: &str| Directory::open(&place(name)).map(inode);
    let b = open("a/b").unwrap();
    for same in [
        "relative",
        "absolute/b",
        "a/b/back",
        "a/../a/b",
        "relative/c/..",
    ] {
        assert_eq!(open(same).unwrap(), b, "{same}");
    }
    for refused in [
        "loop",
        "loop/x",
        "a/file",
        "a/file/x",
        "absent",
        "relative/absent",
    ] {
        assert!(open(refused).is_err(), "{refused}");
    }
    if !geteuid().is_root() {
        return;
    }
    lchown(place("relative"), Some(OTHER_USER), None).unwrap();
    for redirected in ["relative", "relative/c", "a/b/back"] {
        let error = open(redirected).unwrap_err();
        assert!(
            matches!(
                &error,
                StoreError::ForeignLink {
                    owner: OTHER_USER,
                    ..
                }
            ),
            "{redirected}: {error}"
        );
    }
}

#[test]
fn directories_are_created_with_parents_and_modes() {
    let scratch = tempfile::tempdir().unwrap();
    fs::create_dir(scratch.path().join("real")).unwrap();
    symlink("real", scratch.path().join("link")).unwrap();
    let place = scratch.path().join("link/a/b");
    let directory = Directory::open_or_create(&place, NewMode::Shared).unwrap();
    assert_eq!(directory.path(), place);
    let created = scratch.path().join("real/a/b");
    for ancestor in created.ancestors().take(2) {
        let mode = fs::metadata(ancestor).unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, 0o755, "{}", ancestor.display());
    }
    assert!(!directory.create_subdirectory("..".as_ref()).unwrap());
    assert!(directory.create_subdirectory("c".as_ref()).unwrap());
    assert!(!directory.create_subdirectory("c".as_ref()).unwrap());
    fs::write(place.join("file"), "").unwrap();
    assert!(directory.create_subdirectory("file".as_ref()).is_err());
}

#[test]
fn names_lead_to_no_other_file() {
    let scratch = tempfile::tempdir().unwrap();
    let outside = scratch.path().join("outside");
    fs::write(&outside, "outside").unwrap();
    let inside = scratch.path().join("inside");
    let directory = Directory::open_or_create(&inside, NewMode::Umask).unwrap();
    symlink(&outside, inside.join("link")).unwrap();
    rustix::fs::mkfifoat(CWD, inside.join("pipe"), Mode::RWXU).unwrap();
    fs::create_dir(inside.join("directory")).unwrap();
    for name in ["link", "pipe", "directory"] {
        let entry = directory.entry(name.as_ref());
        for opened in [entry.open_file(), entry.open_to_read()] {
            let error = opened.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{name}");
        }
        assert!(entry.create_file().is_err(), "{name}");
        assert!(entry.open_or_create_file().is_err(), "{name}");
    }
    let link = directory.entry("link".as_ref());
    link.replace_link(Path::new("other")).unwrap();
    assert_eq!(link.read_link().unwrap(), Path::new("other"));
    assert_eq!(fs::read_to_string(outside).unwrap(), "outside");
    assert_eq!(directory.list().unwrap().len(), 3);
}

#[test]
fn only_files_without_contents_and_names_are_marked() {
    let scratch = tempfile::tempdir().unwrap();
    let directory = Directory::open(scratch.path()).unwrap();
    let entry = directory.entry("lock".as_ref());
    let size = |file: &fs::File| file.metadata().unwrap().len();
    let (empty, is_created) = entry.open_or_create_file().unwrap();
    assert!(is_created);
    entry.retire(&empty).unwrap();
    assert_eq!(size(&empty), 1);
    // Another process has removed the name.
    let (removed, _) = entry.open_or_create_file().unwrap();
    entry.remove().unwrap();
    entry.retire(&removed).unwrap();
    assert_eq!(size(&removed), 1);
    // The user's own file, and one that has another name.
    fs::write(entry.path(), "text").unwrap();
    let (text, is_created) = entry.open_or_create_file().unwrap();
    assert!(!is_created);
    entry.retire(&text).unwrap();
    assert_eq!(size(&text), 4);
    let (linked, _) = entry.open_or_create_file().unwrap();
    fs::hard_link(entry.path(), scratch.path().join("other")).unwrap();
    entry.retire(&linked).unwrap();
    assert_eq!(size(&linked), 0);
}
