//! Batched, offloaded and sequential streams return the digests of their messages.

use std::sync::mpsc;
use std::thread;

use super::*;

/// Returns a pool with batched workers on any CPU. The digests are the same, only slower.
fn with_scheduler(messages: usize, cores: usize) -> HashPool {
    HashPool {
        scheduler: Some(Arc::new(LaneScheduler::new(SLOTS_MAX))),
        ..sequential(messages, cores)
    }
}

fn sequential(messages: usize, cores: usize) -> HashPool {
    HashPool {
        // As on a machine with so many cores.
        idle_cores: Arc::new(IdleCores::new(cores)),
        ..HashPool::sequential(messages, NonZeroUsize::new(cores))
    }
}

#[test]
fn more_jobs_than_cores_leave_no_core_idle() {
    let pool = HashPool::sequential(40, NonZeroUsize::new(cores().get() + 1));
    let workers: Vec<Worker> = pool.tickets().map(WorkerTicket::start).collect();
    assert_eq!(workers.len(), cores().get() + 1);
    assert_eq!(pool.idle_cores.count(), -1);
}

fn suited<const N: usize>(lens: [u64; N], cores: usize) -> HashPool {
    HashPool::for_cores(lens.into_iter(), NonZeroUsize::new(cores).unwrap())
}

fn message(len: usize, seed: usize) -> Vec<u8> {
    (0..len)
        .map(|at| (at * 31 + seed * 7 + at / 251) as u8)
        .collect()
}

fn digest(mut stream: Stream, message: &[u8], cut: usize) -> [u8; 32] {
    for part in message.chunks(cut) {
        stream.update(part);
    }
    stream.finish()
}

#[test]
fn concurrent_streams_return_their_own_digests() {
    for (messages, cores) in [(1, 1), (3, 1), (3, 2), (40, 1), (40, 2), (40, 5)] {
        let pool = with_scheduler(messages, cores);
        let mut begun = 0;
        thread::scope(|scope| {
            for (seed, ticket) in pool.tickets().enumerate() {
                begun += 1;
                scope.spawn(move || {
                    let worker = ticket.start();
                    for len in [0, 1, 1000, BUFFER_LEN, 3 * BUFFER_LEN + 77, 500_000] {
                        let message = message(len + seed, seed);
                        let expected = crate::sha256(&message);
                        let mut secondary = worker.secondary_stream(len as u64);
                        secondary.update(&message);
                        let found = digest(worker.stream(len as u64), &message, 90_001 + seed);
                        assert_eq!(found, expected, "{seed} of {messages} on {cores}: {len}");
                        assert_eq!(secondary.finish(), expected);
                    }
                });
            }
        });
        assert_eq!(begun, messages.min(cores - 1 + SLOTS_MAX));
        assert!(pool.scheduler.is_some_and(|scheduler| scheduler.is_idle()));
    }
}

#[test]
fn dropped_stream_leaves_no_pending_buffers() {
    let pool = with_scheduler(1, 1);
    for ticket in pool.tickets() {
        let worker = ticket.start();
        let mut abandoned = worker.stream(1);
        abandoned.update(&vec![7; 5 * BUFFER_LEN]);
        drop(abandoned);
    }
    assert!(pool.scheduler.is_some_and(|scheduler| scheduler.is_idle()));
}

#[test]
fn waiting_worker_does_not_block_other_workers() {
    let pool = with_scheduler(2, 1);
    let mut tickets = pool.tickets();
    let (waiting, working) = (tickets.next().unwrap(), tickets.next().unwrap());
    let (done, until_done) = mpsc::channel();
    let message = message(3 * BUFFER_LEN, 3);
    thread::scope(|scope| {
        scope.spawn(move || {
            waiting
                .start()
                .yield_core_while(|| until_done.recv().unwrap())
        });
        scope.spawn(|| {
            let found = digest(working.start().stream(1), &message, 4096);
            assert_eq!(found, crate::sha256(&message));
            done.send(()).unwrap();
        });
    });
}

#[test]
fn slots_take_smallest_messages_and_cores_the_largest() {
    let ends = |pool: &HashPool| {
        let tickets: Vec<WorkerTicket> = pool.tickets().collect();
        let smallest = tickets.iter().filter(|ticket| ticket.0.takes_smallest());
        (tickets.len(), smallest.count())
    };
    assert_eq!(ends(&with_scheduler(100, 3)), (2 + SLOTS_MAX, SLOTS_MAX));
    assert_eq!(ends(&with_scheduler(4, 3)), (4, 2));
    assert_eq!(ends(&sequential(100, 3)), (3, 0));
    assert_eq!(ends(&sequential(2, 3)), (2, 0));
    let half = with_scheduler(100, 3).with_half_the_slots();
    assert_eq!(ends(&half), (2 + SLOTS_MAX / 2, SLOTS_MAX / 2));
    assert_eq!(ends(&sequential(100, 3).with_half_the_slots()), (3, 0));
}

#[test]
fn few_messages_or_explicit_jobs_use_no_scheduler() {
    assert!(suited([5; 3], 2).scheduler.is_none());
    assert_eq!(
        suited([5; 100], 2).scheduler.is_some(),
        lanes::are_preferred()
    );
    let asked = HashPool::for_messages([5; 100].into_iter(), NonZeroUsize::new(7));
    assert!(asked.scheduler.is_none());
    assert_eq!(asked.tickets().count(), 7);
}

#[test]
fn message_above_core_share_is_offloaded() {
    let large = 3 * OFFLOAD_LEN_MIN;
    let pool = HashPool {
        offload_above: OFFLOAD_LEN_MIN,
        ..sequential(3, 2)
    };
    let WorkerTicket(worker) = pool.tickets().next().unwrap();
    assert!(matches!(worker.stream(large).0, StreamKind::Offloaded(_)));
    assert!(matches!(
        worker.secondary_stream(large).0,
        StreamKind::Offloaded(_)
    ));
    assert!(matches!(
        worker.stream(OFFLOAD_LEN_MIN).0,
        StreamKind::Direct(_)
    ));
    for len in [0, 1, 64 * 1024, 1_000_005] {
        let message = message(len, 9);
        let found = digest(worker.stream(large), &message, 30_001);
        assert_eq!(found, crate::sha256(&message), "{len}");
    }
    // With one core, a second thread would not help.
    assert_eq!(suited([large, 1000], 1).offload_above, u64::MAX);
    let is_offloaded = suited([large, 1000], 2).offload_above < large;
    assert_eq!(is_offloaded, lanes::are_preferred());
}

#[test]
fn idle_core_hashes_the_rest_of_a_large_message() {
    let len = 3 * OFFLOAD_LEN_MIN as usize + 77;
    let message = message(len, 5);
    let pool = sequential(2, 2);
    let mut workers = pool.tickets().map(WorkerTicket::start);
    let (worker, other) = (workers.next().unwrap(), workers.next().unwrap());
    let mut stream = LargeStream::new(len as u64, worker.idle_cores());
    let (first, rest) = message.split_at(OFFLOAD_LEN_MIN as usize);
    for part in first.chunks(30_001) {
        stream.update(part);
    }
    assert!(!stream.is_offloaded(), "both cores have a worker");
    drop(other);
    for part in rest.chunks(30_001) {
        stream.update(part);
    }
    assert!(stream.is_offloaded());
    assert_eq!(stream.finish(), crate::sha256(&message));
    assert_eq!(pool.idle_cores.count(), 1);
    drop(worker);
    assert_eq!(pool.idle_cores.count(), 2);
    let pool = sequential(1, 2).without_idle_cores();
    let worker = pool.tickets().next().unwrap().start();
    let mut stream = LargeStream::new(len as u64, worker.idle_cores());
    stream.update(&message);
    stream.update(&message);
    assert!(!stream.is_offloaded());
}

#[test]
fn batched_workers_have_one_core_together() {
    let pool = with_scheduler(40, 3);
    let workers: Vec<Worker> = pool.tickets().take(3).map(WorkerTicket::start).collect();
    assert_eq!(pool.idle_cores.count(), 0);
    assert_eq!(workers.iter().filter(|it| it.takes_smallest()).count(), 1);
    drop(workers);
    assert_eq!(pool.idle_cores.count(), 3);
}
