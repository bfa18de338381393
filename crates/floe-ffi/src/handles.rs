//! Handles of engines: numbers that a host can keep too long without harm.
//!
//! A handle is the place of an engine in a table and the number of the engine that has this place.
//! The place of an engine that is gone is used again, with the next number, so an old handle fits
//! nothing any more.

use std::cell::RefCell;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::engine::Shared;

struct Place {
    generation: u32,
    engine: Option<Arc<Shared>>,
}

static PLACES: Mutex<Vec<Place>> = Mutex::new(Vec::new());

thread_local! {
    /// The engine that this thread used last, so that a submit takes no lock.
    static LAST: RefCell<Option<(u64, Arc<Shared>)>> = const { RefCell::new(None) };
}

/// A place for an engine, and its handle, which is never zero. `None`: all are taken.
pub(crate) fn insert(make: impl FnOnce(u64) -> Arc<Shared>) -> Option<u64> {
    let mut places = places();
    let index = match places.iter().position(|place| place.engine.is_none()) {
        Some(index) => index,
        None if places.len() < ENGINES_MAX => {
            places.push(Place {
                generation: 0,
                engine: None,
            });
            places.len() - 1
        }
        None => return None,
    };
    let place = &mut places[index];
    // Only after four billion engines in one place would an old handle fit again.
    place.generation = place.generation.wrapping_add(1).max(1);
    let handle = u64::from(place.generation) << 32 | index as u64;
    place.engine = Some(make(handle));
    Some(handle)
}

/// The engine of a handle, if the handle is still good.
pub(crate) fn find(handle: u64) -> Option<Arc<Shared>> {
    with(handle, Arc::clone)
}

/// Lends the engine of a handle.
#[inline]
pub(crate) fn with<R>(handle: u64, f: impl FnOnce(&Arc<Shared>) -> R) -> Option<R> {
    let mut f = Some(f);
    let found = LAST.try_with(|last| {
        // Taken out meanwhile: `f` may run a callback of the host, which may come here again.
        let kept = last.borrow_mut().take();
        let kept = match kept {
            Some((known, engine)) if known == handle && !engine.is_free() => (known, engine),
            _ => (handle, look_up(handle)?),
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
        Err(_) => f.take().and_then(|f| Some(f(&look_up(handle)?))),
    }
}

/// Gives the place up. `None` if somebody else was faster.
pub(crate) fn remove(handle: u64) -> Option<Arc<Shared>> {
    let mut places = places();
    let place = places.get_mut(index_of(handle))?;
    match place.generation == generation_of(handle) {
        true => place.engine.take(),
        false => None,
    }
}

#[cold]
fn look_up(handle: u64) -> Option<Arc<Shared>> {
    let places = places();
    let place = places.get(index_of(handle))?;
    match place.generation == generation_of(handle) {
        true => place.engine.clone(),
        false => None,
    }
}

fn places() -> MutexGuard<'static, Vec<Place>> {
    // Every change under the lock is complete in itself.
    PLACES.lock().unwrap_or_else(PoisonError::into_inner)
}

fn index_of(handle: u64) -> usize {
    (handle & u64::from(u32::MAX)) as usize
}

fn generation_of(handle: u64) -> u32 {
    (handle >> 32) as u32
}

/// A program that has so many has forgotten to free them.
const ENGINES_MAX: usize = 1024;
