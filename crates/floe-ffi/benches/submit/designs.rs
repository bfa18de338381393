//! The queues that are compared, each behind the same few functions.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;

use crossbeam_queue::{ArrayQueue, SegQueue};
use floe_queue::{Limits, Mode, Receiver, Sender, SubmitError};

use super::one_run::Run;

/// A request of `N` words; the first is its number.
pub(crate) type Words<const N: usize> = [u64; N];

/// A queue from many threads to one.
pub(crate) trait Queue: 'static {
    const NAME: &'static str;
    type Sender: Clone + Send;
    type Receiver;

    fn new() -> (Self::Sender, Self::Receiver);

    /// Hands one number in; how often that had to be tried again.
    fn submit(sender: &Self::Sender, number: u64) -> u64;

    /// Takes so many, sleeping where there is nothing; how many there were, and their sum.
    fn take_all(receiver: &mut Self::Receiver, total: u64) -> (u64, u64);

    /// How many more there are.
    fn left(receiver: &mut Self::Receiver) -> u64;
}

/// A design as the benchmark runs it.
pub(crate) struct Design {
    pub(crate) name: &'static str,
    /// Whether it is an unbounded queue that somebody keeps.
    pub(crate) is_channel: bool,
    pub(crate) run: fn(usize, u64) -> Run,
}

/// The design that libfloe has.
pub(crate) const LANES: &str = "lanes";

/// The design of the seed: a few queues with a lock each.
pub(crate) const SHARDS: &str = "shards";

/// All designs, with requests of `N` words.
pub(crate) fn all<const N: usize>() -> Vec<Design> {
    let mut designs = vec![
        design::<Lanes<N>>(false),
        design::<Shards<N>>(false),
        design::<OneLock<N>>(false),
        design::<LockFree<N>>(true),
        design::<Bounded<N>>(false),
        design::<Mpsc<N>>(true),
        design::<Crossbeam<N>>(true),
        design::<Kanal<N>>(true),
        design::<Flume<N>>(true),
    ];
    designs.push(Design {
        name: "libfloe",
        is_channel: false,
        run: super::library::run::<N>,
    });
    designs
}

fn design<Q: Queue>(is_channel: bool) -> Design {
    Design {
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

fn submit_to_ingress<const N: usize>(sender: &Sender<Words<N>>, number: u64) -> u64 {
    let mut busy = 0;
    loop {
        match sender.submit(|| words(number)) {
            Ok(()) => return busy,
            Err(SubmitError::Busy) => {
                busy += 1;
                thread::yield_now();
            }
            Err(SubmitError::Closed(_)) => panic!("nobody has closed it"),
        }
    }
}

fn take_from_ingress<const N: usize>(receiver: &mut Receiver<Words<N>>, total: u64) -> (u64, u64) {
    let (mut count, mut sum) = (0, 0);
    while count < total {
        let taken = receiver.take(usize::MAX, |words| sum += words[0]);
        count += taken as u64;
        // As the engine waits.
        if taken == 0 && !receiver.spin_for_value(TURN, || false) {
            receiver.wait(Duration::from_secs(10), true, || false);
        }
    }
    (count, sum)
}

macro_rules! floe_queue {
    ($type:ident, $name:expr, $mode:expr) => {
        struct $type<const N: usize>;

        impl<const N: usize> Queue for $type<N> {
            const NAME: &'static str = $name;
            type Sender = Sender<Words<N>>;
            type Receiver = Receiver<Words<N>>;

            fn new() -> (Self::Sender, Self::Receiver) {
                Sender::new($mode, Limits::default())
            }

            fn submit(sender: &Self::Sender, number: u64) -> u64 {
                submit_to_ingress(sender, number)
            }

            fn take_all(receiver: &mut Self::Receiver, total: u64) -> (u64, u64) {
                take_from_ingress(receiver, total)
            }

            fn left(receiver: &mut Self::Receiver) -> u64 {
                receiver.take(usize::MAX, drop) as u64
            }
        }
    };
}

floe_queue!(Lanes, LANES, Mode::Queues);
floe_queue!(Shards, SHARDS, Mode::Shards);

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
                sender.send(words(number)).expect("the receiver is there");
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
                // All senders are gone, so this ends.
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

/// One queue, one lock, one condition.
struct OneLock<const N: usize>;

impl<const N: usize> Queue for OneLock<N> {
    const NAME: &'static str = "one lock";
    type Sender = Arc<(Mutex<VecDeque<Words<N>>>, Condvar)>;
    type Receiver = Self::Sender;

    fn new() -> (Self::Sender, Self::Receiver) {
        let queue = Self::Sender::default();
        (queue.clone(), queue)
    }

    fn submit(sender: &Self::Sender, number: u64) -> u64 {
        let (queue, arrived) = &**sender;
        let mut queue = queue.lock().expect("nobody panics");
        queue.push_back(words(number));
        if queue.len() == 1 {
            arrived.notify_one();
        }
        0
    }

    fn take_all(receiver: &mut Self::Receiver, total: u64) -> (u64, u64) {
        let (queue, arrived) = &**receiver;
        let (mut count, mut sum, mut taken) = (0, 0, VecDeque::new());
        while count < total {
            let mut queue = queue.lock().expect("nobody panics");
            while queue.is_empty() {
                queue = arrived.wait(queue).expect("nobody panics");
            }
            std::mem::swap(&mut *queue, &mut taken);
            drop(queue);
            count += taken.len() as u64;
            sum += taken.drain(..).map(|words| words[0]).sum::<u64>();
        }
        (count, sum)
    }

    fn left(receiver: &mut Self::Receiver) -> u64 {
        receiver.0.lock().expect("nobody panics").len() as u64
    }
}

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

// Queues without locks, whose receiver never sleeps, since it has no way to be woken: that costs
// its submitters nothing.
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

/// How long the engine turns for its next request where the last ones came soon.
const TURN: Duration = Duration::from_micros(50);
