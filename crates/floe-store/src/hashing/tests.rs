//! What threads hash together, aside or alone has the digests of its messages.

use std::sync::mpsc;
use std::thread;

use super::*;

/// A crew whatever the CPU is: the digests are the same, if later.
fn with_crew(messages: usize, cores: usize) -> Hashing {
    Hashing {
        crew: Some(Arc::new(Crew::new(CREW_MAX))),
        ..alone(messages, cores)
    }
}

fn alone(messages: usize, cores: usize) -> Hashing {
    Hashing::alone(messages, NonZeroUsize::new(cores))
}

fn suited<const N: usize>(lens: [u64; N], cores: usize) -> Hashing {
    Hashing::suited(lens.into_iter(), NonZeroUsize::new(cores).unwrap())
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
fn threads_of_all_numbers_get_the_digests_of_their_own_messages() {
    for (messages, cores) in [(1, 1), (3, 1), (3, 2), (40, 1), (40, 2), (40, 5)] {
        let hashing = with_crew(messages, cores);
        let mut begun = 0;
        thread::scope(|scope| {
            for (seed, place) in hashing.places().enumerate() {
                begun += 1;
                scope.spawn(move || {
                    let worker = place.take();
                    for len in [0, 1, 1000, BUFFER_LEN, 3 * BUFFER_LEN + 77, 500_000] {
                        let message = message(len + seed, seed);
                        let expected = floe_hash::sha256(&message);
                        let mut beside = worker.beside(len as u64);
                        beside.update(&message);
                        let found = digest(worker.stream(len as u64), &message, 90_001 + seed);
                        assert_eq!(found, expected, "{seed} of {messages} on {cores}: {len}");
                        assert_eq!(beside.finish(), expected);
                    }
                });
            }
        });
        assert_eq!(begun, messages.min(cores - 1 + CREW_MAX));
        assert!(hashing.crew.is_some_and(|crew| crew.is_tidy()));
    }
}

#[test]
fn a_stream_that_is_given_up_leaves_nothing_behind() {
    let hashing = with_crew(1, 1);
    for place in hashing.places() {
        let worker = place.take();
        let mut given_up = worker.stream(1);
        given_up.update(&vec![7; 5 * BUFFER_LEN]);
        drop(given_up);
    }
    assert!(hashing.crew.is_some_and(|crew| crew.is_tidy()));
}

#[test]
fn a_thread_that_is_away_holds_up_nobody() {
    let hashing = with_crew(2, 1);
    let mut places = hashing.places();
    let (waits, works) = (places.next().unwrap(), places.next().unwrap());
    let (done, until_done) = mpsc::channel();
    let message = message(3 * BUFFER_LEN, 3);
    thread::scope(|scope| {
        scope.spawn(move || waits.take().away(|| until_done.recv().unwrap()));
        scope.spawn(|| {
            let found = digest(works.take().stream(1), &message, 4096);
            assert_eq!(found, floe_hash::sha256(&message));
            done.send(()).unwrap();
        });
    });
}

#[test]
fn a_crew_takes_the_smallest_and_the_others_the_largest() {
    let ends = |hashing: &Hashing| {
        let places: Vec<Place> = hashing.places().collect();
        let smallest = places.iter().filter(|place| place.0.takes_the_smallest());
        (places.len(), smallest.count())
    };
    assert_eq!(ends(&with_crew(100, 3)), (2 + CREW_MAX, CREW_MAX));
    assert_eq!(ends(&with_crew(4, 3)), (4, 2));
    assert_eq!(ends(&alone(100, 3)), (3, 0));
    assert_eq!(ends(&alone(2, 3)), (2, 0));
    let half = with_crew(100, 3).with_half_a_crew();
    assert_eq!(ends(&half), (2 + CREW_MAX / 2, CREW_MAX / 2));
    assert_eq!(ends(&alone(100, 3).with_half_a_crew()), (3, 0));
}

#[test]
fn few_messages_have_no_crew_and_neither_has_who_says_how_many_at_once() {
    assert!(suited([5; 3], 2).crew.is_none());
    assert_eq!(suited([5; 100], 2).crew.is_some(), lanes::are_fast());
    let asked = Hashing::of([5; 100].into_iter(), NonZeroUsize::new(7));
    assert!(asked.crew.is_none());
    assert_eq!(asked.places().count(), 7);
}

#[test]
fn what_is_longer_than_a_cores_share_is_hashed_aside() {
    let large = 3 * ASIDE_LEN_MIN;
    let hashing = Hashing {
        dominant_above: ASIDE_LEN_MIN,
        ..alone(3, 2)
    };
    let Place(worker) = hashing.places().next().unwrap();
    assert!(matches!(worker.stream(large).0, Kind::Aside(_)));
    assert!(matches!(worker.beside(large).0, Kind::Aside(_)));
    assert!(matches!(worker.stream(ASIDE_LEN_MIN).0, Kind::Alone(_)));
    for len in [0, 1, 64 * 1024, 1_000_005] {
        let message = message(len, 9);
        let found = digest(worker.stream(large), &message, 30_001);
        assert_eq!(found, floe_hash::sha256(&message), "{len}");
    }
    // One core has nobody to hash aside.
    assert_eq!(suited([large, 1000], 1).dominant_above, u64::MAX);
    let has_aside = suited([large, 1000], 2).dominant_above < large;
    assert_eq!(has_aside, lanes::are_fast());
}
