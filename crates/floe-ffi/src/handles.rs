//! Handles: numbers that a host can keep too long without harm.
//!
//! A handle is the place of a thing in a table and the number of the thing that has this place. The
//! place of one that is gone is used again, with the next number, so an old handle fits nothing any
//! more.

use std::cell::RefCell;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::LocalKey;

/// All things of one kind that have a handle.
pub(crate) struct Handles<T> {
    places: Mutex<Vec<Place<T>>>,
    most: usize,
}

struct Place<T> {
    generation: u32,
    thing: Option<Arc<T>>,
}

/// What a thread has used last, so that to use it again takes no lock.
pub(crate) type Last<T> = RefCell<Option<(u64, Arc<T>)>>;

/// A thing whose handle can be given up while threads still keep it.
pub(crate) trait Freed {
    /// Whether its handle was given up.
    fn is_free(&self) -> bool;
}

impl<T: Freed> Handles<T> {
    /// An empty table with so many places.
    pub(crate) const fn new(most: usize) -> Handles<T> {
        Handles {
            places: Mutex::new(Vec::new()),
            most,
        }
    }

    /// A place for what `make` gives, and its handle, which is never zero. `None`: all are taken.
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
        // Only after four billion things in one place would an old handle fit again.
        place.generation = place.generation.wrapping_add(1).max(1);
        let handle = u64::from(place.generation) << 32 | index as u64;
        let thing = make(handle);
        place.thing = Some(thing.clone());
        Some((handle, thing))
    }

    /// Lends what a handle stands for, if the handle is still good.
    #[inline]
    pub(crate) fn with<R>(
        &self,
        last: &'static LocalKey<Last<T>>,
        handle: u64,
        f: impl FnOnce(&Arc<T>) -> R,
    ) -> Option<R> {
        let mut f = Some(f);
        let found = last.try_with(|last| {
            // Taken out meanwhile: `f` may run a callback of the host, which may come here again.
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
            // The thread is about to end and has no storage any more.
            Err(_) => f.take().and_then(|f| Some(f(&self.look_up(handle)?))),
        }
    }

    /// Gives the place up. `None` if somebody else was faster.
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
