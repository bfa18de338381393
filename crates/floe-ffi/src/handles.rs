//! Handles: numbers that a host can use too long without harm.
//!
//! A handle consists of the index of a slot in a table and the generation of the slot. When a slot
//! is used again, its generation increases, so an old handle no longer matches.

use std::cell::RefCell;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::LocalKey;

/// The table of all objects that have a handle.
pub(crate) struct Handles<T> {
    slots: Mutex<Vec<Slot<T>>>,
    most: usize,
}

struct Slot<T> {
    generation: u32,
    object: Option<Arc<T>>,
}

/// The last object that a thread used. Using it again takes no lock.
pub(crate) type Last<T> = RefCell<Option<(u64, Arc<T>)>>;

/// An object whose handle can be invalidated while threads still keep the object.
pub(crate) trait Freed {
    /// Returns whether the handle was invalidated.
    fn is_free(&self) -> bool;
}

impl<T: Freed> Handles<T> {
    /// Creates an empty table with at most `most` slots.
    pub(crate) const fn new(most: usize) -> Handles<T> {
        Handles {
            slots: Mutex::new(Vec::new()),
            most,
        }
    }

    /// Inserts the result of `make` and returns its handle, which is never zero. Returns `None` if
    /// all slots are used.
    pub(crate) fn insert(&self, make: impl FnOnce(u64) -> Arc<T>) -> Option<(u64, Arc<T>)> {
        let mut slots = self.slots();
        let index = match slots.iter().position(|slot| slot.object.is_none()) {
            Some(index) => index,
            None if slots.len() < self.most => {
                slots.push(Slot {
                    generation: 0,
                    object: None,
                });
                slots.len() - 1
            }
            None => return None,
        };
        let slot = &mut slots[index];
        // An old handle would match again only after four billion objects in one slot.
        slot.generation = slot.generation.wrapping_add(1).max(1);
        let handle = u64::from(slot.generation) << 32 | index as u64;
        let object = make(handle);
        slot.object = Some(object.clone());
        Some((handle, object))
    }

    /// Runs `f` with the object of a handle. Returns `None` if the handle is not valid.
    #[inline]
    pub(crate) fn with<R>(
        &self,
        last: &'static LocalKey<Last<T>>,
        handle: u64,
        f: impl FnOnce(&Arc<T>) -> R,
    ) -> Option<R> {
        let mut f = Some(f);
        let found = last.try_with(|last| {
            // Taken out for the duration of `f`, which may run a callback of the host that enters
            // this function again.
            let last_used = last.borrow_mut().take();
            let last_used = match last_used {
                Some((known, object)) if known == handle && !object.is_free() => (known, object),
                _ => (handle, self.find(handle)?),
            };
            let result = f.take().map(|f| f(&last_used.1));
            if !last_used.1.is_free() {
                *last.borrow_mut() = Some(last_used);
            }
            result
        });
        match found {
            Ok(result) => result,
            // The thread is about to end, and its storage is gone.
            Err(_) => f.take().and_then(|f| Some(f(&self.find(handle)?))),
        }
    }

    /// Removes an object. Returns `None` if another thread has removed it.
    pub(crate) fn remove(&self, handle: u64) -> Option<Arc<T>> {
        let mut slots = self.slots();
        let slot = slots.get_mut(index_of(handle))?;
        match slot.generation == generation_of(handle) {
            true => slot.object.take(),
            false => None,
        }
    }

    #[cold]
    fn find(&self, handle: u64) -> Option<Arc<T>> {
        let slots = self.slots();
        let slot = slots.get(index_of(handle))?;
        match slot.generation == generation_of(handle) {
            true => slot.object.clone(),
            false => None,
        }
    }

    fn slots(&self) -> MutexGuard<'_, Vec<Slot<T>>> {
        // Every change under the lock is complete in itself.
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn index_of(handle: u64) -> usize {
    (handle & u64::from(u32::MAX)) as usize
}

fn generation_of(handle: u64) -> u32 {
    (handle >> 32) as u32
}
