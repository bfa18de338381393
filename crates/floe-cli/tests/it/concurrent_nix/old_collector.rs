//! A garbage collector like those before Nix 2.36. It acknowledges every temporary root at once,
//! but still deletes the garbage that it found before.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use floe_copy::CopyRequest;
use floe_format::StoreDir;
use floe_store::tree::remove_tree;
use floe_testkit::{corpus, nixes, run, scratch};
use floe_transfer::{Event, EventSink, Events};
use parking_lot::Mutex;

use super::copy_of;
use crate::faulty_cache::assert_verified;

/// Collects until the copy is planned, and then deletes all paths.
struct Collector {
    root: PathBuf,
    /// `gc.lock`, which is held during the collection.
    lock: Mutex<Option<File>>,
    deleted: AtomicUsize,
}

impl Collector {
    fn new(root: &Path) -> Collector {
        Collector {
            root: root.to_path_buf(),
            lock: Mutex::default(),
            deleted: AtomicUsize::new(0),
        }
    }

    /// Acquires the lock, and acknowledges all roots from now on.
    fn begin(&self) {
        let state = self.root.join("nix/var/nix");
        let lock = File::create(state.join("gc.lock")).unwrap();
        lock.lock().unwrap();
        fs::create_dir_all(state.join("gc-socket")).unwrap();
        let socket = state.join("gc-socket/socket");
        let listener = UnixListener::bind(socket).unwrap();
        // The thread is never joined. It ends with the process.
        thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                for _ in BufReader::new(stream.try_clone().unwrap()).lines() {
                    stream.write_all(b"1").unwrap();
                }
            }
        });
        *self.lock.lock() = Some(lock);
    }

    fn delete_everything(&self) {
        let database = self.root.join("nix/var/nix/db/db.sqlite");
        let connection = rusqlite::Connection::open(database).unwrap();
        let gone = connection
            .execute("delete from Refs", ())
            .and_then(|_| connection.execute("delete from ValidPaths", ()));
        self.deleted.store(gone.unwrap(), Ordering::SeqCst);
        for entry in fs::read_dir(self.root.join("nix/store")).unwrap() {
            let entry = entry.unwrap();
            if entry.file_name() != ".links" {
                remove_tree(&entry.path()).unwrap();
            }
        }
    }
}

impl EventSink for Collector {
    fn event(&self, event: Event<'_>) {
        if let Event::Planned { .. } = event {
            // At this point the copy has seen its paths as valid.
            if let Some(lock) = self.lock.lock().take() {
                self.delete_everything();
                lock.unlock().unwrap();
            }
        }
    }
}

#[test]
fn path_deleted_by_old_collector_is_fetched_again() {
    let Some(corpus) = corpus("jq") else { return };
    let scratch = scratch();
    let root = scratch.join("root");
    run(&mut super::install(&corpus, &root)).expect(0);
    let collector = Arc::new(Collector::new(&root));
    let request = CopyRequest {
        events: Events::new(collector.clone()),
        ..copy_of(&corpus, &root)
    };
    let copy = request.open().unwrap();
    collector.begin();
    let wanted = StoreDir::default().parse(&corpus.root).unwrap();
    let outcome = copy.run().unwrap();
    let all = corpus.paths.len();
    assert_eq!(collector.deleted.load(Ordering::SeqCst), all);
    assert!(outcome.failures.is_empty(), "{:?}", outcome.failures);
    assert_eq!(outcome.requested_paths, [wanted]);
    assert_eq!(outcome.copied, all as u64);
    drop(copy);
    assert_verified(&root, all);
    for nix in nixes() {
        nix.verify(&root, all);
    }
}
