//! Trees that an earlier run left for the next one.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, UNIX_EPOCH};

use floe_store::tree::TemporaryTree;
use floe_store::tree::dump_path;
use floe_store::{LockWait, StoreError, StoreLayout, StoreWriter, WriteOptions};

use crate::support::{Scratch, names, nar_of, path, stage};

fn nar_in(tree: &TemporaryTree) -> Vec<u8> {
    let mut nar = Vec::new();
    let mut keep = |chunk: &[u8]| -> Result<(), StoreError> {
        nar.extend_from_slice(chunk);
        Ok(())
    };
    dump_path(tree.location(), &mut keep).unwrap();
    nar
}

fn files_of_roots(layout: &StoreLayout) -> usize {
    fs::read_dir(layout.state_dir.join("temproots"))
        .unwrap()
        .count()
}

#[test]
fn kept_tree_stays_until_taken_or_discarded() {
    let scratch = Scratch::new();
    let (wanted, other) = (path('1', "wanted"), path('2', "other"));
    let writer = scratch.writer();
    let staged = [stage(&writer, &wanted, &[]), stage(&writer, &other, &[])];
    assert!(!writer.has_recovered(&wanted));
    writer.keep_for_resume(staged.map(|staged| staged.tree));
    drop(writer);
    assert_eq!(names(&scratch.layout()).len(), 2);
    assert_eq!(files_of_roots(&scratch.layout()), 1);

    let writer = scratch.writer();
    assert!(writer.has_recovered(&wanted) && writer.has_recovered(&other));
    let tree = writer.take_recovered(&wanted).unwrap();
    assert_eq!(nar_in(&tree), nar_of(b"wanted"));
    writer.keep_for_resume([tree]);
    let tree = writer.take_recovered(&wanted).unwrap();
    assert!(!writer.has_recovered(&wanted) && writer.take_recovered(&wanted).is_none());
    drop((tree, writer));
    // A tree stays until it is taken or discarded.
    assert_eq!(names(&scratch.layout()).len(), 1);
    let writer = scratch.writer();
    assert!(writer.has_recovered(&other));
    writer.discard_recovered(|_| false);
    assert_eq!(names(&scratch.layout()), [""; 0]);
    drop(writer);
    assert_eq!(files_of_roots(&scratch.layout()), 0);
}

#[test]
fn unused_recovered_trees_are_kept_again() {
    let scratch = Scratch::new();
    let (first, second) = (path('1', "first"), path('2', "second"));
    for (of_run, expected) in [(&first, 1), (&second, 2)] {
        let writer = scratch.writer();
        let staged = stage(&writer, of_run, &[]);
        writer.keep_for_resume([staged.tree]);
        drop(writer);
        assert_eq!(names(&scratch.layout()).len(), expected);
    }
    let writer = scratch.writer();
    assert!(writer.has_recovered(&first) && writer.has_recovered(&second));
}

#[test]
fn incomplete_tree_is_not_recovered() {
    let scratch = Scratch::new();
    let layout = scratch.layout();
    drop(scratch.writer());
    let wanted = path('1', "wanted");
    let roots = layout.state_dir.join("temproots/77-floe-0");
    let text = format!("{}\0", layout.store_dir.full_path(&wanted));
    let tree = |number: usize| -> PathBuf {
        let name = format!("{}-77-floe-0-{number}", wanted.hash_part());
        layout.real_store_dir.join(name)
    };
    let sealed = UNIX_EPOCH + Duration::from_secs(1);
    // Trees that are not recovered: one with another time, one with another mode, one whose path is
    // not in the roots file, and a temporary link. The last tree is valid.
    let others = path('3', "others");
    let foreign = format!("{}-77-floe-0-3", others.hash_part());
    let link = format!("{}-link", tree(4).display());
    let places = [
        tree(0),
        tree(1),
        layout.real_store_dir.join(foreign),
        tree(2),
        link.into(),
    ];
    for (place, mode, time) in [
        (&places[0], 0o555, None),
        (&places[1], 0o755, Some(sealed)),
        (&places[2], 0o555, Some(sealed)),
        (&places[3], 0o555, Some(sealed)),
        (&places[4], 0o555, Some(sealed)),
    ] {
        fs::create_dir(place).unwrap();
        fs::set_permissions(place, fs::Permissions::from_mode(mode)).unwrap();
        if let Some(time) = time {
            File::open(place).unwrap().set_modified(time).unwrap();
        }
    }
    fs::write(&roots, text).unwrap();
    let writer = scratch.writer();
    assert!(
        writer
            .take_recovered(&wanted)
            .is_some_and(|tree| tree.location().is_dir())
    );
    assert!(writer.take_recovered(&wanted).is_none() && !writer.has_recovered(&others));
    assert_eq!(names(&layout), [""; 0]);
    assert!(!roots.exists());
}

#[test]
fn writers_with_shared_roots_share_recovered_trees() {
    let scratch = Scratch::new();
    let options = WriteOptions::default();
    let open = || StoreWriter::open_with(scratch.layout(), &options).unwrap();
    let (first, second) = (open(), open());
    let wanted = path('1', "wanted");
    let staged = stage(&first, &wanted, &[]);
    first.keep_for_resume([staged.tree]);
    drop(first);
    // A second copy in the same process, while the first one runs.
    let again = open();
    again.discard_recovered(|_| false);
    let tree = again.take_recovered(&wanted).unwrap();
    assert_eq!(nar_in(&tree), nar_of(b"wanted"));
    again.keep_for_resume([tree]);
    drop(again);
    assert!(second.has_recovered(&wanted));
    second.discard_recovered(|_| false);
    assert_eq!(names(&scratch.layout()), [""; 0]);
}

#[test]
fn writers_with_shared_roots_stage_one_path_at_once() {
    let scratch = Scratch::new();
    let options = WriteOptions::default();
    let open = || StoreWriter::open_with(scratch.layout(), &options).unwrap();
    let (first, second) = (open(), open());
    let wanted = path('1', "wanted");
    let trees = [&first, &second].map(|writer| stage(writer, &wanted, &[]).tree);
    assert_ne!(trees[0].location(), trees[1].location());
    assert!(trees.iter().all(|tree| tree.location().exists()));
}

#[test]
fn batch_that_fails_to_register_is_kept() {
    let scratch = Scratch::new();
    let cancel = Arc::new(AtomicBool::new(false));
    let options = WriteOptions {
        lock_wait: LockWait::new(cancel.clone(), |_| {}),
        ..WriteOptions::default()
    };
    let writer = StoreWriter::open_with(scratch.layout(), &options).unwrap();
    let (one, other) = (path('1', "one"), path('2', "other"));
    let batch = vec![stage(&writer, &one, &[]), stage(&writer, &other, &[&one])];
    // Another process holds a write lock for longer than a wait lasts after an interrupt.
    let database = scratch.layout().state_dir.join("db/db.sqlite");
    let held = rusqlite::Connection::open(database).unwrap();
    held.execute_batch("begin immediate").unwrap();
    cancel.store(true, Ordering::SeqCst);
    let error = writer.register(batch).unwrap_err();
    assert!(matches!(error, StoreError::Interrupted), "{error}");
    drop(writer);
    let writer = scratch.writer();
    assert_eq!(
        writer
            .query_missing(&[one.clone(), other.clone()])
            .unwrap()
            .len(),
        2
    );
    for path in [&one, &other] {
        let tree = writer.take_recovered(path).unwrap();
        assert_eq!(nar_in(&tree), nar_of(path.name().as_bytes()));
    }
    assert_eq!(names(&scratch.layout()), [""; 0]);
}
