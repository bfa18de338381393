//! The queues that the benchmark compares, each behind the same functions.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use crossbeam_queue::{ArrayQueue, SegQueue};
use floe_queue::{Limits, SubmitError};

use super::one_run::Run;

/// A request of `N` words; the first is its number.
pub(crate) type Words<const N: usize> = [u64; N];

/// A queue from many threads to one.
pub(crate) trait Queue: 'static {
    const NAME: &'static str;
    type Sender: Clone + Send;
    type Receiver;

    fn new() -> (Self::Sender, Self::Receiver);

    /// Submits one number. Returns how often the queue was busy.
    fn submit(sender: &Self::Sender, number: u64) -> u64;

    /// Takes `total` values, and waits while there is none. Returns their number and sum.
    fn take_all(receiver: &mut Self::Receiver, total: u64) -> (u64, u64);

    /// Returns the number of values that are left.
    fn left(receiver: &mut Self::Receiver) -> u64;
}

/// A queue with the function that runs it.
pub(crate) struct Variant {
    pub(crate) name: &'static str,
    /// Whether it is an unbounded channel of another project.
    pub(crate) is_channel: bool,
    pub(crate) run: fn(usize, u64) -> Run,
}

/// The name of the queue that libfloe uses.
pub(crate) const FLOE_QUEUE: &str = "floe-queue";

/// Returns all variants, with requests of `N` words.
pub(crate) fn all<const N: usize>() -> Vec<Variant> {
    let mut variants = vec![
        variant::<FloeQueue<N>>(false),
        variant::<LockFree<N>>(true),
        variant::<Bounded<N>>(false),
        variant::<Mpsc<N>>(true),
        variant::<Crossbeam<N>>(true),
        variant::<Kanal<N>>(true),
        variant::<Flume<N>>(true),
    ];
    variants.push(Variant {
        name: "libfloe",
        is_channel: false,
        run: super::library::run::<N>,
    });
    variants
}

fn variant<Q: Queue>(is_channel: bool) -> Variant {
    Variant {
        name: Q::NAME,
        is_channel,
        run: super::one_run::run::<Q>,
    }
}

fn words<const N: usize>(number: u64) -> Words<N> {
    let mut words = [number; N];
    words[N - 1] = !number;
    words[0] = number;
    words
}

struct FloeQueue<const N: usize>;

impl<const N: usize> Queue for FloeQueue<N> {
    const NAME: &'static str = FLOE_QUEUE;
    type Sender = floe_queue::Sender<Words<N>>;
    type Receiver = floe_queue::Receiver<Words<N>>;

    fn new() -> (Self::Sender, Self::Receiver) {
        floe_queue::channel(Limits::default())
    }

    fn submit(sender: &Self::Sender, number: u64) -> u64 {
        let mut busy = 0;
        loop {
            match sender.submit(|| words(number)) {
                Ok(()) => return busy,
                Err(SubmitError::Busy) => {
                    busy += 1;
                    thread::yield_now();
                }
                Err(SubmitError::Closed(_)) => panic!("the receiver is closed"),
            }
        }
    }

    fn take_all(receiver: &mut Self::Receiver, total: u64) -> (u64, u64) {
        let (mut count, mut sum) = (0, 0);
        while count < total {
            let taken = receiver.take(usize::MAX, |words| sum += words[0]);
            count += taken as u64;
            // The engine thread of libfloe waits in the same way.
            if taken == 0 && !receiver.spin_for_value(SPIN, || false) {
                receiver.wait(Duration::from_secs(10), true, || false);
            }
        }
        (count, sum)
    }

    fn left(receiver: &mut Self::Receiver) -> u64 {
        receiver.take(usize::MAX, drop) as u64
    }
}

macro_rules! channel {
    ($type:ident, $name:expr, $sender:ty, $receiver:ty, $make:expr) => {
        struct $type<const N: usize>;

        impl<const N: usize> Queue for $type<N> {
            const NAME: &'static str = $name;
            type Sender = $sender;
            type Receiver = $receiver;

            fn new() -> (Self::Sender, Self::Receiver) {
                $make
            }

            fn submit(sender: &Self::Sender, number: u64) -> u64 {
                sender.send(words(number)).expect("the receiver exists");
                0
            }

            fn take_all(receiver: &mut Self::Receiver, total: u64) -> (u64, u64) {
                let (mut count, mut sum) = (0, 0);
                while count < total {
                    let Ok(words) = receiver.recv() else { break };
                    sum += words[0];
                    count += 1;
                }
                (count, sum)
            }

            fn left(receiver: &mut Self::Receiver) -> u64 {
                // All senders are dropped, so `recv` ends with an error.
                let mut count = 0;
                while receiver.recv().is_ok() {
                    count += 1;
                }
                count
            }
        }
    };
}

channel!(
    Mpsc,
    "std mpsc",
    std::sync::mpsc::Sender<Words<N>>,
    std::sync::mpsc::Receiver<Words<N>>,
    std::sync::mpsc::channel()
);
channel!(
    Crossbeam,
    "crossbeam-channel",
    crossbeam_channel::Sender<Words<N>>,
    crossbeam_channel::Receiver<Words<N>>,
    crossbeam_channel::unbounded()
);
channel!(
    Kanal,
    "kanal",
    kanal::Sender<Words<N>>,
    kanal::Receiver<Words<N>>,
    kanal::unbounded()
);
channel!(
    Flume,
    "flume",
    flume::Sender<Words<N>>,
    flume::Receiver<Words<N>>,
    flume::unbounded()
);

macro_rules! without_sleep {
    ($type:ident, $name:expr, $queue:ident, $make:expr) => {
        struct $type<const N: usize>;

        impl<const N: usize> Queue for $type<N> {
            const NAME: &'static str = $name;
            type Sender = Arc<$queue<Words<N>>>;
            type Receiver = Self::Sender;

            fn new() -> (Self::Sender, Self::Receiver) {
                let queue = Arc::new($make);
                (queue.clone(), queue)
            }

            fn submit(sender: &Self::Sender, number: u64) -> u64 {
                Self::push(sender, words(number))
            }

            fn take_all(receiver: &mut Self::Receiver, total: u64) -> (u64, u64) {
                let (mut count, mut sum) = (0, 0);
                while count < total {
                    match receiver.pop() {
                        Some(words) => {
                            sum += words[0];
                            count += 1;
                        }
                        None => thread::yield_now(),
                    }
                }
                (count, sum)
            }

            fn left(receiver: &mut Self::Receiver) -> u64 {
                receiver.len() as u64
            }
        }
    };
}

// Lock-free queues without a blocking receive: the receiver polls, so the submitters pay nothing to
// wake it.
without_sleep!(LockFree, "SegQueue", SegQueue, SegQueue::new());
without_sleep!(
    Bounded,
    "ArrayQueue (bounded)",
    ArrayQueue,
    ArrayQueue::new(64 * 1024)
);

impl<const N: usize> LockFree<N> {
    fn push(queue: &SegQueue<Words<N>>, value: Words<N>) -> u64 {
        queue.push(value);
        0
    }
}

impl<const N: usize> Bounded<N> {
    fn push(queue: &ArrayQueue<Words<N>>, mut value: Words<N>) -> u64 {
        let mut busy = 0;
        while let Err(again) = queue.push(value) {
            value = again;
            busy += 1;
            thread::yield_now();
        }
        busy
    }
}

/// How long the engine thread spins for the next request after a short wait.
const SPIN: Duration = Duration::from_micros(50);
