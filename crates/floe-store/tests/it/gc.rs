//! Writers and a running garbage collector: the collector gets every new root, and each wait ends
//! on an interrupt and notifies the user.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use floe_format::StoreDir;
use floe_store::{
    GcSettings, LockWait, StoreError, StoreLayout, StoreReader, StoreWriter, WriteOptions,
};

use crate::support::{Scratch, names, path, stage};

/// A thread acts as the collector: it holds gc.lock, listens, and acknowledges each root.
#[test]
fn temp_roots_wait_for_acknowledgement_of_running_gc() {
    let scratch = Scratch::new();
    let writer = scratch.writer();
    let state = scratch.layout().state_dir;
    let lock = File::options()
        .read(true)
        .write(true)
        .open(state.join("gc.lock"))
        .unwrap();
    lock.lock().unwrap();
    fs::create_dir_all(state.join("gc-socket")).unwrap();
    let listener = UnixListener::bind(state.join("gc-socket/socket")).unwrap();
    let collector = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
        let mut told = Vec::new();
        for _ in 0..2 {
            told.push(lines.next().unwrap().unwrap());
            stream.write_all(b"1").unwrap();
        }
        told
    });
    let (a, b) = (path('1', "a"), path('2', "b"));
    writer.add_temp_roots([&a, &b].into_iter()).unwrap();
    let told = collector.join().unwrap();
    assert_eq!(told, [format!("/nix/store/{a}"), format!("/nix/store/{b}")]);
    drop(lock);
}

/// A socket address has at most 107 bytes, and a path may be longer.
#[test]
fn gc_socket_with_long_path_is_reachable() {
    let scratch = Scratch::new();
    let root = scratch.path().join("r".repeat(110));
    let layout = StoreLayout::in_root(&root, StoreDir::default());
    let writer = StoreWriter::open(layout.clone()).unwrap();
    let lock = locked(&layout.state_dir.join("gc.lock"));
    let directory = layout.state_dir.join("gc-socket");
    fs::create_dir_all(&directory).unwrap();
    // The socket is bound at a short path and then renamed.
    let short = scratch.path().join("socket");
    let listener = UnixListener::bind(&short).unwrap();
    fs::rename(&short, directory.join("socket")).unwrap();
    let collector = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut line = String::new();
        let mut lines = BufReader::new(stream.try_clone().unwrap());
        lines.read_line(&mut line).unwrap();
        stream.write_all(b"1").unwrap();
        line
    });
    let a = path('1', "a");
    writer.add_temp_roots([&a].into_iter()).unwrap();
    assert_eq!(collector.join().unwrap(), format!("/nix/store/{a}\n"));
    drop(lock);
}

/// Roots of processes have only hash parts, so the collector finds paths by them.
#[test]
fn rooted_path_with_shared_hash_part_is_no_garbage() {
    let scratch = Scratch::new();
    let layout = scratch.layout();
    let (a, b) = (path('1', "a"), path('1', "b"));
    let writer = scratch.writer();
    let batch = vec![stage(&writer, &a, &[]), stage(&writer, &b, &[])];
    assert_eq!(writer.register(batch).unwrap().valid.len(), 2);
    drop(writer);
    let link = layout.state_dir.join("gcroots/a");
    symlink(layout.store_dir.full_path(&a), link).unwrap();
    let reader = StoreReader::open(layout).unwrap();
    let garbage = reader.find_garbage(&GcSettings::default(), &HashSet::new());
    let garbage = garbage.unwrap();
    assert_eq!(garbage.dead, []);
    assert_eq!(garbage.live, [a, b].into());
}

/// The collector holds the lock and does not listen yet.
#[test]
fn temp_roots_succeed_when_gc_ends() {
    let scratch = Scratch::new();
    let writer = scratch.writer();
    let state = scratch.layout().state_dir;
    let lock = File::options()
        .read(true)
        .write(true)
        .open(state.join("gc.lock"))
        .unwrap();
    lock.lock().unwrap();
    let a = path('1', "a");
    thread::scope(|scope| {
        let waiting = scope.spawn(|| writer.add_temp_roots([&a].into_iter()));
        // The writer cannot have finished: the lock is held and no process listens.
        assert!(!waiting.is_finished());
        lock.unlock().unwrap();
        waiting.join().unwrap().unwrap();
    });
    let roots: Vec<_> = fs::read_dir(state.join("temproots")).unwrap().collect();
    let text = fs::read(roots[0].as_ref().unwrap().path()).unwrap();
    assert_eq!(text, format!("/nix/store/{a}\0").into_bytes());
}

#[test]
fn invalid_gc_reply_is_an_error() {
    let scratch = Scratch::new();
    let writer = scratch.writer();
    let state = scratch.layout().state_dir;
    let lock = File::options()
        .read(true)
        .write(true)
        .open(state.join("gc.lock"))
        .unwrap();
    lock.lock().unwrap();
    fs::create_dir_all(state.join("gc-socket")).unwrap();
    let listener = UnixListener::bind(state.join("gc-socket/socket")).unwrap();
    let collector = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut line = String::new();
        BufReader::new(stream.try_clone().unwrap())
            .read_line(&mut line)
            .unwrap();
        stream.write_all(b"0").unwrap();
    });
    let error = writer
        .add_temp_roots([&path('1', "a")].into_iter())
        .unwrap_err();
    assert!(error.to_string().contains("cannot send a root"), "{error}");
    collector.join().unwrap();
}

/// The next collection may begin right after the reply.
#[test]
fn temp_root_is_written_before_gc_is_notified() {
    let scratch = Scratch::new();
    let writer = scratch.writer();
    let state = scratch.layout().state_dir;
    let lock = locked(&state.join("gc.lock"));
    fs::create_dir_all(state.join("gc-socket")).unwrap();
    let listener = UnixListener::bind(state.join("gc-socket/socket")).unwrap();
    let a = path('1', "a");
    let written = thread::scope(|scope| {
        let protecting = scope.spawn(|| writer.add_temp_roots([&a].into_iter()));
        let (mut stream, _) = listener.accept().unwrap();
        let mut line = String::new();
        BufReader::new(stream.try_clone().unwrap())
            .read_line(&mut line)
            .unwrap();
        let file = fs::read_dir(state.join("temproots")).unwrap().next();
        let written = fs::read(file.unwrap().unwrap().path()).unwrap();
        stream.write_all(b"1").unwrap();
        protecting.join().unwrap().unwrap();
        written
    });
    assert_eq!(written, format!("/nix/store/{a}\0").into_bytes());
    drop(lock);
}

#[test]
fn wait_for_gc_waits_only_for_notified_gc() {
    let scratch = Scratch::new();
    let writer = scratch.writer();
    let state = scratch.layout().state_dir;
    let a = path('1', "a");
    writer.add_temp_roots([&a].into_iter()).unwrap();
    let lock = locked(&state.join("gc.lock"));
    // This collection began later and has read the file.
    writer.wait_for_gc().unwrap();
    fs::create_dir_all(state.join("gc-socket")).unwrap();
    let listener = UnixListener::bind(state.join("gc-socket/socket")).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            let (mut stream, _) = listener.accept().unwrap();
            // A collector that closes the connection before it has read the path resets it.
            let mut line = String::new();
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            reader.read_line(&mut line).unwrap();
            stream.write_all(b"1").unwrap();
        });
        writer.add_temp_roots([&a].into_iter()).unwrap();
        let (sender, receiver) = mpsc::channel();
        let writer = &writer;
        scope.spawn(move || sender.send(writer.wait_for_gc().is_ok()).unwrap());
        let waits = receiver.recv_timeout(Duration::from_millis(200));
        assert_eq!(waits, Err(mpsc::RecvTimeoutError::Timeout));
        lock.unlock().unwrap();
        assert!(receiver.recv().unwrap());
    });
}

#[test]
fn interrupt_ends_every_wait_after_notification() {
    let scratch = Scratch::new();
    drop(scratch.writer());
    let state = scratch.layout().state_dir;
    let profile = scratch.path().join("profile");
    let a = path('1', "a");
    type Act<'a> = &'a dyn Fn(&StoreWriter) -> Result<(), StoreError>;
    let add_temp_roots: Act<'_> = &|writer| writer.add_temp_roots([&a].into_iter());
    let set: Act<'_> = &|writer| {
        let profile = floe_store::Profile::check(writer.layout(), &profile)?;
        writer.set_profile(&profile, &a).map(drop)
    };
    let nothing: Act<'_> = &|_| Ok(());
    let profile_lock = scratch.path().join("profile.lock");
    for (lock, act, whom) in [
        (
            state.join("gc.lock"),
            add_temp_roots,
            "the garbage collector",
        ),
        (
            state.join("db/big-lock"),
            nothing,
            "the big lock of the store",
        ),
        (profile_lock, set, "the process that has locked"),
    ] {
        let held = locked(&lock);
        let cancel = Arc::new(AtomicBool::new(false));
        let said = Arc::new(AtomicUsize::new(0));
        let (raise, count, whom) = (cancel.clone(), said.clone(), whom.to_owned());
        let lock_wait = LockWait::new(cancel, move |what| {
            assert!(what.contains(&whom), "{what}");
            count.fetch_add(1, Ordering::SeqCst);
            // The user interrupts after the notification.
            raise.store(true, Ordering::SeqCst);
        });
        let options = WriteOptions {
            lock_wait,
            ..WriteOptions::default()
        };
        let began = Instant::now();
        let opened = StoreWriter::open_with(scratch.layout(), &options);
        let error = opened.and_then(|writer| act(&writer)).unwrap_err();
        assert!(matches!(error, StoreError::Interrupted), "{error}");
        assert_eq!(said.load(Ordering::SeqCst), 1, "{}", lock.display());
        assert!(began.elapsed() >= Duration::from_secs(1));
        drop(held);
    }
}

/// The lock holder stands for a Nix that registers a large closure, or for a vacuum.
#[test]
fn locked_database_is_waited_for_until_interrupt() {
    let scratch = Scratch::new();
    let cancel = Arc::new(AtomicBool::new(false));
    let said = Arc::new(AtomicUsize::new(0));
    let (raise, count) = (cancel.clone(), said.clone());
    let lock_wait = LockWait::new(cancel, move |what| {
        assert_eq!(what, "the database, at most 10 minutes");
        count.fetch_add(1, Ordering::SeqCst);
        raise.store(true, Ordering::SeqCst);
    });
    let options = WriteOptions {
        lock_wait,
        ..WriteOptions::default()
    };
    let writer = Arc::new(StoreWriter::open_with(scratch.layout(), &options).unwrap());
    let a = path('1', "a");
    let batch = vec![stage(&writer, &a, &[])];
    let file = scratch.layout().database_dir().join("db.sqlite");
    let other = rusqlite::Connection::open(file).unwrap();
    other.execute_batch("begin immediate").unwrap();
    let (sender, receiver) = mpsc::channel();
    let registering = writer.clone();
    thread::spawn(move || sender.send(registering.register(batch).map(drop)));
    let error = receiver.recv_timeout(SURELY_STUCK).unwrap().unwrap_err();
    assert!(matches!(error, StoreError::Interrupted), "{error}");
    assert_eq!(said.load(Ordering::SeqCst), 1);
    // The tree is kept for the next run.
    assert!(writer.take_recovered(&a).is_some() && names(&scratch.layout()).is_empty());
    other.execute_batch("rollback").unwrap();
    let again = scratch.writer();
    let outcome = again.register(vec![stage(&again, &a, &[])]).unwrap();
    assert_eq!(outcome.valid, [a]);
}

/// Many times the second after which the user is notified.
const SURELY_STUCK: Duration = Duration::from_secs(30);

/// The lock file of that name, locked exclusively by this test.
fn locked(path: &Path) -> File {
    let mut options = File::options();
    let options = options.read(true).write(true).create(true).truncate(false);
    let file = options.open(path).unwrap();
    file.lock().unwrap();
    file
}
