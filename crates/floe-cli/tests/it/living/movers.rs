//! Two copies in one process, with shared or separate temporary roots.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Barrier;
use std::thread;

use floe_engine::{ClosureCopy, CopySummary, PathSpec, Target};
use floe_format::StoreDir;
use floe_store::{TempRoots, WriteOptions};

use super::{source_of, store_in, unsigned};
use crate::faulty::assert_holds_exactly;
use crate::support::{Corpus, corpus, scratch};

fn move_closure(corpus: &Corpus, root: &Path, roots: &TempRoots, start: &Barrier) -> CopySummary {
    let (options, sources) = (unsigned(), source_of(corpus));
    let write = WriteOptions {
        temp_roots: roots.clone(),
        ..WriteOptions::default()
    };
    start.wait();
    let target = Target::open(&store_in(root), None, &write).unwrap();
    let copy = ClosureCopy {
        sources: &sources,
        target: &target,
        options: &options,
        events: &(),
    };
    let wanted = StoreDir::default().parse(&corpus.root).unwrap();
    copy.run(&[PathSpec::Path(wanted)]).unwrap()
}

#[test]
fn two_movers_of_overlapping_closures_make_one_whole_store() {
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
            let movers = [(&jq, &roots[0]), (&curl, &roots[1])]
                .map(|(corpus, roots)| scope.spawn(|| move_closure(corpus, &root, roots, &start)));
            movers.map(|mover| mover.join().unwrap())
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
        assert_holds_exactly(&root, &all);
    }
}
