//! An engine: the state that its threads share, and its operations, which any thread may call.

mod active_request;
mod cancel;
mod dispatch;
mod events;
mod handles;
mod poll;
mod thread;
mod work_queue;

use std::cell::Cell;
use std::collections::HashMap;
use std::mem;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::{Builder, JoinHandle};
use std::time::Instant;

use floe_messages::Codec;
use floe_queue::{Sender, SubmitError};
use floe_server::ShutdownHandle;
use floe_store::TempRoots;
use parking_lot::Mutex;

use crate::callback::Callback;
use crate::completion::{Completion, JobOutcome, Waiter};
use crate::completion_queue::CompletionQueue;
use crate::events::Subscriptions;
use crate::limits::Limits;
use crate::request::{Budget, Request};
use crate::spin::{AdaptiveSpin, SpinLimiter};
use crate::status::{Fail, Status, fail};
pub(crate) use handles::with;
pub(crate) use work_queue::Job;

/// The state that all threads of an engine share.
pub(crate) struct Shared {
    handle: u64,
    requests: Sender<Request>,
    pub(crate) limits: Limits,
    pub(crate) budget: Arc<Budget>,
    pub(crate) delivery: Delivery,
    /// The encoding of events.
    pub(crate) codec: Codec,
    handler: HandlerFn,
    opened: Instant,
    pub(crate) subscriptions: Subscriptions,
    inbox: Mutex<Inbox>,
    has_inbox_items: AtomicBool,
    /// Set while the engine takes no requests because the host has not taken completions.
    is_stalled: AtomicBool,
    is_free: AtomicBool,
    /// Empty after a thread has joined it.
    thread: Mutex<Option<JoinHandle<()>>>,
    pub(crate) servers: Mutex<HashMap<u64, RunningServer>>,
    /// The temp roots of all copies of this engine.
    pub(crate) roots: TempRoots,
    spin_limiter: SpinLimiter,
    /// How long the engine thread spins for requests.
    engine_spin: AdaptiveSpin,
    /// How long threads in [`Shared::call`] spin for completions.
    caller_spin: AdaptiveSpin,
}

/// Everything that other threads pass to the engine thread, except requests, which come through
/// [`Shared::submit`].
#[derive(Default)]
struct Inbox {
    cancelled: Vec<u64>,
    /// The requests that workers have finished, with their outcomes.
    finished: Vec<(u64, JobOutcome)>,
    /// Dropped when the engine thread has processed the inbox, which ends the waits of other
    /// threads.
    acknowledge: Vec<mpsc::Sender<()>>,
    closes: bool,
    /// The engine thread has ended.
    is_over: bool,
}

/// The destination of completions for which no thread waits.
pub(crate) enum Delivery {
    Callback(Callback),
    Queue(CompletionQueue),
}

/// A server that a request has started.
pub(crate) struct RunningServer {
    pub(crate) shutdown: ShutdownHandle,
    pub(crate) thread: JoinHandle<()>,
}

/// The function that handles requests on workers.
pub(crate) type HandlerFn = fn(Job, &Shared) -> JobOutcome;

thread_local! {
    /// The handle of the engine to which this thread belongs, and whether it is the engine thread.
    static INSIDE: Cell<(u64, bool)> = const { Cell::new((0, false)) };
}

/// Opens an engine and returns its handle.
pub(crate) fn open(
    limits: Limits,
    codec: Codec,
    callback: Option<Callback>,
    handler: HandlerFn,
) -> Result<u64, Fail> {
    let refused = |what: &str, error| {
        let text = format!("cannot open an engine: the system refuses {what}: {error}");
        fail(Status::System, text)
    };
    let delivery = match callback {
        Some(callback) => Delivery::Callback(callback),
        None => {
            let queue = CompletionQueue::new().map_err(|error| refused("a descriptor", error))?;
            Delivery::Queue(queue)
        }
    };
    let queue_limits = floe_queue::Limits {
        per_thread: limits.per_thread,
        ..floe_queue::Limits::default()
    };
    let (requests, receiver) = floe_queue::channel(queue_limits);
    let make = |handle| Shared {
        handle,
        requests,
        budget: Budget::new(limits.payload_bytes),
        limits,
        delivery,
        codec,
        handler,
        opened: Instant::now(),
        subscriptions: Subscriptions::default(),
        inbox: Mutex::default(),
        has_inbox_items: AtomicBool::new(false),
        is_stalled: AtomicBool::new(false),
        is_free: AtomicBool::new(false),
        thread: Mutex::default(),
        servers: Mutex::default(),
        roots: TempRoots::default(),
        spin_limiter: SpinLimiter::new(std::thread::available_parallelism().map_or(1, usize::from)),
        engine_spin: AdaptiveSpin::default(),
        caller_spin: AdaptiveSpin::default(),
    };
    let shared = handles::insert(make).ok_or_else(|| {
        let text = "cannot open an engine: 1024 engines are open; free those that you do not need";
        fail(Status::Busy, text)
    })?;
    let inside = shared.clone();
    let thread = Builder::new()
        .name("floe-engine".into())
        .spawn(move || thread::run(inside, receiver))
        .map_err(|error| {
            free(shared.handle);
            refused("a thread", error)
        })?;
    *shared.thread.lock() = Some(thread);
    Ok(shared.handle)
}

/// Invalidates the handle of an engine. All accepted requests must be completed.
pub(crate) fn free(handle: u64) -> Option<()> {
    let engine = handles::remove(handle)?;
    engine.is_free.store(true, Ordering::Release);
    // A thread that used this engine last keeps it alive until it ends or uses another engine. Free
    // the completions now.
    if let Delivery::Queue(queue) = &engine.delivery {
        queue.clear();
    }
    Some(())
}

impl Shared {
    /// Submits a request without waiting. Calls `make` only if there is room.
    #[inline]
    pub(crate) fn submit(&self, make: impl FnOnce() -> Request) -> Result<(), Status> {
        self.requests.submit(make).map_err(|error| match error {
            SubmitError::Busy => Status::Busy,
            SubmitError::Closed(_) => Status::Closed,
        })
    }

    /// Submits a request and waits for its terminal completion.
    pub(crate) fn call(
        &self,
        make: impl FnOnce(Arc<Waiter>) -> Request,
    ) -> Result<Completion, Status> {
        self.check_may_wait()?;
        let waiter = Arc::new(Waiter::default());
        self.submit(|| make(waiter.clone()))?;
        let (begin, spin) = (Instant::now(), &self.caller_spin);
        self.spin_limiter.spin(|| waiter.spin(spin.duration()));
        let completion = waiter.wait();
        spin.record_wait(begin);
        Ok(completion)
    }

    /// Asks a request to end. Has no effect on a completed request.
    pub(crate) fn cancel(&self, request: u64) {
        self.post(|inbox| {
            // Bounds the inbox. A host that cancels more requests than that between two rounds
            // cancels at random.
            if !inbox.is_over && inbox.cancelled.len() < CANCELS_MAX {
                inbox.cancelled.push(request);
            }
        });
    }

    /// Stops accepting requests, without waiting.
    pub(crate) fn shut_down(&self) {
        self.post(|inbox| inbox.closes = true);
    }

    /// Stops accepting requests, and waits until all requests are completed.
    pub(crate) fn close(&self) -> Result<(), Status> {
        self.check_may_wait()?;
        self.shut_down();
        // A second caller waits here for the lock, while the first one waits for the thread.
        if let Some(thread) = self.thread.lock().take() {
            // The engine thread never unwinds: it aborts the process instead.
            let _: std::thread::Result<()> = thread.join();
        }
        Ok(())
    }

    /// Ends a subscription. Its callback is not called after the return; inside a callback, it is
    /// not called after that callback.
    pub(crate) fn unsubscribe(&self, id: u64) -> Result<(), Status> {
        if !self.subscriptions.remove(id) {
            return Err(Status::BadHandle);
        }
        // The engine thread calls the callbacks, so it must not wait for itself.
        if INSIDE.get() != (self.handle, true) {
            let (acknowledgement, acknowledged) = mpsc::channel();
            self.post(|inbox| {
                if !inbox.is_over {
                    inbox.acknowledge.push(acknowledgement);
                }
            });
            // Ends when the other side is dropped.
            let _: Result<(), mpsc::RecvError> = acknowledged.recv();
        }
        Ok(())
    }

    /// Wakes an engine that waits for the host to take completions.
    pub(crate) fn resume_if_stalled(&self) {
        if self.is_stalled.swap(false, Ordering::AcqRel) {
            self.post(|_| {});
        }
    }

    /// Returns an error if the calling thread belongs to this engine and therefore must not wait
    /// for it.
    pub(crate) fn check_may_wait(&self) -> Result<(), Status> {
        if INSIDE.get().0 == self.handle {
            Err(Status::WouldDeadlock)
        } else {
            Ok(())
        }
    }

    /// Marks the calling thread as a worker of this engine, or as its engine thread.
    fn enter(&self, is_engine_thread: bool) {
        INSIDE.set((self.handle, is_engine_thread));
    }

    /// Returns the time since the engine was opened, in milliseconds.
    pub(crate) fn now(&self) -> u64 {
        self.opened.elapsed().as_millis() as u64
    }

    fn post(&self, write: impl FnOnce(&mut Inbox)) {
        write(&mut self.inbox.lock());
        self.has_inbox_items.store(true, Ordering::Release);
        self.requests.wake();
    }

    fn take_inbox(&self) -> Option<Inbox> {
        let has_items = self.has_inbox_items.swap(false, Ordering::Acquire);
        has_items.then(|| mem::take(&mut *self.inbox.lock()))
    }
}

/// Returns a number that no request, subscription or server of this process has had.
pub(crate) fn new_id() -> u64 {
    thread_local! {
        /// The range of numbers reserved for this thread.
        static BLOCK: Cell<(u64, u64)> = const { Cell::new((0, 0)) };
    }
    static BLOCKS: AtomicU64 = AtomicU64::new(1);
    let fresh = || BLOCKS.fetch_add(1, Ordering::Relaxed) * BLOCK_LEN;
    BLOCK
        .try_with(|block| {
            let (mut next, mut end) = block.get();
            if next == end {
                next = fresh();
                end = next + BLOCK_LEN;
            }
            block.set((next + 1, end));
            next
        })
        .unwrap_or_else(|_| fresh())
}

/// The number of cancellations that may wait in the inbox.
pub(crate) const CANCELS_MAX: usize = 64 * 1024;

/// Threads access the shared counter once per thousand requests.
const BLOCK_LEN: u64 = 1024;
