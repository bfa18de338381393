//! Two copies in one process, with shared or separate temporary roots.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Barrier;
use std::thread;

use floe_copy::{CopyRequest, CopySummary};
use floe_format::StoreDir;
use floe_store::{TempRoots, WriteOptions};
use floe_testkit::{Corpus, corpus, scratch};

use super::copy_of;
use crate::faulty_cache::assert_store_contains_exactly;

fn copy_closure(corpus: &Corpus, root: &Path, roots: &TempRoots, start: &Barrier) -> CopySummary {
    let write = WriteOptions {
        temp_roots: roots.clone(),
        ..WriteOptions::default()
    };
    let copy = CopyRequest {
        write,
        ..copy_of(corpus, root)
    };
    start.wait();
    copy.open().unwrap().run().unwrap()
}

#[test]
fn concurrent_copies_in_one_process_make_one_complete_store() {
    let (Some(jq), Some(curl)) = (corpus("jq"), corpus("curl")) else {
        return;
    };
    let all: BTreeSet<String> = jq.paths.iter().chain(&curl.paths).cloned().collect();
    assert!(
        all.len() < jq.paths.len() + curl.paths.len(),
        "the closures do not overlap"
    );
    let shared = TempRoots::default();
    for roots in [
        [shared.clone(), shared],
        [TempRoots::default(), TempRoots::default()],
    ] {
        let scratch = scratch();
        let root = scratch.join("root");
        let start = Barrier::new(2);
        let moved = thread::scope(|scope| {
            let copies = [(&jq, &roots[0]), (&curl, &roots[1])]
                .map(|(corpus, roots)| scope.spawn(|| copy_closure(corpus, &root, roots, &start)));
            copies.map(|mover| mover.join().unwrap())
        });
        for (outcome, corpus) in moved.iter().zip([&jq, &curl]) {
            assert!(outcome.failures.is_empty(), "{:?}", outcome.failures);
            let found: Vec<String> = outcome
                .requested_paths
                .iter()
                .map(|path| StoreDir::default().full_path(path))
                .collect();
            assert_eq!(found, std::slice::from_ref(&corpus.root));
        }
        assert_store_contains_exactly(&root, &all);
    }
}
