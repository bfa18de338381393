//! Tests of the queue.

use std::fs;

use floe_format::{NarInfo, StoreDir};

use super::*;
use crate::registry::resolve_store_uri;
use crate::sources::SourceOrder;
use floe_transfer::{RetryPolicy, Session, UriContext};

/// Returns the `number`th path of a plan, with `len` bytes, from a cache whose NARs are empty.
fn planned(number: usize, len: u64) -> Arc<PlannedPath> {
    let hash = "sha256:1b8m03r63zqhnjf7l5wnldhh7c134ap5vpj0850ymkq1iyzicy5s";
    let text = format!(
        "StorePath: /nix/store/7bw2d1cqdpnxi05lr3s6pmcgl5xazl2c-{number}\nURL: nar\n\
         Compression: none\nFileSize: {len}\nNarHash: {hash}\nNarSize: {len}\n\
         References: \n"
    );
    Arc::new(PlannedPath {
        narinfo: NarInfo::parse(text.as_bytes(), &StoreDir::default()).unwrap(),
        source: 0,
        local_copies: Vec::new(),
        is_recovered: false,
        relies_on_content_address: false,
        keeps_signatures: false,
    })
}

#[test]
fn queue_ends_meet_and_every_path_is_handed_out_once() {
    let cache = tempfile::tempdir().unwrap();
    fs::write(
        cache.path().join("nix-cache-info"),
        "StoreDir: /nix/store\n",
    )
    .unwrap();
    fs::write(cache.path().join("nar"), "").unwrap();
    let url = format!("file://{}", cache.path().display());
    let store_config = resolve_store_uri(&url, &UriContext::default()).unwrap();
    let session = Session::default();
    let sources = Sources::open(&[store_config], SourceOrder::AsListed, &session).unwrap();
    let large = SMALL_LEN_MAX as u64 * 2;
    // More than the prefetch limits of both kinds.
    let len_of = |number| if number < 40 { large } else { 100 };
    let planned_paths: Vec<_> = (0..140)
        .map(|number| planned(number, len_of(number)))
        .collect();
    let queue = Queue::new(&sources, QueueOrder::AsAdded, 2);
    planned_paths[..5]
        .iter()
        .for_each(|planned| queue.add_early(planned.clone()));
    queue.complete(planned_paths[5..].iter().cloned());
    queue.skip([planned_paths[3].narinfo.info.path.clone()]);
    let (mut largest, mut smallest) = (Vec::new(), Vec::new());
    loop {
        let (end, taken) = if largest.len() <= smallest.len() {
            (QueueEnd::Largest, &mut largest)
        } else {
            (QueueEnd::Smallest, &mut smallest)
        };
        let Some(job) = queue.next(end) else { break };
        assert!(matches!(job.nar, Some(Ok(_))));
        let name = job.planned.narinfo.info.path.name();
        taken.push(name.parse::<usize>().unwrap());
    }
    assert!(largest.is_sorted() && smallest.is_sorted_by(|a, b| a > b));
    assert!(largest.len().abs_diff(smallest.len()) <= 1);
    let mut all = [largest, smallest].concat();
    all.sort_unstable();
    let expected: Vec<usize> = (0..140).filter(|number| *number != 3).collect();
    assert_eq!(all, expected);
    let state = queue.state.lock();
    assert!(state.small.bodies.is_empty() && state.large.bodies.is_empty());
}

/// Returns a path with references to other paths of a plan.
fn referrer(number: usize, references: &[&Arc<PlannedPath>]) -> Arc<PlannedPath> {
    let mut path = Arc::into_inner(planned(number, 10)).unwrap();
    let references = references.iter().map(|it| it.narinfo.info.path.clone());
    path.narinfo.info.references = references.collect();
    Arc::new(path)
}

fn memory_queue(sources: &Sources) -> Queue<'_> {
    Queue::new(sources, QueueOrder::ReferencesFirst, 1)
}

fn memory_sources() -> Sources {
    let source = floe_testkit::MemorySource::new("memory:a", None);
    Sources::new(vec![Arc::new(source)], RetryPolicy::default())
}

#[test]
fn path_waits_until_its_references_were_received() {
    let sources = memory_sources();
    let queue = memory_queue(&sources);
    let (low, other) = (planned(0, 10), planned(2, 10));
    let high = referrer(1, &[&low]);
    let low_path = low.narinfo.info.path.clone();
    queue.complete([low, high, other].into_iter());
    let next = || queue.next(QueueEnd::Smallest).unwrap().planned;
    assert_eq!(next().narinfo.info.path.name(), "0");
    assert_eq!(next().narinfo.info.path.name(), "2");
    std::thread::scope(|scope| {
        let waiting = scope.spawn(next);
        // Time for a wrong end of the thread.
        std::thread::sleep(Duration::from_millis(50));
        assert!(!waiting.is_finished());
        queue.record_received(&low_path);
        assert_eq!(waiting.join().unwrap().narinfo.info.path.name(), "1");
    });
}

#[test]
fn failed_and_circular_references_do_not_block_the_queue() {
    let sources = memory_sources();
    let queue = memory_queue(&sources);
    let failed = planned(0, 10);
    let skipped = referrer(1, &[&failed]);
    let (one, two) = (planned(2, 10), planned(3, 10));
    let circle = [referrer(2, &[&two]), referrer(3, &[&one])];
    let paths = [&failed, &skipped].map(|it| it.narinfo.info.path.clone());
    queue.complete([failed, skipped].into_iter().chain(circle));
    let next = || {
        let job = queue.next(QueueEnd::Largest)?;
        Some(job.planned.narinfo.info.path.clone())
    };
    assert_eq!(next().unwrap().name(), "0");
    queue.skip(paths);
    let first = next().unwrap();
    assert_eq!(first.name(), "2");
    queue.record_received(&first);
    assert_eq!(next().unwrap().name(), "3");
    assert_eq!(next(), None);
}

#[test]
fn worker_waits_for_paths_until_queue_is_complete() {
    let sources = Sources::new(
        vec![Arc::new(floe_testkit::MemorySource::new("memory:a", None))],
        RetryPolicy::default(),
    );
    let queue = Queue::new(&sources, QueueOrder::BySize, 1);
    std::thread::scope(|scope| {
        let worker = scope.spawn(|| {
            let taken = std::iter::from_fn(|| queue.next(QueueEnd::Largest));
            taken
                .map(|job| job.planned.narinfo.info.nar_size)
                .collect::<Vec<_>>()
        });
        queue.add_early(planned(0, 10));
        // The worker takes the first path before the others come.
        while !queue.state.lock().remaining.is_empty() {
            std::thread::yield_now();
        }
        queue.complete([planned(1, 5), planned(2, 20)].into_iter());
        assert_eq!(worker.join().unwrap(), [10, 20, 5]);
        let worker = scope.spawn(|| queue.next(QueueEnd::Largest).is_none());
        queue.close();
        assert!(worker.join().unwrap());
    });
}
