//! A tree that is not completed is removed after its files are closed. NFS and FUSE give an open
//! file another name instead of removing it, and its directory could not be removed.

use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::Path;

use floe_store::StoreWriter;
use floe_store::tree::{ReuseMethod, TreeWriter};
use rustix::fs::inotify::{CreateFlags, ReadFlags, Reader, WatchFlags, add_watch, init};

use crate::support::{Scratch, nar_of, path};

/// A store whose changes are recorded.
struct Watched {
    _scratch: Scratch,
    store: StoreWriter,
    changes: OwnedFd,
}

impl Watched {
    fn new() -> Watched {
        let scratch = Scratch::new();
        let store = scratch.writer();
        let changes = init(CreateFlags::NONBLOCK).unwrap();
        let kinds = WatchFlags::CREATE | WatchFlags::CLOSE_WRITE | WatchFlags::DELETE;
        add_watch(&changes, &scratch.layout().real_store_dir, kinds).unwrap();
        Watched {
            _scratch: scratch,
            store,
            changes,
        }
    }

    fn tree_writer(&self) -> TreeWriter {
        self.store.tree_writer(&path('1', "x"))
    }

    /// Asserts that one file was created, closed and removed, in this order.
    fn assert_closed_before_removed(&self) {
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut reader = Reader::new(&self.changes, &mut buffer);
        let mut changes = Vec::new();
        while let Ok(change) = reader.next() {
            changes.push(change.events());
        }
        let expected = [ReadFlags::CREATE, ReadFlags::CLOSE_WRITE, ReadFlags::DELETE];
        assert_eq!(changes, expected);
    }
}

#[test]
fn file_of_incomplete_nar_is_closed_before_its_removal() {
    let watched = Watched::new();
    let nar = nar_of(b"contents");
    let mut writer = watched.tree_writer();
    writer.write(&nar[..nar.len() - 20]).unwrap();
    drop(writer);
    watched.assert_closed_before_removed();
}

#[test]
fn file_that_cannot_be_cloned_is_closed_before_its_removal() {
    let watched = Watched::new();
    // No file system clones files of another one.
    let source = Path::new("/proc/self/comm");
    let reused = watched
        .tree_writer()
        .reuse(source, 1000, ReuseMethod::Reflink);
    assert!(reused.unwrap().is_none());
    watched.assert_closed_before_removed();
}
