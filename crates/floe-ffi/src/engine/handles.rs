//! Handles of engines: numbers that a host can use too long without harm.
//!
//! A handle consists of the index of a slot in a table and the generation of the slot. When a slot
//! is used again, its generation increases, so an old handle no longer matches.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::Mutex;

use super::Shared;

#[derive(Default)]
struct Slot {
    generation: u32,
    engine: Option<Arc<Shared>>,
}

static SLOTS: Mutex<Vec<Slot>> = Mutex::new(Vec::new());

thread_local! {
    /// The last engine that this thread used. Using it again takes no lock.
    static LAST: RefCell<Option<Arc<Shared>>> = const { RefCell::new(None) };
}

/// Inserts the result of `make`, which receives a handle that is never zero. Returns `None` if all
/// slots are used.
pub(super) fn insert(make: impl FnOnce(u64) -> Shared) -> Option<Arc<Shared>> {
    let mut slots = SLOTS.lock();
    let index = match slots.iter().position(|slot| slot.engine.is_none()) {
        Some(index) => index,
        None if slots.len() < ENGINES_MAX => {
            slots.push(Slot::default());
            slots.len() - 1
        }
        None => return None,
    };
    let slot = &mut slots[index];
    // An old handle would match again only after four billion engines in one slot.
    slot.generation = slot.generation.wrapping_add(1).max(1);
    let engine = Arc::new(make(u64::from(slot.generation) << 32 | index as u64));
    slot.engine = Some(engine.clone());
    Some(engine)
}

/// Runs `f` with the engine of a handle. Returns `None` if the handle is not valid.
#[inline]
pub(crate) fn with<R>(handle: u64, f: impl FnOnce(&Arc<Shared>) -> R) -> Option<R> {
    let is_free = |engine: &Shared| engine.is_free.load(Ordering::Acquire);
    let mut f = Some(f);
    let found = LAST.try_with(|last| {
        // Taken out for the duration of `f`, which may run a callback of the host that enters this
        // function again.
        let last_used = last.borrow_mut().take();
        let engine = match last_used {
            Some(engine) if engine.handle == handle && !is_free(&engine) => engine,
            _ => find(handle)?,
        };
        let result = f.take().map(|f| f(&engine));
        if !is_free(&engine) {
            *last.borrow_mut() = Some(engine);
        }
        result
    });
    match found {
        Ok(result) => result,
        // The thread is about to end, and its storage is gone.
        Err(_) => f.take().and_then(|f| Some(f(&find(handle)?))),
    }
}

/// Removes an engine. Returns `None` if another thread has removed it.
pub(super) fn remove(handle: u64) -> Option<Arc<Shared>> {
    slot_of(&mut SLOTS.lock(), handle)?.engine.take()
}

#[cold]
fn find(handle: u64) -> Option<Arc<Shared>> {
    slot_of(&mut SLOTS.lock(), handle)?.engine.clone()
}

fn slot_of(slots: &mut [Slot], handle: u64) -> Option<&mut Slot> {
    let slot = slots.get_mut((handle & u64::from(u32::MAX)) as usize)?;
    (u64::from(slot.generation) == handle >> 32).then_some(slot)
}

/// A host with more engines has forgotten to free them.
const ENGINES_MAX: usize = 1024;
