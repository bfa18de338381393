//! Roots that processes send to a running collection.

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};

use floe_format::StoreDir;
use floe_store::{Collector, GcSettings, Progress, StoreLayout, StoreReader, WriteOptions};
use floe_testkit::{corpus, nixes, ran_in_pid_namespace, run, scratch};
use parking_lot::Mutex;

use super::garbage_store::place;
use super::install;
use crate::support::floe;

/// Sends roots to the collection at a certain moment.
struct Sender {
    root: PathBuf,
    /// The text that is sent, one line after the other.
    lines: Vec<String>,
    /// The deletion before which the lines are sent; 0 means before the first.
    after: usize,
    deletions: AtomicUsize,
    /// The paths that were valid when the collector replied.
    valid: Mutex<BTreeSet<String>>,
}

impl Sender {
    fn send(&self) {
        let socket = self.root.join("nix/var/nix/gc-socket/socket");
        let mode = socket.metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o666, "another user cannot send roots");
        let Ok(mut stream) = UnixStream::connect(socket) else {
            // The collection has ended.
            return;
        };
        let store = StoreReader::open(layout(&self.root)).unwrap();
        for line in &self.lines {
            let mut reply = [0];
            let sent = stream.write_all(format!("{line}\n").as_bytes());
            if sent.and_then(|()| stream.read_exact(&mut reply)).is_err() {
                return;
            }
            assert_eq!(&reply, b"1", "{line}");
            let Ok(path) = StoreDir::default().parse(line) else {
                continue;
            };
            match store.path_info(&path).unwrap() {
                Some(_) => drop(self.valid.lock().insert(line.clone())),
                None => assert!(!place(&self.root, line).exists(), "{line} is half deleted"),
            }
        }
    }
}

/// Starts the sender at its moment. The sender has a thread of its own, because a deletion that it
/// waits for may need the thread of the observer.
struct Observer {
    sender: Arc<Sender>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Progress for Observer {
    fn started(&self, _paths: u64, _nar_bytes: u64) {
        if self.sender.after == 0 {
            self.sender.send();
        }
    }

    fn path_done(&self, _nar_bytes: u64) {
        let sender = self.sender.clone();
        if sender.deletions.fetch_add(1, Ordering::SeqCst) + 1 == sender.after {
            *self.thread.lock() = Some(thread::spawn(move || sender.send()));
        }
    }
}

fn layout(root: &Path) -> StoreLayout {
    StoreLayout::in_root(root, StoreDir::default())
}

/// Collects while `sender` sends its roots. Returns the number of deleted paths.
fn collect(sender: &Arc<Sender>) -> u64 {
    let collector = Collector::open(layout(&sender.root), &WriteOptions::default()).unwrap();
    let observer = Observer {
        sender: sender.clone(),
        thread: Mutex::default(),
    };
    // With a limit, the collection waits for the end of each batch.
    let limit = Some(u64::MAX);
    let (results, collected) = collector.collect(&GcSettings::default(), limit, &observer);
    collected.unwrap();
    let thread = observer.thread.into_inner();
    thread.map_or(Ok(()), JoinHandle::join).unwrap();
    assert!(results.failures.is_empty(), "{:?}", results.failures);
    results.paths
}

fn sender(root: PathBuf, lines: Vec<String>, after: usize) -> Arc<Sender> {
    Arc::new(Sender {
        root,
        lines,
        after,
        deletions: AtomicUsize::new(0),
        valid: Mutex::default(),
    })
}

#[test]
fn root_before_the_first_deletion_keeps_its_closure() {
    let Some(corpus) = corpus("jq") else { return };
    let scratch = scratch();
    let root = scratch.join("root");
    install(&corpus, &root);
    let lines = vec!["nonsense".into(), String::new(), corpus.root.clone()];
    let sender = sender(root.clone(), lines, 0);
    assert_eq!(collect(&sender), 0);
    for nix in nixes() {
        nix.verify(&root, corpus.paths.len());
    }
}

#[test]
fn root_during_a_deletion_is_whole_or_gone() {
    let Some(corpus) = corpus("curl") else { return };
    let (mut kept, mut gone) = (0, 0);
    for after in 1..12 {
        let scratch = scratch();
        let root = scratch.join("root");
        install(&corpus, &root);
        // References come first, and a collection deletes them last.
        let lines: Vec<String> = corpus.paths.clone();
        let count = lines.len();
        let sender = sender(root.clone(), lines, after);
        collect(&sender);
        let valid = sender.valid.lock().clone();
        let store = StoreReader::open(layout(&root)).unwrap();
        for path in &valid {
            let path = StoreDir::default().parse(path).unwrap();
            assert!(
                store.path_info(&path).unwrap().is_some(),
                "{path} was deleted"
            );
        }
        run(floe(["verify", "--root"]).arg(&root)).expect(0);
        kept += valid.len();
        gone += count - valid.len();
    }
    assert!(kept > 0 && gone > 0, "{kept} kept, {gone} gone");
}

#[test]
fn collection_in_a_store_with_a_long_path_has_a_socket() {
    if ran_in_pid_namespace() {
        return;
    }
    let Some(corpus) = corpus("jq") else { return };
    let scratch = scratch();
    let root = scratch.join(&"long-".repeat(20)).join("path-".repeat(20));
    install(&corpus, &root);
    let mut install = floe([
        "install",
        "--no-check-sigs",
        "--from",
        &corpus.file_url("zstd"),
    ]);
    install.arg("--root").arg(&root).arg(&corpus.root);
    let lock = std::fs::File::create(root.join("nix/var/nix/gc.lock")).unwrap();
    drop(lock);
    run(floe(["gc", "--root"]).arg(&root)).expect(0);
    let socket = root.join("nix/var/nix/gc-socket/socket");
    assert!(socket.symlink_metadata().is_ok());
    run(&mut install).expect(0);
}
