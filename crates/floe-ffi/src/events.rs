//! Subscriptions to events, which belong to no request.
//!
//! In an engine with a callback, the engine thread calls each subscriber. In an engine with a
//! queue, events wait there with the completions, up to a bound. An event reports how many were
//! lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use floe_messages::EventKind;
use parking_lot::Mutex;

use crate::callback::Callback;

/// A subscription.
#[derive(Debug)]
pub(crate) struct Subscription {
    pub(crate) id: u64,
    /// The subscribed kinds: bit n for the event with number n.
    mask: u64,
    /// `None`: events go to the engine's callback or queue.
    pub(crate) callback: Option<Callback>,
    pub(crate) is_alive: AtomicBool,
}

/// All subscriptions of an engine.
#[derive(Debug, Default)]
pub(crate) struct Subscriptions {
    list: Mutex<Vec<Arc<Subscription>>>,
    /// The union of all subscription masks, readable without the lock.
    mask: AtomicU64,
}

impl Subscriptions {
    pub(crate) fn add(&self, id: u64, mask: u64, callback: Option<Callback>) {
        let mut list = self.list.lock();
        list.push(Arc::new(Subscription {
            id,
            mask,
            callback,
            is_alive: AtomicBool::new(true),
        }));
        self.summarise(&list);
    }

    /// Removes a subscription. No new call of its callback begins, but one may be running. Returns
    /// `false` if there is no such subscription.
    pub(crate) fn remove(&self, id: u64) -> bool {
        let mut list = self.list.lock();
        let Some(index) = list.iter().position(|it| it.id == id) else {
            return false;
        };
        list.remove(index).is_alive.store(false, Ordering::Release);
        self.summarise(&list);
        true
    }

    /// Returns the subscriptions to this kind. Check `is_alive` before each call, because one
    /// callback may remove another subscription.
    pub(crate) fn of(&self, kind: EventKind) -> Vec<Arc<Subscription>> {
        let bit = 1 << kind as u32;
        if self.mask.load(Ordering::Acquire) & bit == 0 {
            return Vec::new();
        }
        let list = self.list.lock();
        let subscribed = list.iter().filter(|it| it.mask & bit != 0);
        subscribed.cloned().collect()
    }

    fn summarise(&self, list: &[Arc<Subscription>]) {
        let mask = list.iter().fold(0, |all, it| all | it.mask);
        self.mask.store(mask, Ordering::Release);
    }
}
