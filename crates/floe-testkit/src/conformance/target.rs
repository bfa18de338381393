//! The conformance tests of targets.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::thread;

use floe_format::StorePath;
use floe_transfer::{CommitOutcome, ErrorKind, Target};

use super::contents::{Contents, KnownPath};
use super::incoming::stage;

/// A target that is empty at first.
pub struct TargetFixture<'a> {
    /// Opens the target. A second call opens the same target again.
    pub open: &'a dyn Fn() -> Arc<dyn Target>,
    /// The paths to write.
    pub contents: &'a Contents,
}

/// Runs all tests of a target. Afterwards it has all paths.
pub fn check_target(fixture: &TargetFixture<'_>) {
    let target = (fixture.open)();
    let contents = fixture.contents;
    assert_eq!(missing(&*target, contents), contents.store_paths());
    target.prepare().unwrap();
    wrong_nars_are_refused(&*target, contents);
    if target.facts().needs_references_first {
        referrer_before_its_references_is_refused(&*target, contents);
        paths_are_staged_after_their_references(&*target, contents);
    } else {
        referrer_waits_for_its_references(&*target, contents);
        concurrent_workers_stage_all_paths(&*target, contents);
        assert_eq!(missing(&*target, contents), contents.store_paths());
    }
    batch_becomes_valid_in_order(&*target, contents);
    valid_path_stays_valid_when_it_is_staged_again(&*target, contents);
    drop(target);
    let again = (fixture.open)();
    assert_eq!(missing(&*again, contents), Vec::<StorePath>::new());
    assert_eq!(again.store_dir(), &Default::default());
}

/// Returns the paths that the target lacks.
fn missing(target: &dyn Target, contents: &Contents) -> Vec<StorePath> {
    let missing = target.add_temp_roots_and_query_missing(&contents.store_paths());
    let missing = missing.unwrap();
    assert_eq!(missing.damaged, []);
    missing.paths
}

fn stage_known(target: &dyn Target, known: &KnownPath) {
    stage(target, &known.narinfo, known.nar.clone()).unwrap();
}

/// A NAR with another byte, a NAR that is cut, and one with bytes after its end.
fn wrong_nars_are_refused(target: &dyn Target, contents: &Contents) {
    for known in &contents.paths {
        let nar = &known.nar;
        let mut altered = nar.clone();
        // The last bytes of a NAR are padding and brackets.
        let middle = nar.len() / 2;
        altered[middle] ^= 1;
        let longer = [&nar[..], b"more"].concat();
        for wrong in [altered, nar[..nar.len() - 8].to_vec(), longer] {
            let error = stage(target, &known.narinfo, wrong).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Untrusted, "{error}");
        }
    }
    assert_eq!(missing(target, contents), contents.store_paths());
}

fn referrer_waits_for_its_references(target: &dyn Target, contents: &Contents) {
    let known = contents.paths.last().unwrap();
    let path = known.path().clone();
    stage_known(target, known);
    let outcome = target.commit(std::slice::from_ref(&path)).unwrap();
    let mut references = known.narinfo.info.references.clone();
    references.remove(&path);
    assert_eq!(outcome.missing_references, [(path.clone(), references)]);
    assert!(outcome.valid.is_empty() && outcome.refused.is_empty());
    target.discard(std::slice::from_ref(&path));
    // A path that is not staged is ignored.
    target.discard(&[path]);
    assert_eq!(missing(target, contents), contents.store_paths());
}

fn referrer_before_its_references_is_refused(target: &dyn Target, contents: &Contents) {
    let known = contents.paths.last().unwrap();
    let path = known.path().clone();
    stage_known(target, known);
    let outcome = target.commit(std::slice::from_ref(&path)).unwrap();
    assert!(matches!(&*outcome.refused, [(refused, _)] if *refused == path));
    assert!(outcome.valid.is_empty() && outcome.missing_references.is_empty());
    assert_eq!(missing(target, contents), contents.store_paths());
}

fn paths_are_staged_after_their_references(target: &dyn Target, contents: &Contents) {
    for known in &contents.paths {
        stage_known(target, known);
    }
}

fn concurrent_workers_stage_all_paths(target: &dyn Target, contents: &Contents) {
    thread::scope(|scope| {
        for known in contents.paths.iter().rev() {
            scope.spawn(|| stage_known(target, known));
        }
    });
}

fn batch_becomes_valid_in_order(target: &dyn Target, contents: &Contents) {
    let paths = contents.store_paths();
    let (first, rest) = paths.split_at(2);
    for batch in [first, rest] {
        let outcome = target.commit(batch).unwrap();
        assert_all_valid(&outcome, batch);
    }
    assert_eq!(missing(target, contents), Vec::<StorePath>::new());
}

/// As after a copy that another process has overtaken.
fn valid_path_stays_valid_when_it_is_staged_again(target: &dyn Target, contents: &Contents) {
    for known in &contents.paths {
        stage_known(target, known);
        let batch = [known.path().clone()];
        assert_all_valid(&target.commit(&batch).unwrap(), &batch);
    }
    assert_eq!(missing(target, contents), Vec::<StorePath>::new());
}

/// Each path of the batch is reported once.
fn assert_all_valid(outcome: &CommitOutcome, batch: &[StorePath]) {
    let valid: BTreeSet<_> = outcome.valid.iter().collect();
    assert_eq!(valid, batch.iter().collect());
    assert_eq!(outcome.valid.len(), batch.len());
    assert!(outcome.busy.is_empty() && outcome.missing_references.is_empty());
    assert!(outcome.refused.is_empty(), "{:?}", outcome.refused);
}
