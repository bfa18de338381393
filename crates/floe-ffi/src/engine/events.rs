//! The delivery of events to subscribers.

use std::mem;
use std::sync::atomic::Ordering;

use floe_messages::{Codec, EventKind, Lost};

use super::Delivery;
use super::thread::Engine;
use crate::completion::{Completion, Kind, encode};
use crate::completion_queue::CompletionQueue;

impl Engine {
    /// Passes an event to all its subscribers.
    pub(super) fn emit(&mut self, kind: EventKind, payload: Vec<u8>) {
        let shared = self.shared.clone();
        let event = event(kind, shared.codec, payload);
        for subscription in shared.subscriptions.of(kind) {
            // An earlier callback may have removed the subscription.
            if !subscription.is_alive.load(Ordering::Acquire) {
                continue;
            }
            match (&subscription.callback, &shared.delivery) {
                (Some(callback), _) => callback.call(&event),
                (None, Delivery::Callback(callback)) => callback.call(&event),
                (None, Delivery::Queue(queue)) => self.queue_event(queue, event.clone()),
            }
        }
    }

    fn queue_event(&mut self, queue: &CompletionQueue, it: Completion) {
        let waiting = queue.events() + self.batch.iter().filter(|it| it.is_event()).count();
        if waiting >= EVENTS_MAX {
            self.lost_events += 1;
            return;
        }
        if self.lost_events > 0 {
            let count = mem::take(&mut self.lost_events);
            let payload = encode(it.codec, &Lost { count });
            self.batch.push(event(EventKind::Lost, it.codec, payload));
        }
        self.batch.push(it);
    }
}

fn event(kind: EventKind, codec: Codec, payload: Vec<u8>) -> Completion {
    Completion {
        request: 0,
        tag: 0,
        kind: Kind::Event,
        method: kind as u32,
        codec,
        payload,
    }
}

/// The number of events in a queue. Further events are counted as lost.
const EVENTS_MAX: usize = 1024;
