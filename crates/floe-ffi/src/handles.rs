//! Handles: numbers that a host can use too long without harm.
//!
//! A handle consists of the index of a slot in a table and the generation of the slot. When a slot
//! is used again, its generation increases, so an old handle no longer matches.

use std::cell::RefCell;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::LocalKey;

/// The table of all objects that have a handle.
pub(crate) struct Handles<T> {
    places: Mutex<Vec<Place<T>>>,
    most: usize,
}

struct Place<T> {
    generation: u32,
    thing: Option<Arc<T>>,
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
            places: Mutex::new(Vec::new()),
            most,
        }
    }

    /// Inserts the result of `make` and returns its handle, which is never zero. Returns `None` if
    /// all slots are used.
    pub(crate) fn insert(&self, make: impl FnOnce(u64) -> Arc<T>) -> Option<(u64, Arc<T>)> {
        let mut places = self.places();
        let index = match places.iter().position(|place| place.thing.is_none()) {
            Some(index) => index,
            None if places.len() < self.most => {
                places.push(Place {
                    generation: 0,
                    thing: None,
                });
                places.len() - 1
            }
            None => return None,
        };
        let place = &mut places[index];
        // An old handle would match again only after four billion objects in one slot.
        place.generation = place.generation.wrapping_add(1).max(1);
        let handle = u64::from(place.generation) << 32 | index as u64;
        let thing = make(handle);
        place.thing = Some(thing.clone());
        Some((handle, thing))
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
            let kept = last.borrow_mut().take();
            let kept = match kept {
                Some((known, thing)) if known == handle && !thing.is_free() => (known, thing),
                _ => (handle, self.look_up(handle)?),
            };
            let result = f.take().map(|f| f(&kept.1));
            if !kept.1.is_free() {
                *last.borrow_mut() = Some(kept);
            }
            result
        });
        match found {
            Ok(result) => result,
            // The thread is about to end, and its storage is gone.
            Err(_) => f.take().and_then(|f| Some(f(&self.look_up(handle)?))),
        }
    }

    /// Removes an object. Returns `None` if another thread has removed it.
    pub(crate) fn remove(&self, handle: u64) -> Option<Arc<T>> {
        let mut places = self.places();
        let place = places.get_mut(index_of(handle))?;
        match place.generation == generation_of(handle) {
            true => place.thing.take(),
            false => None,
        }
    }

    #[cold]
    fn look_up(&self, handle: u64) -> Option<Arc<T>> {
        let places = self.places();
        let place = places.get(index_of(handle))?;
        match place.generation == generation_of(handle) {
            true => place.thing.clone(),
            false => None,
        }
    }

    fn places(&self) -> MutexGuard<'_, Vec<Place<T>>> {
        // Every change under the lock is complete in itself.
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn index_of(handle: u64) -> usize {
    (handle & u64::from(u32::MAX)) as usize
}

fn generation_of(handle: u64) -> u32 {
    (handle >> 32) as u32
}
