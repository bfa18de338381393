//! Tests of `.links`: equal files are linked, and wrong contents never are.

use std::collections::BTreeSet;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use floe_format::Hash;
use floe_hash::sha256;
use floe_store::tree::ReuseMethod;
use floe_store::tree::TemporaryTree;
use floe_store::{StagedPath, StoreWriter};
use proptest::prelude::*;

use crate::support::{Scratch, info, names, nar_of, path, skip, unpack};
use crate::tree::{assert_sealed, make, nar, trees};

fn unpack_optimised(writer: &StoreWriter, digit: char, nar: &[u8]) -> TemporaryTree {
    let mut tree = writer.optimising_tree_writer(&path(digit, "tree")).unwrap();
    for chunk in nar.chunks(1000) {
        tree.write(chunk).unwrap();
    }
    tree.finish().unwrap()
}

/// The name of a file in `.links`: the hash of its NAR.
fn link_name(at: &Path) -> String {
    Hash::sha256(sha256(&nar(at))).digest_nix32()
}

/// All files and symbolic links below a path.
fn leaves(at: &Path) -> Vec<PathBuf> {
    if !fs::symlink_metadata(at).unwrap().is_dir() {
        return vec![at.to_path_buf()];
    }
    let entries = fs::read_dir(at).unwrap();
    entries
        .flat_map(|entry| leaves(&entry.unwrap().path()))
        .collect()
}

fn links(scratch: &Scratch) -> BTreeSet<String> {
    let entries = fs::read_dir(scratch.layout().links_dir()).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.collect()
}

fn inode(at: &Path) -> u64 {
    fs::symlink_metadata(at).unwrap().ino()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    #[test]
    fn every_file_is_linked_under_its_own_nar_hash(tree in trees()) {
        let scratch = Scratch::new();
        let writer = scratch.writer();
        let original = scratch.path().join("original");
        make(&tree, &original);
        let expected = nar(&original);
        let both = ['1', '2'].map(|digit| unpack_optimised(&writer, digit, &expected));
        let mut names = BTreeSet::new();
        for tree in &both {
            prop_assert!(nar(tree.location()) == expected);
            assert_sealed(tree.location());
            for leaf in leaves(tree.location()) {
                let name = link_name(&leaf);
                let link = scratch.layout().links_dir().join(&name);
                prop_assert_eq!(inode(&leaf), inode(&link));
                names.insert(name);
            }
        }
        prop_assert_eq!(links(&scratch), names);
    }
}

#[test]
fn dropped_tree_removes_its_unused_links() {
    let scratch = Scratch::new();
    let writer = scratch.writer();
    let (shared, own) = (nar_of(b"shared"), nar_of(b"own"));
    let keeps = unpack_optimised(&writer, '1', &shared);
    let name = link_name(keeps.location());
    drop(unpack_optimised(&writer, '2', &shared));
    drop(unpack_optimised(&writer, '3', &own));
    assert_eq!(links(&scratch), BTreeSet::from([name.clone()]));
    // The first tree made the link. Another tree is the last that uses it.
    let keeps_too = unpack_optimised(&writer, '4', &shared);
    drop(keeps);
    assert_eq!(links(&scratch), BTreeSet::from([name]));
    assert_eq!(nar(keeps_too.location()), shared);
    // An incomplete tree removes its links as well.
    let mut unfinished = writer.optimising_tree_writer(&path('5', "tree")).unwrap();
    unfinished.write(&own[..own.len() - 1]).unwrap();
    drop(unfinished);
    assert_eq!(links(&scratch).len(), 1);
}

#[test]
fn failed_registration_removes_unused_links() {
    let scratch = Scratch::new();
    let writer = scratch.writer();
    let (own, shared) = (nar_of(b"own"), nar_of(b"shared"));
    let keeps = unpack_optimised(&writer, '9', &shared);
    let database = scratch.layout().database_dir().join("db.sqlite");
    let refuse = "create trigger refuse before insert on ValidPaths \
         begin select raise(abort, 'refused'); end;";
    let database = rusqlite::Connection::open(database).unwrap();
    database.execute_batch(refuse).unwrap();
    let staged = |digit: char, nar: &[u8]| StagedPath {
        info: info(&path(digit, "tree"), nar, &[]),
        tree: unpack_optimised(&writer, digit, nar),
    };
    let batch = vec![staged('1', &own), staged('2', &shared)];
    assert_eq!(links(&scratch).len(), 2);
    let error = writer.register(batch).unwrap_err();
    assert!(error.to_string().contains("refused"), "{error}");
    assert_eq!(links(&scratch).len(), 2);
    writer.discard_recovered(|_| false);
    assert_eq!(
        links(&scratch),
        BTreeSet::from([link_name(keeps.location())])
    );
    drop(keeps);
    assert!(links(&scratch).is_empty());
    assert!(names(&scratch.layout()).is_empty());
}

#[test]
fn damaged_link_is_replaced_and_reported() {
    let contents = vec![7; 300_000];
    let mut other = contents.clone();
    other[200_000] = 8;
    let empty = Vec::new();
    for damage in [other, b"short".to_vec(), empty] {
        let scratch = Scratch::new();
        let writer = scratch.writer();
        let nar_of_contents = nar_of(&contents);
        let first = unpack_optimised(&writer, '1', &nar_of_contents);
        assert!(first.damaged_links().is_empty());
        let name = link_name(first.location());
        let link = scratch.layout().links_dir().join(&name);
        let stamp = fs::metadata(&link).unwrap().modified().unwrap();
        fs::set_permissions(&link, Permissions::from_mode(0o644)).unwrap();
        fs::write(&link, &damage).unwrap();
        let file = fs::File::options().write(true).open(&link).unwrap();
        file.set_modified(stamp).unwrap();
        fs::set_permissions(&link, Permissions::from_mode(0o444)).unwrap();

        let second = unpack_optimised(&writer, '2', &nar_of_contents);
        assert_eq!(second.damaged_links(), [name]);
        assert_eq!(nar(second.location()), nar_of_contents);
        assert_eq!(inode(second.location()), inode(&link));
        assert_ne!(inode(first.location()), inode(&link));
    }
}

#[test]
fn link_with_other_mode_or_time_is_not_used() {
    let nar_of_contents = nar_of(b"contents");
    let writable = |link: &Path| {
        fs::set_permissions(link, Permissions::from_mode(0o644)).unwrap();
    };
    let new = |link: &Path| {
        let file = fs::File::open(link).unwrap();
        file.set_modified(std::time::SystemTime::now()).unwrap();
    };
    let directory = |link: &Path| {
        fs::remove_file(link).unwrap();
        fs::create_dir(link).unwrap();
    };
    let changes: [&dyn Fn(&Path); 3] = [&writable, &new, &directory];
    for change in changes {
        let scratch = Scratch::new();
        let writer = scratch.writer();
        let first = unpack_optimised(&writer, '1', &nar_of_contents);
        let link = scratch.layout().links_dir();
        let link = link.join(link_name(first.location()));
        change(&link);
        let before = inode(&link);
        let second = unpack_optimised(&writer, '2', &nar_of_contents);
        assert_sealed(second.location());
        assert_eq!(nar(second.location()), nar_of_contents);
        assert!(second.damaged_links().is_empty());
        assert_eq!(inode(&link), before);
        assert_ne!(inode(second.location()), before);
    }
}

#[test]
fn file_at_link_limit_is_not_linked() {
    // A tmpfs has no limit.
    let scratch = Scratch::in_target_directory();
    let writer = scratch.writer();
    let nar_of_contents = nar_of(b"very common");
    let first = unpack_optimised(&writer, '1', &nar_of_contents);
    let many = scratch.path().join("many");
    fs::create_dir(&many).unwrap();
    let mut made = 0;
    let refused = loop {
        match fs::hard_link(first.location(), many.join(made.to_string())) {
            Ok(()) if made < LINKS_TRIED_MAX => made += 1,
            Ok(()) => {
                skip(
                    "the limit of links",
                    "this file system has none to speak of",
                );
                return;
            }
            Err(error) => break error,
        }
    };
    assert_eq!(refused.kind(), io::ErrorKind::TooManyLinks, "{refused}");
    let second = unpack_optimised(&writer, '2', &nar_of_contents);
    assert_ne!(inode(second.location()), inode(first.location()));
    assert_eq!(nar(second.location()), nar_of_contents);
    assert_sealed(second.location());
}

#[test]
fn concurrent_link_removal_keeps_every_tree_correct() {
    let scratch = Scratch::new();
    let writer = scratch.writer();
    let done = AtomicBool::new(false);
    let contents: Vec<Vec<u8>> = (0..4_u8).map(|n| nar_of(&[n; 100])).collect();
    let collected = thread::scope(|scope| {
        let collector = scope.spawn(|| {
            let mut collected = 0;
            while !done.load(Ordering::Relaxed) {
                for entry in fs::read_dir(scratch.layout().links_dir()).unwrap() {
                    let link = entry.unwrap().path();
                    // A collector removes links that no other file uses, and sometimes others.
                    let stat = fs::symlink_metadata(&link);
                    let is_unused = stat.is_ok_and(|stat| stat.nlink() == 1 || collected < 50);
                    collected += u32::from(is_unused && fs::remove_file(&link).is_ok());
                }
            }
            collected
        });
        let workers: Vec<_> = ['1', '2', '3']
            .into_iter()
            .map(|digit| {
                let (writer, contents) = (&writer, &contents);
                scope.spawn(move || {
                    for round in 0..200 {
                        let expected = &contents[round % contents.len()];
                        let tree = unpack_optimised(writer, digit, expected);
                        assert_eq!(nar(tree.location()), *expected);
                        assert!(tree.damaged_links().is_empty());
                    }
                })
            })
            .collect();
        // The collector thread must be stopped before any assertion fails, because it loops until
        // then.
        let ended: Vec<_> = workers.into_iter().map(|worker| worker.join()).collect();
        done.store(true, Ordering::Relaxed);
        let collected = collector.join().unwrap();
        assert!(ended.iter().all(Result::is_ok), "a writer has failed");
        collected
    });
    assert!(collected > 0, "nothing was collected");
    assert!(crate::support::names(&scratch.layout()).is_empty());
}

#[test]
fn hard_links_of_other_store_are_linked_here() {
    let scratch = Scratch::new();
    let elsewhere = Scratch::new();
    let original = elsewhere.path().join("original");
    fs::create_dir(&original).unwrap();
    fs::write(original.join("a"), "equal").unwrap();
    fs::write(original.join("b"), "equal").unwrap();
    let wanted = nar(&original);
    let source = unpack_optimised(&elsewhere.writer(), '1', &wanted);
    let there = inode(&source.location().join("a"));
    assert_eq!(inode(&source.location().join("b")), there);

    let writer = scratch.writer();
    let tree = writer.optimising_tree_writer(&path('2', "tree")).unwrap();
    let size = wanted.len() as u64;
    let made = tree.reuse(source.location(), size, ReuseMethod::HardLink);
    let Some(made) = made.unwrap() else {
        skip("hard links between stores", "they share no file system");
        return;
    };
    assert_eq!(nar(made.location()), wanted);
    for name in ["a", "b"] {
        assert_eq!(inode(&made.location().join(name)), there);
    }
    assert_eq!(links(&scratch).len(), 1);
    let own = made.location().file_name().unwrap().to_str().unwrap();
    assert_eq!(names(&scratch.layout()), [own]);
}

#[test]
fn copied_files_of_other_directory_are_linked_here() {
    let scratch = Scratch::new();
    let elsewhere = tempfile::tempdir().unwrap();
    let original = elsewhere.path().join("original");
    fs::create_dir(&original).unwrap();
    // A file with the mode of a user's file is never hard-linked into a store.
    fs::write(original.join("a"), "equal").unwrap();
    fs::write(original.join("b"), "equal").unwrap();
    let wanted = nar(&original);

    let writer = scratch.writer();
    let tree = writer.optimising_tree_writer(&path('1', "tree")).unwrap();
    let made = tree.reuse(&original, wanted.len() as u64, ReuseMethod::HardLink);
    let made = made.unwrap().unwrap();
    assert_eq!(nar(made.location()), wanted);
    let [a, b] = ["a", "b"].map(|name| inode(&made.location().join(name)));
    assert_eq!(a, b, "equal files are not linked");
    assert_ne!(a, inode(&original.join("a")));
    assert_eq!(links(&scratch).len(), 1);
}

#[test]
fn links_are_not_created_by_default() {
    let scratch = Scratch::new();
    let writer = scratch.writer();
    let tree = unpack(&writer, &path('1', "tree"), &nar_of(b"contents"));
    assert_eq!(fs::metadata(tree.location()).unwrap().nlink(), 1);
    assert!(links(&scratch).is_empty());
}

/// Above the limits of ext4 (65000) and btrfs (65535).
const LINKS_TRIED_MAX: u32 = 70_000;
