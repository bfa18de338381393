//! Events: what happens in an engine and belongs to nobody's request.
//!
//! In the mode with callbacks each subscriber is called on the engine thread. In the mode with a
//! queue they wait there with the completions, up to a bound; how many were lost is an event too.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use floe_messages::EventKind;

use crate::callback::Callback;

/// One who wants to know.
#[derive(Debug)]
pub(crate) struct Subscription {
    pub(crate) id: u64,
    /// A bit for each kind: bit n for the event with the number n.
    mask: u64,
    /// `None`: the queue.
    pub(crate) callback: Option<Callback>,
    is_alive: AtomicBool,
}

/// All who want to know.
#[derive(Debug, Default)]
pub(crate) struct Subscriptions {
    list: Mutex<Vec<Arc<Subscription>>>,
    /// What anybody wants, to be seen without the lock.
    mask: AtomicU64,
}

impl Subscriptions {
    pub(crate) fn add(&self, id: u64, mask: u64, callback: Option<Callback>) {
        let mut list = self.list();
        list.push(Arc::new(Subscription {
            id,
            mask,
            callback,
            is_alive: AtomicBool::new(true),
        }));
        self.summarise(&list);
    }

    /// From here on no call begins; one may be under way. `false` if there is no such subscription.
    pub(crate) fn remove(&self, id: u64) -> bool {
        let mut list = self.list();
        let Some(index) = list.iter().position(|it| it.id == id) else {
            return false;
        };
        list.remove(index).is_alive.store(false, Ordering::Release);
        self.summarise(&list);
        true
    }

    /// Who wants this kind. Each of them is asked again before it is called, since one callback
    /// may remove another.
    pub(crate) fn of(&self, kind: EventKind) -> Vec<Arc<Subscription>> {
        let bit = 1 << kind as u32;
        match self.mask.load(Ordering::Acquire) & bit {
            0 => Vec::new(),
            _ => {
                let list = self.list();
                list.iter()
                    .filter(|it| it.mask & bit != 0)
                    .cloned()
                    .collect()
            }
        }
    }

    fn summarise(&self, list: &[Arc<Subscription>]) {
        let mask = list.iter().fold(0, |all, it| all | it.mask);
        self.mask.store(mask, Ordering::Release);
    }

    fn list(&self) -> MutexGuard<'_, Vec<Arc<Subscription>>> {
        // Every change under the lock is complete in itself.
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Subscription {
    pub(crate) fn is_alive(&self) -> bool {
        self.is_alive.load(Ordering::Acquire)
    }
}
