//! Sources that fail, and others that have the same paths.

use std::sync::Arc;

use floe_copy::{ClosureCopy, Sources};
use floe_format::StorePath;
use floe_testkit::SourceFault;
use floe_transfer::{Event, EventSink, PathSpec, RetryPolicy, Source};
use parking_lot::Mutex;

use crate::pipeline::{ATTEMPTS, batch_target, copy, options, source};

#[test]
fn only_source_gets_all_attempts() {
    let (cache, target) = (source("memory:a"), batch_target());
    let requested = cache.add(0, 10, &[]);
    cache.inject(&requested, SourceFault::Transient(ATTEMPTS - 1));

    let summary = copy(&[&cache], &target, &[&requested]).unwrap();

    assert!(
        summary.failures.is_empty(),
        "failed: {:?}",
        summary.failures
    );
    assert_eq!(cache.opened().len(), ATTEMPTS as usize);
    assert_eq!(target.valid(), [requested]);
}

#[test]
fn transient_failure_fails_over_at_once() {
    let (first, second, target) = (source("memory:a"), source("memory:b"), batch_target());
    let requested = first.add(0, 10, &[]);
    second.add(0, 10, &[]);
    first.inject(&requested, SourceFault::Transient(1));

    copy(&[&first, &second], &target, &[&requested]).unwrap();

    assert_eq!((first.opened().len(), second.opened().len()), (1, 1));
    assert_eq!(target.valid(), [requested]);
}

#[test]
fn source_gets_all_attempts_if_no_other_one_has_the_path() {
    let (first, second, target) = (source("memory:a"), source("memory:b"), batch_target());
    let requested = first.add(0, 10, &[]);
    // The first failure is that of the attempt before the failover.
    first.inject(&requested, SourceFault::Transient(ATTEMPTS));

    copy(&[&first, &second], &target, &[&requested]).unwrap();

    assert_eq!(first.opened().len(), ATTEMPTS as usize + 1);
    assert_eq!(target.valid(), [requested]);
}

#[test]
fn source_that_keeps_failing_is_avoided_with_one_warning() {
    const COUNT: usize = 200;
    let (first, second, target) = (source("memory:a"), source("memory:b"), batch_target());
    let paths: Vec<StorePath> = (0..COUNT)
        .map(|number| {
            second.add(number, 10, &[]);
            let path = first.add(number, 10, &[]);
            first.inject(&path, SourceFault::Permanent);
            path
        })
        .collect();
    let specs: Vec<PathSpec> = paths.iter().cloned().map(PathSpec::Path).collect();
    let list = [&first, &second].map(|source| Arc::clone(source) as Arc<dyn Source>);
    let sources = Sources::new(list.into(), RetryPolicy::with_attempts(ATTEMPTS));
    let warnings = Warnings::default();
    let options = options();
    let copy = ClosureCopy {
        sources: &sources,
        target: &target,
        options: &options,
        events: &warnings,
    };

    let summary = copy.run(&specs).unwrap();

    assert!(
        summary.failures.is_empty(),
        "failed: {:?}",
        summary.failures
    );
    assert_eq!(*warnings.0.lock(), ["memory:a"]);
    assert_eq!(target.valid().len(), COUNT);
    assert_eq!(second.opened().len(), COUNT);
    // The attempts of both workers, and the prefetched bodies.
    let opened = first.opened().len();
    assert!((3..=50).contains(&opened), "{opened}");
}

/// The names of avoided sources.
#[derive(Default)]
struct Warnings(Mutex<Vec<String>>);

impl EventSink for Warnings {
    fn event(&self, event: Event<'_>) {
        if let Event::AvoidedSource { source, .. } = event {
            self.0.lock().push(source.to_owned());
        }
    }
}
