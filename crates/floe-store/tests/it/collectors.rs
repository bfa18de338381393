//! A running garbage collector is told of every root, and waited for.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixListener;
use std::thread;

use crate::support::{Scratch, path};

/// What a collector does: holds gc.lock, listens, acknowledges each root.
#[test]
fn a_running_collector_acknowledges_every_root_before_they_count() {
    let scratch = Scratch::new();
    let writer = scratch.writer();
    let state = scratch.layout().state;
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
    writer.protect([&a, &b].into_iter()).unwrap();
    let told = collector.join().unwrap();
    assert_eq!(told, [format!("/nix/store/{a}"), format!("/nix/store/{b}")]);
    drop(lock);
}

/// A collector that holds the lock and does not listen (yet) is waited for.
#[test]
fn a_collector_that_ends_lets_the_roots_through() {
    let scratch = Scratch::new();
    let writer = scratch.writer();
    let state = scratch.layout().state;
    let lock = File::options()
        .read(true)
        .write(true)
        .open(state.join("gc.lock"))
        .unwrap();
    lock.lock().unwrap();
    let a = path('1', "a");
    thread::scope(|scope| {
        let waiting = scope.spawn(|| writer.protect([&a].into_iter()));
        // It cannot have finished: the lock is held and nobody listens.
        assert!(!waiting.is_finished());
        lock.unlock().unwrap();
        waiting.join().unwrap().unwrap();
    });
    let roots: Vec<_> = fs::read_dir(state.join("temproots")).unwrap().collect();
    let text = fs::read(roots[0].as_ref().unwrap().path()).unwrap();
    assert_eq!(text, format!("/nix/store/{a}\0").into_bytes());
}

#[test]
fn an_answer_that_is_none_is_an_error() {
    let scratch = Scratch::new();
    let writer = scratch.writer();
    let state = scratch.layout().state;
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
    let error = writer.protect([&path('1', "a")].into_iter()).unwrap_err();
    assert!(
        error.to_string().contains("did not accept a root"),
        "{error}"
    );
    collector.join().unwrap();
}
