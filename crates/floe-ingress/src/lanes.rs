//! Which lane is whose: one for each thread that has submitted, kept in the thread's own storage
//! and given back when the thread ends.

use std::any::Any;
use std::cell::RefCell;
use std::mem;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crate::lane::{Reader, Writer, lane};

/// The lanes of one ingress.
pub(crate) struct Lanes<T> {
    /// Never used twice in a process, so what a thread keeps of an old ingress is never mistaken.
    number: u64,
    /// How many values a lane holds.
    limit: u64,
    lanes_max: usize,
    /// Changes with every new lane.
    version: AtomicU32,
    shared: Mutex<Shared<T>>,
}

struct Shared<T> {
    /// The lanes of threads that have ended.
    idle: Vec<Writer<T>>,
    /// The lanes that the receiver has not seen.
    new: Vec<Reader<T>>,
    made: usize,
    is_closed: bool,
}

impl<T: Send + 'static> Lanes<T> {
    pub(crate) fn new(limit: u64, lanes_max: usize) -> Arc<Lanes<T>> {
        static NUMBERS: AtomicU64 = AtomicU64::new(0);
        Arc::new(Lanes {
            number: NUMBERS.fetch_add(1, Ordering::Relaxed),
            limit,
            lanes_max,
            version: AtomicU32::new(0),
            shared: Mutex::new(Shared {
                idle: Vec::new(),
                new: Vec::new(),
                made: 0,
                is_closed: false,
            }),
        })
    }

    /// Lends the calling thread its lane. `None` if it has none: there are as many as there may
    /// be, the ingress is closed, or the thread is about to end.
    #[inline]
    pub(crate) fn with<R>(self: &Arc<Self>, f: impl FnOnce(&mut Writer<T>) -> R) -> Option<R> {
        let lend = |kept: &RefCell<Vec<Entry>>| {
            let mut kept = kept.borrow_mut();
            if kept.first().is_none_or(|first| first.number != self.number) {
                self.bring_to_front(&mut kept)?;
            }
            let held: &mut dyn Any = &mut *kept.first_mut()?.held;
            held.downcast_mut::<Held<T>>()?.writer.as_mut().map(f)
        };
        KEPT.try_with(lend).ok().flatten()
    }

    #[cold]
    fn bring_to_front(self: &Arc<Self>, kept: &mut Vec<Entry>) -> Option<()> {
        let index = match kept.iter().position(|entry| entry.number == self.number) {
            Some(index) => index,
            None => {
                kept.retain(|entry| !entry.held.is_over());
                let held = Box::new(Held {
                    writer: Some(self.claim()?),
                    home: Arc::downgrade(self),
                });
                let number = self.number;
                kept.push(Entry { number, held });
                kept.len() - 1
            }
        };
        kept.swap(0, index);
        Some(())
    }

    fn claim(&self) -> Option<Writer<T>> {
        let mut shared = self.shared();
        if shared.is_closed {
            return None;
        }
        if let Some(writer) = shared.idle.pop() {
            return Some(writer);
        }
        if shared.made == self.lanes_max {
            return None;
        }
        let (writer, reader) = lane(self.limit);
        shared.made += 1;
        shared.new.push(reader);
        self.version.fetch_add(1, Ordering::Release);
        Some(writer)
    }
}

impl<T> Lanes<T> {
    /// The lanes that were made since `seen`, which is brought up to date.
    pub(crate) fn new_ones(&self, seen: &mut u32) -> Vec<Reader<T>> {
        let version = self.version.load(Ordering::Acquire);
        match mem::replace(seen, version) == version {
            true => Vec::new(),
            false => mem::take(&mut self.shared().new),
        }
    }

    /// Makes no more lanes; the lanes that the receiver has not seen.
    pub(crate) fn close(&self) -> Vec<Reader<T>> {
        let mut shared = self.shared();
        shared.is_closed = true;
        mem::take(&mut shared.new)
    }

    fn shared(&self) -> MutexGuard<'_, Shared<T>> {
        // Every change under the lock is complete in itself.
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

thread_local! {
    /// The lanes of this thread; the one that was used last is the first.
    static KEPT: RefCell<Vec<Entry>> = const { RefCell::new(Vec::new()) };
}

struct Entry {
    number: u64,
    /// A `Held<T>`, with the `T` of the ingress that has this number.
    held: Box<dyn Lease>,
}

trait Lease: Any {
    /// Whether the ingress is gone.
    fn is_over(&self) -> bool;
}

struct Held<T> {
    /// Empty only while it is dropped.
    writer: Option<Writer<T>>,
    home: Weak<Lanes<T>>,
}

impl<T: Send + 'static> Lease for Held<T> {
    fn is_over(&self) -> bool {
        self.home.strong_count() == 0
    }
}

impl<T> Drop for Held<T> {
    /// The thread ends: the next thread may have its lane, behind what is still in it.
    fn drop(&mut self) {
        if let Some(home) = self.home.upgrade() {
            home.shared().idle.extend(self.writer.take());
        }
    }
}
