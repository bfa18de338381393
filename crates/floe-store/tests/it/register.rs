//! Registration: references before referrers, locks, all or nothing.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use floe_format::Signature;
use floe_format::content_address::ContentAddress;
use floe_store::{StoreReader, StoreWriter};
use rustix::fs::{IFlags, ioctl_setflags};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::support::{Scratch, info, names, nar_of, nar_of_link, path, skip, stage, unpack};

#[test]
fn batch_in_any_order_reads_back_unchanged() {
    let scratch = Scratch::new();
    let writer = scratch.writer();
    let (a, b, c) = (path('1', "a"), path('2', "b"), path('3', "c"));
    let mut staged_c = stage(&writer, &c, &[&a, &b, &c]);
    staged_c.info.deriver = Some(path('4', "c.drv"));
    let signature = format!("key-1:{}", floe_format::base64::encode(&[7; 64]));
    staged_c
        .info
        .signatures
        .insert(Signature::parse(&signature).unwrap());
    let batch = vec![staged_c, stage(&writer, &b, &[&a]), stage(&writer, &a, &[])];
    let infos: Vec<_> = batch.iter().map(|staged| staged.info.clone()).collect();
    let outcome = writer.register(batch).unwrap();
    assert_eq!(outcome.valid.len(), 3);
    assert_eq!(
        names(&scratch.layout()),
        [a.as_str(), b.as_str(), c.as_str()]
    );
    let reader = StoreReader::open(scratch.layout()).unwrap();
    for info in infos {
        assert_eq!(reader.path_info(&info.path).unwrap(), Some(info));
    }
    assert_eq!(
        reader.query_path_from_hash_part(c.hash_part()).unwrap(),
        Some(c.clone())
    );
    assert_eq!(
        reader
            .query_path_from_hash_part(path('5', "x").hash_part())
            .unwrap(),
        None
    );
    assert_eq!(reader.closure(&[b]).unwrap().len(), 2);
    assert_eq!(writer.closure_len(&[c]).unwrap(), 3);
}

#[test]
fn path_with_missing_references_is_returned_with_referrers() {
    let scratch = Scratch::new();
    let writer = scratch.writer();
    let (absent, a, b, c) = (
        path('9', "absent"),
        path('1', "a"),
        path('2', "b"),
        path('3', "c"),
    );
    let batch = vec![
        stage(&writer, &a, &[&absent]),
        stage(&writer, &b, &[&a]),
        stage(&writer, &c, &[]),
    ];
    let outcome = writer.register(batch).unwrap();
    assert_eq!(outcome.valid, [c]);
    let missing: Vec<_> = outcome
        .missing_references
        .iter()
        .map(|(staged, missing)| {
            (
                staged.info.path.clone(),
                missing.iter().cloned().collect::<Vec<_>>(),
            )
        })
        .collect();
    assert_eq!(missing, [(a.clone(), vec![absent]), (b, vec![a])]);
    drop(outcome.missing_references);
    assert_eq!(names(&scratch.layout()).len(), 1);
}

#[test]
fn locked_path_is_busy() {
    let scratch = Scratch::new();
    let writer = scratch.writer();
    let a = path('1', "a");
    let lock_file = scratch.layout().real_store_dir.join(format!("{a}.lock"));
    let lock = File::create(&lock_file).unwrap();
    lock.lock().unwrap();
    let outcome = writer.register(vec![stage(&writer, &a, &[])]).unwrap();
    assert!(outcome.valid.is_empty());
    assert_eq!(outcome.busy.len(), 1);
    assert!(!scratch.layout().real_path(&a).exists());
    lock.unlock().unwrap();
    let outcome = writer.register(outcome.busy).unwrap();
    assert_eq!(outcome.valid, std::slice::from_ref(&a));
    assert_eq!(names(&scratch.layout()), [a.as_str()]);
}

#[test]
fn unregistered_tree_is_replaced_and_valid_path_is_not() {
    let scratch = Scratch::new();
    let writer = scratch.writer();
    let a = path('1', "a");
    let place = scratch.layout().real_path(&a);
    fs::create_dir_all(place.join("rest/of/an/accident")).unwrap();
    writer.register(vec![stage(&writer, &a, &[])]).unwrap();
    assert_eq!(fs::read(&place).unwrap(), b"a");
    let inode = |path| std::os::unix::fs::MetadataExt::ino(&fs::metadata(path).unwrap());
    let before = inode(&place);
    // The second writer stands for another process.
    let other = StoreWriter::open(scratch.layout()).unwrap();
    let outcome = other.register(vec![stage(&other, &a, &[])]).unwrap();
    assert_eq!(outcome.valid, std::slice::from_ref(&a));
    assert_eq!(inode(&place), before);
    assert_eq!(names(&scratch.layout()), [a.as_str()]);
}

#[test]
fn failed_transaction_leaves_no_rows_and_no_trees() {
    let scratch = Scratch::new();
    let writer = scratch.writer();
    let (a, b) = (path('1', "a"), path('2', "b"));
    // The trigger makes the database refuse the second row.
    let database = scratch.layout().database_dir().join("db.sqlite");
    let trigger = format!(
        "create trigger refuse before insert on ValidPaths when new.path like '%{b}' \
         begin select raise(abort, 'refused'); end;"
    );
    rusqlite::Connection::open(database)
        .unwrap()
        .execute_batch(&trigger)
        .unwrap();
    let batch = vec![stage(&writer, &a, &[]), stage(&writer, &b, &[&a])];
    let error = writer.register(batch).unwrap_err();
    assert!(error.to_string().contains("refused"), "{error}");
    for path in [&a, &b] {
        assert!(!scratch.layout().real_path(path).exists());
    }
    writer.discard_recovered(|_| false);
    assert!(names(&scratch.layout()).is_empty());
    assert_eq!(writer.query_missing(&[a.clone(), b]).unwrap().len(), 2);
}

/// A collector deletes a reference between the check and the transaction.
#[test]
fn reference_deleted_during_register_rolls_back() {
    let scratch = Scratch::new();
    let writer = scratch.writer();
    let (reference, a, b) = (path('1', "reference"), path('2', "a"), path('3', "b"));
    let outcome = writer
        .register(vec![stage(&writer, &reference, &[])])
        .unwrap();
    assert_eq!(outcome.valid.len(), 1);
    let database = scratch.layout().database_dir().join("db.sqlite");
    let database = rusqlite::Connection::open(database).unwrap();
    let vanish = format!("delete from ValidPaths where path like '%{reference}'");
    let trigger = format!(
        "create trigger collector after insert on ValidPaths when new.path like '%{a}' \
         begin {vanish}; end;"
    );
    database.execute_batch(&trigger).unwrap();
    let batch = vec![stage(&writer, &a, &[&reference]), stage(&writer, &b, &[])];
    let outcome = writer.register(batch).unwrap();
    assert!(outcome.valid.is_empty() && outcome.missing_references.is_empty());
    assert_eq!(outcome.busy.len(), 2, "they are to come back");
    let there = |path| fs::symlink_metadata(scratch.layout().real_path(path)).is_ok();
    assert!(there(&reference) && !there(&a) && !there(&b));
    // In the next attempt, the first check finds that the reference is missing.
    database.execute_batch("drop trigger collector").unwrap();
    database.execute_batch(&vanish).unwrap();
    let outcome = writer.register(outcome.busy).unwrap();
    assert_eq!(outcome.valid, [b]);
    assert_eq!(outcome.missing_references[0].1, [reference].into());
}

#[test]
fn unlockable_path_blocks_only_its_referrers() {
    let scratch = Scratch::new();
    let writer = scratch.writer();
    let (a, b, c) = (path('1', "a"), path('2', "b"), path('3', "c"));
    let lock = scratch.layout().real_store_dir.join(format!("{a}.lock"));
    fs::create_dir(&lock).unwrap();
    let batch = vec![
        stage(&writer, &a, &[]),
        stage(&writer, &b, &[&a]),
        stage(&writer, &c, &[]),
    ];
    let outcome = writer.register(batch).unwrap();
    assert_eq!(outcome.valid, [c]);
    assert_eq!(outcome.refused[0].0, a);
    let error = outcome.refused[0].1.to_string();
    let said = [a.as_str(), &lock.display().to_string(), "try removing it"];
    assert!(said.iter().all(|said| error.contains(said)), "{error}");
    let missing: Vec<_> = outcome
        .missing_references
        .iter()
        .map(|(b, a)| (&b.info.path, a))
        .collect();
    assert_eq!(missing, [(&b, &[a.clone()].into())]);
}

/// The lock belongs to another user, who has meanwhile added the path.
#[test]
fn valid_path_with_unopenable_lock_is_valid() {
    let scratch = Scratch::new();
    let writer = scratch.writer();
    let a = path('1', "a");
    let again = stage(&writer, &a, &[]);
    let outcome = writer.register(vec![stage(&writer, &a, &[])]).unwrap();
    assert_eq!(outcome.valid, std::slice::from_ref(&a));
    fs::create_dir(scratch.layout().real_store_dir.join(format!("{a}.lock"))).unwrap();
    let outcome = writer.register(vec![again]).unwrap();
    assert_eq!(outcome.valid, [a]);
    assert!(outcome.refused.is_empty());
}

/// An immutable tree without a row, which not even root may remove.
#[test]
fn obstructed_path_blocks_only_its_referrers() {
    let scratch = Scratch::new();
    let writer = scratch.writer();
    let (a, b, c) = (path('1', "a"), path('2', "b"), path('3', "c"));
    let place = scratch.layout().real_path(&a);
    fs::create_dir(&place).unwrap();
    let immutable = place.join("immutable");
    let file = File::create(&immutable).unwrap();
    if let Err(error) = ioctl_setflags(&file, IFlags::IMMUTABLE) {
        skip("a file that cannot be removed", &error.to_string());
        return;
    }
    let batch = vec![
        stage(&writer, &a, &[]),
        stage(&writer, &b, &[&a]),
        stage(&writer, &c, &[]),
    ];
    let outcome = writer.register(batch);
    ioctl_setflags(&file, IFlags::empty()).unwrap();
    let outcome = outcome.unwrap();
    assert_eq!(outcome.refused[0].0, a);
    let error = outcome.refused[0].1.to_string();
    let said = [a.as_str(), "belongs to another user or is immutable"];
    assert!(said.iter().all(|said| error.contains(said)), "{error}");
    // The other paths are busy, and the next call registers them.
    let outcome = writer.register(outcome.busy).unwrap();
    assert_eq!(outcome.valid, std::slice::from_ref(&c));
    assert_eq!(outcome.missing_references[0].0.info.path, b);
    drop(outcome);
    assert_eq!(names(&scratch.layout()), [a.as_str(), c.as_str()]);
}

/// A collector deletes a row, and the tree some time later.
#[test]
fn path_being_deleted_by_gc_is_busy() {
    let scratch = Scratch::new();
    let writer = scratch.writer();
    let a = path('1', "a");
    let place = scratch.layout().real_path(&a);
    let gc_lock = File::create(scratch.layout().state_dir.join("gc.lock")).unwrap();
    let staged = stage(&writer, &a, &[]);
    fs::write(&place, "of the collector").unwrap();
    gc_lock.lock().unwrap();
    let outcome = writer.register(vec![staged]).unwrap();
    assert_eq!(outcome.busy.len(), 1);
    assert_eq!(fs::read(&place).unwrap(), b"of the collector");
    fs::remove_file(&place).unwrap();
    let outcome = writer.register(outcome.busy).unwrap();
    assert_eq!(outcome.valid, [a]);
}

#[test]
fn derivation_with_wrong_output_path_is_refused() {
    let scratch = Scratch::new();
    let writer = scratch.writer();
    let (drv, other) = (path('1', "liar.drv"), path('2', "other"));
    let output = path('3', "liar");
    let output = format!("/nix/store/{output}");
    let text = format!(
        r#"Derive([("out","{output}","","")],[],[],"x","/bin/sh",[],[("out","{output}")])"#
    );
    let nar = crate::support::nar_of(text.as_bytes());
    writer.add_temp_roots([&drv].into_iter()).unwrap();
    let staged = floe_store::StagedPath {
        info: crate::support::info(&drv, &nar, &[]),
        tree: crate::support::unpack(&writer, &drv, &nar),
    };
    let outcome = writer
        .register(vec![staged, stage(&writer, &other, &[])])
        .unwrap();
    assert_eq!(outcome.refused.len(), 1);
    assert_eq!(outcome.refused[0].0, drv);
    let again = writer.register(outcome.busy).unwrap();
    assert_eq!(again.valid, std::slice::from_ref(&other));
    assert_eq!(names(&scratch.layout()), [other.as_str()]);
}

/// Runs in a process of its own, because the limit applies to all threads.
#[test]
fn batch_at_descriptor_limit_still_reads_derivations() {
    let name = "register::batch_at_descriptor_limit_still_reads_derivations";
    if std::env::var_os(ALONE).is_none() {
        let mut alone = Command::new(std::env::current_exe().unwrap());
        let ran = alone.args([name, "--exact"]).env(ALONE, "1").output();
        let ran = ran.unwrap();
        let said = String::from_utf8_lossy(&ran.stdout);
        assert!(ran.status.success() && said.contains("1 passed"), "{said}");
        return;
    }
    let scratch = Scratch::new();
    let writer = scratch.writer();
    // The path of this output is not known before the build.
    let derivation = r#"Derive([("out","","r:sha256","")],[],[],"x","/bin/sh",[],[("out","")])"#;
    let nar = nar_of(derivation.as_bytes());
    let staged = |digit: char| {
        let drv = path(digit, "a.drv");
        writer.add_temp_roots([&drv].into_iter()).unwrap();
        floe_store::StagedPath {
            info: info(&drv, &nar, &[]),
            tree: unpack(&writer, &drv, &nar),
        }
    };
    let mut batch: Vec<_> = "0123456789abcdfghijk".chars().map(staged).collect();
    let all = batch.len();
    // With a single path there is no lock to release, so the registration fails.
    let one = vec![batch.pop().unwrap()];
    // Each path refers to the next one, which the order of the names would register later.
    for number in 1..batch.len() {
        let reference = batch[number].info.path.clone();
        batch[number - 1].info.references.insert(reference);
    }
    allow_descriptors(1);
    let error = writer.register(one).unwrap_err();
    assert!(error.to_string().contains("Too many open files"), "{error}");
    allow_descriptors(10);
    let mut valid = 0;
    while !batch.is_empty() {
        let outcome = writer.register(batch).unwrap();
        assert!(outcome.refused.is_empty(), "{:?}", outcome.refused);
        assert!(!outcome.valid.is_empty() && outcome.missing_references.is_empty());
        valid += outcome.valid.len();
        batch = outcome.busy;
    }
    assert_eq!(valid, all - 1);
}

/// Limits this process to `count` more open files.
fn allow_descriptors(count: usize) {
    let is_free = |number: &u64| !Path::new(&format!("/proc/self/fd/{number}")).exists();
    let last = (0..).filter(is_free).nth(count - 1).unwrap();
    let limit = getrlimit(Resource::Nofile);
    let current = Some(last + 1);
    setrlimit(Resource::Nofile, Rlimit { current, ..limit }).unwrap();
}

/// Tells this program that it runs a single test.
const ALONE: &str = "FLOE_TEST_ALONE";

/// A cache may send such a file as a derivation, with a content address and no signature.
#[test]
fn derivation_that_is_not_a_regular_file_is_refused() {
    let scratch = Scratch::new();
    let writer = Arc::new(scratch.writer());
    let (honest, pipe) = (scratch.path().join("honest"), scratch.path().join("pipe"));
    fs::write(&honest, r#"Derive([],[],[],"x","/bin/sh",[],[])"#).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RWXU).unwrap();
    let mut directory = Vec::new();
    floe_format::nar::write::begin(&mut directory);
    floe_format::nar::write::begin_directory(&mut directory);
    floe_format::nar::write::end_directory(&mut directory);
    let drv = path('1', "liar.drv");
    for nar in [nar_of_link(&honest), nar_of_link(&pipe), directory] {
        writer.add_temp_roots([&drv].into_iter()).unwrap();
        let staged = floe_store::StagedPath {
            info: info(&drv, &nar, &[]),
            tree: unpack(&writer, &drv, &nar),
        };
        let (sender, receiver) = mpsc::channel();
        let registering = writer.clone();
        // In a thread of its own, because opening the pipe may block forever.
        thread::spawn(move || sender.send(registering.register(vec![staged])));
        let outcome = receiver.recv_timeout(SURELY_STUCK).unwrap().unwrap();
        assert!(outcome.valid.is_empty() && outcome.busy.is_empty());
        let error = outcome.refused[0].1.to_string();
        let said = format!("cannot read the derivation {drv}: it is not a regular file");
        assert!(error.contains(&said), "{error}");
        assert!(names(&scratch.layout()).is_empty());
    }
}

#[test]
fn oversized_derivation_is_refused() {
    let scratch = Scratch::new();
    let writer = scratch.writer();
    let drv = path('1', "long.drv");
    writer.add_temp_roots([&drv].into_iter()).unwrap();
    let tree = unpack(&writer, &drv, &nar_of(b"long"));
    // The file is too long to fit into memory.
    fs::set_permissions(tree.location(), fs::Permissions::from_mode(0o644)).unwrap();
    let file = fs::File::options().write(true).open(tree.location());
    file.unwrap().set_len(1 << 40).unwrap();
    let info = info(&drv, &nar_of(b"long"), &[]);
    let batch = vec![floe_store::StagedPath { info, tree }];
    let outcome = writer.register(batch).unwrap();
    let error = outcome.refused[0].1.to_string();
    assert!(error.contains("longer than 67108864 bytes"), "{error}");
}

#[test]
fn add_to_store_is_content_addressed_and_idempotent() {
    let scratch = Scratch::new();
    let writer = scratch.writer();
    let tree = scratch.path().join("tree");
    fs::create_dir(&tree).unwrap();
    fs::write(tree.join("file"), "contents").unwrap();
    let info = writer
        .add_to_store(&tree, "tree", Default::default())
        .unwrap();
    assert_eq!(
        info.matches_content_address(&scratch.layout().store_dir),
        Some(true)
    );
    assert!(matches!(info.ca, Some(ContentAddress { .. })));
    let again = writer
        .add_to_store(&tree, "tree", Default::default())
        .unwrap();
    assert_eq!(again.path, info.path);
    let missing = path('9', "missing");
    let error = writer
        .add_to_store(&tree, "other", [missing].into())
        .unwrap_err();
    assert!(error.to_string().contains("cannot register"), "{error}");
    assert!(writer.add_to_store(&tree, ".", Default::default()).is_err());
}

/// Many times the usual duration on a busy machine.
const SURELY_STUCK: Duration = Duration::from_secs(60);
