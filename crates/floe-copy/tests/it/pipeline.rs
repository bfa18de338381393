//! Copies from sources in memory into a target in memory.

use std::collections::BTreeSet;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use floe_copy::{ClosureCopy, CopySummary, Sources};
use floe_format::{SecretKey, StorePath};
use floe_testkit::{
    MemorySource, MemoryTarget, Registration, SourceFault, TIMEOUT, synthetic_cache, wait_until,
};
use floe_transfer::{CopyOptions, Error, PathSpec, RetryPolicy, Source};

/// Attempts of one transfer, as users have by default.
pub(crate) const ATTEMPTS: u32 = 3;

pub(crate) fn source(name: &str) -> Arc<MemorySource> {
    Arc::new(MemorySource::new(name, None))
}

pub(crate) fn copy(
    sources: &[&Arc<MemorySource>],
    target: &MemoryTarget,
    specs: &[&StorePath],
) -> Result<CopySummary, Error> {
    copy_with(sources, target, specs, &options())
}

fn copy_with(
    sources: &[&Arc<MemorySource>],
    target: &MemoryTarget,
    specs: &[&StorePath],
    options: &CopyOptions,
) -> Result<CopySummary, Error> {
    let specs: Vec<PathSpec> = specs
        .iter()
        .map(|path| PathSpec::Path((*path).clone()))
        .collect();
    let list = sources
        .iter()
        .map(|source| Arc::<MemorySource>::clone(source) as Arc<dyn Source>);
    let sources = Sources::new(list.collect(), RetryPolicy::with_attempts(ATTEMPTS));
    let copy = ClosureCopy {
        sources: &sources,
        target,
        options,
        events: &(),
    };
    copy.run(&specs)
}

pub(crate) fn options() -> CopyOptions {
    CopyOptions {
        jobs: NonZeroUsize::new(2),
        ..CopyOptions::default()
    }
}

fn targets() -> [MemoryTarget; 2] {
    [Registration::Batch, Registration::OneByOne].map(MemoryTarget::new)
}

pub(crate) fn batch_target() -> MemoryTarget {
    MemoryTarget::new(Registration::Batch)
}

pub(crate) fn path(number: usize) -> StorePath {
    synthetic_cache::path(number)
}

fn sorted(paths: &[StorePath]) -> BTreeSet<StorePath> {
    paths.iter().cloned().collect()
}

fn path_names(summary: &CopySummary) -> Vec<&str> {
    let failures = summary.failures.iter();
    failures.map(|error| error.path_name().unwrap()).collect()
}

#[test]
fn closure_is_valid_with_references_before_referrers() {
    // More paths than one batch; larger paths refer to smaller ones and arrive first.
    const COUNT: usize = 100;
    for target in targets() {
        let cache = source("memory:a");
        let references = |number: usize| match number {
            0 => Vec::new(),
            1 => vec![0],
            _ => vec![number - 1, number / 2],
        };
        for number in 0..COUNT {
            cache.add(number, 10 + number, &references(number));
        }

        let summary = copy(&[&cache], &target, &[&path(COUNT - 1)]).unwrap();

        assert!(
            summary.failures.is_empty(),
            "failed: {:?}",
            summary.failures
        );
        assert_eq!(summary.copied, COUNT as u64);
        assert_eq!(summary.requested_paths, [path(COUNT - 1)]);
        let valid = target.valid();
        assert_eq!(valid.len(), COUNT, "a path became valid twice or never");
        assert_eq!(sorted(&valid), (0..COUNT).map(path).collect());
        assert_eq!(target.staged(), []);
    }
}

#[test]
fn one_by_one_target_gets_references_first() {
    let target = MemoryTarget::new(Registration::OneByOne);
    let cache = source("memory:a");
    cache.add(0, 10, &[]);
    cache.add(1, 20, &[0]);
    cache.add(2, 30, &[1]);

    copy(&[&cache], &target, &[&path(2)]).unwrap();

    assert_eq!(target.valid(), [path(0), path(1), path(2)]);
}

#[test]
fn permanent_failure_fails_over_to_second_source() {
    let (first, second, target) = (source("memory:a"), source("memory:b"), batch_target());
    let requested = first.add(0, 10, &[]);
    second.add(0, 10, &[]);
    first.inject(&requested, SourceFault::Permanent);

    let summary = copy(&[&first, &second], &target, &[&requested]).unwrap();

    assert!(
        summary.failures.is_empty(),
        "failed: {:?}",
        summary.failures
    );
    assert_eq!(first.opened().len(), 1, "a permanent failure was retried");
    assert_eq!(second.opened(), [path(0)]);
    assert_eq!(target.valid(), [requested]);
}

#[test]
fn failed_write_of_target_does_not_fail_over() {
    let (first, second, target) = (source("memory:a"), source("memory:b"), batch_target());
    let requested = first.add(0, 10, &[]);
    second.add(0, 10, &[]);
    target.fail_writes(&requested);

    let summary = copy(&[&first, &second], &target, &[&requested]).unwrap();

    let failures = &summary.failures;
    assert!(matches!(failures[..], [Error::File { .. }]), "{failures:?}");
    assert_eq!(second.opened(), [], "no source can cure a failed write");
}

#[test]
fn wrong_bytes_fail_over_and_never_become_valid() {
    let (first, second, target) = (source("memory:a"), source("memory:b"), batch_target());
    let requested = first.add(0, 10, &[]);
    second.add(0, 10, &[]);
    first.inject(&requested, SourceFault::WrongBytes);

    copy(&[&first, &second], &target, &[&requested]).unwrap();

    assert_eq!(second.opened(), [path(0)]);
    let right = floe_testkit::nars::file(b"xxxxxxxxxx");
    assert_eq!(target.nar(&requested), Some(right));
}

#[test]
fn wrong_bytes_from_only_source_leave_no_path() {
    let (cache, target) = (source("memory:a"), batch_target());
    let requested = cache.add(0, 10, &[]);
    cache.inject(&requested, SourceFault::WrongBytes);

    let summary = copy(&[&cache], &target, &[&requested]).unwrap();

    let failures = &summary.failures;
    assert!(
        matches!(failures[..], [Error::Mismatch { .. }]),
        "{failures:?}"
    );
    assert_eq!((target.valid(), target.staged()), (vec![], vec![]));
    assert_eq!(summary.requested_paths, []);
}

#[test]
fn failed_path_takes_only_its_referrers_with_it() {
    for target in targets() {
        let cache = source("memory:a");
        let broken = cache.add(0, 10, &[]);
        let good = cache.add(1, 20, &[]);
        let referrer = cache.add(2, 30, &[0]);
        let indirect = cache.add(3, 40, &[2]);
        let other = cache.add(4, 50, &[1]);
        cache.inject(&broken, SourceFault::Permanent);

        let summary = copy(&[&cache], &target, &[&indirect, &other]).unwrap();

        assert_eq!(sorted(&target.valid()), sorted(&[good, other.clone()]));
        let names = path_names_of_missing_references(&summary);
        assert_eq!(names, BTreeSet::from([referrer, indirect]));
        assert_eq!(summary.failures.len(), 3);
        assert_eq!(summary.requested_paths, [other]);
        assert_eq!(target.staged(), [], "a path stays staged");
    }
}

fn path_names_of_missing_references(summary: &CopySummary) -> BTreeSet<StorePath> {
    let failures = summary.failures.iter();
    let missing = failures.filter_map(|error| match error {
        Error::MissingReferences { path, .. } => Some(path.clone()),
        _ => None,
    });
    missing.collect()
}

#[test]
fn unsigned_path_is_refused_only_by_target_with_trust_check() {
    let cache = source("memory:a");
    let requested = cache.add(0, 10, &[]);
    let strict = batch_target().with_trust_check();

    let summary = copy(&[&cache], &strict, &[&requested]).unwrap();
    let failures = &summary.failures;
    assert!(
        matches!(failures[..], [Error::Untrusted { .. }]),
        "{failures:?}"
    );
    assert_eq!((strict.valid(), cache.opened()), (vec![], vec![]));

    let lenient = batch_target();
    copy(&[&cache], &lenient, &[&requested]).unwrap();
    assert_eq!(lenient.valid(), [requested]);
}

#[test]
fn signed_path_is_accepted_by_target_with_trust_check() {
    let key = SecretKey::from_seed("test-1", [7; 32]).unwrap();
    let trusted_keys = [key.public()].into_iter().collect();
    let cache = Arc::new(MemorySource::new("memory:a", Some(key)));
    let requested = cache.add(0, 10, &[]);
    let target = batch_target().with_trust_check();
    let options = CopyOptions {
        trusted_keys,
        ..options()
    };

    let summary = copy_with(&[&cache], &target, &[&requested], &options).unwrap();

    assert!(
        summary.failures.is_empty(),
        "failed: {:?}",
        summary.failures
    );
    assert_eq!(target.valid(), [requested]);
}

#[test]
fn busy_path_is_committed_later() {
    for target in targets() {
        let cache = source("memory:a");
        let busy = cache.add(0, 10, &[]);
        let requested = cache.add(1, 20, &[0]);
        target.set_busy(&busy, 2);

        let summary = copy(&[&cache], &target, &[&requested]).unwrap();

        assert!(
            summary.failures.is_empty(),
            "failed: {:?}",
            summary.failures
        );
        assert_eq!(target.valid(), [busy, requested]);
        assert_eq!(cache.opened().len(), 2, "a busy path was fetched again");
    }
}

#[test]
fn refused_path_fails_alone() {
    let (cache, target) = (source("memory:a"), batch_target());
    let refused = cache.add(0, 10, &[]);
    let other = cache.add(1, 20, &[]);
    target.refuse(&refused);

    let summary = copy(&[&cache], &target, &[&refused, &other]).unwrap();

    assert_eq!(path_names(&summary), [refused.as_str()]);
    assert_eq!(target.valid(), [path(1)]);
    assert_eq!(summary.requested_paths, [other]);
}

#[test]
fn missing_path_error_names_all_sources() {
    let (first, second, target) = (source("memory:a"), source("memory:b"), batch_target());

    let summary = copy(&[&first, &second], &target, &[&path(0)]).unwrap();

    let [
        Error::NotFound {
            path: name,
            sources,
        },
    ] = &summary.failures[..]
    else {
        panic!("not NotFound: {:?}", summary.failures);
    };
    assert_eq!(*name, path(0).to_string());
    assert_eq!(sources[..], ["memory:a", "memory:b"]);
    assert_eq!((first.queries().len(), second.queries().len()), (1, 1));
}

#[test]
fn cancelled_copy_ends_soon_and_leaves_nothing_staged() {
    let (cache, target) = (source("memory:a"), batch_target());
    let held = cache.add(0, 10, &[]);
    let referrer = cache.add(1, 20, &[0]);
    cache.inject(&held, SourceFault::Held);
    let options = options();

    let (result, time) = thread::scope(|scope| {
        let run = scope.spawn(|| copy_with(&[&cache], &target, &[&referrer], &options));
        wait_until("the referrer was not staged", || {
            target.staged() == [referrer.clone()]
        });
        wait_until("the reference was not opened", || {
            cache.opened().contains(&held)
        });
        let began = Instant::now();
        options.cancel.raise();
        (run.join().unwrap(), began.elapsed())
    });

    assert!(matches!(result, Err(Error::Cancelled)), "{result:?}");
    assert!(time < TIMEOUT / 3, "the copy ended after {time:?}");
    assert_eq!((target.valid(), target.staged()), (vec![], vec![]));
}

/// Such a path was once dropped without a message, because its error looked like a cancellation.
#[test]
fn target_that_reads_a_nar_twice_fails_the_path() {
    let (cache, target) = (source("memory:a"), batch_target());
    let read_twice = cache.add(0, 10, &[]);
    let other = cache.add(1, 10, &[]);
    target.read_twice(&read_twice);
    let summary = copy(&[&cache], &target, &[&read_twice, &other]).unwrap();
    assert!(
        matches!(summary.failures[..], [Error::Internal(_)]),
        "{:?}",
        summary.failures
    );
    assert_eq!(target.valid(), [other]);
}

#[test]
fn dry_run_stages_nothing() {
    let (cache, target) = (source("memory:a"), batch_target());
    cache.add(0, 10, &[]);
    let requested = cache.add(1, 20, &[0]);
    let options = CopyOptions {
        dry_run: true,
        ..options()
    };

    let summary = copy_with(&[&cache], &target, &[&requested], &options).unwrap();

    let planned: Vec<&StorePath> = summary.planned.iter().map(|(path, ..)| path).collect();
    assert_eq!(planned, [&requested, &path(0)]);
    assert_eq!((cache.opened(), target.received()), (vec![], 0));
}

#[test]
fn overlapping_path_specs_are_fetched_once() {
    let (cache, target) = (source("memory:a"), batch_target());
    for (number, references) in [(0, &[][..]), (1, &[0]), (2, &[0, 1])] {
        cache.add(number, 10 + number, references);
    }

    let specs = [&path(2), &path(1), &path(2)];
    let summary = copy(&[&cache], &target, &specs).unwrap();

    assert_eq!(summary.requested_paths, [path(2), path(1), path(2)]);
    assert_eq!(summary.copied, 3);
    assert_eq!((cache.queries().len(), cache.opened().len()), (3, 3));
    assert_eq!(target.received(), 3);
}

#[test]
fn valid_path_is_neither_queried_nor_fetched() {
    let (cache, target) = (source("memory:a"), batch_target());
    cache.add(0, 10, &[]);
    copy(&[&cache], &target, &[&path(0)]).unwrap();
    cache.add(1, 20, &[0]);

    copy(&[&cache], &target, &[&path(1)]).unwrap();

    assert_eq!(cache.queries(), [path(0).hash_part(), path(1).hash_part()]);
    assert_eq!(target.valid(), [path(0), path(1)]);
}

#[test]
fn small_bodies_are_prefetched_and_opened_once() {
    const COUNT: usize = 20;
    let (cache, target) = (source("memory:a"), batch_target());
    let paths: Vec<StorePath> = (0..COUNT)
        .map(|number| cache.add(number, 10, &[]))
        .collect();
    for path in &paths {
        cache.inject(path, SourceFault::Held);
    }
    let specs: Vec<&StorePath> = paths.iter().collect();

    thread::scope(|scope| {
        let run = scope.spawn(|| copy(&[&cache], &target, &specs));
        // The workers wait for the first bodies, so only prefetches can open the others.
        wait_until("bodies were not prefetched", || {
            cache.opened().len() == COUNT
        });
        assert_eq!(target.received(), 0);
        cache.release();
        run.join().unwrap().unwrap();
    });

    assert_eq!(cache.opened().len(), COUNT, "a path was opened twice");
    assert_eq!(sorted(&cache.opened()), sorted(&paths));
    assert_eq!(sorted(&target.valid()), sorted(&paths));
}

#[test]
fn unresponsive_source_is_passed_over() {
    let (first, second, target) = (source("memory:a"), source("memory:b"), batch_target());
    let requested = first.add(0, 10, &[]);
    second.add(0, 10, &[]);
    first.inject(&requested, SourceFault::HeldQuery);
    let began = Instant::now();

    copy(&[&first, &second], &target, &[&requested]).unwrap();

    assert!(
        began.elapsed() > Duration::from_secs(1),
        "the copy did not wait"
    );
    assert_eq!(first.queries(), [requested.hash_part()]);
    assert_eq!(second.opened(), [path(0)]);
    assert_eq!(target.valid(), [requested]);
}
