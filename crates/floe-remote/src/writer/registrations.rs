//! The paths that were sent, with the replies to them.

use std::collections::{BTreeSet, HashMap};

use floe_format::{PathInfo, StorePath};
use parking_lot::{Condvar, Mutex};

/// The paths that were sent, with the replies to them.
#[derive(Debug, Default)]
pub(super) struct Registrations {
    states: Mutex<HashMap<StorePath, State>>,
    /// Wakes the workers that wait for a reply.
    changed: Condvar,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// On its way over the connection with this number.
    Sent(usize),
    Valid,
    Refused,
}

impl Registrations {
    /// Records that a path is on its way.
    pub(super) fn send(&self, path: &StorePath, connection: usize) {
        let state = State::Sent(connection);
        self.states.lock().insert(path.clone(), state);
    }

    /// Records the reply to a path that was sent completely.
    pub(super) fn end(&self, path: &StorePath, is_valid: bool) {
        let state = if is_valid {
            State::Valid
        } else {
            State::Refused
        };
        self.states.lock().insert(path.clone(), state);
        self.changed.notify_all();
    }

    /// Forgets an attempt that did not send the whole path.
    pub(super) fn forget(&self, path: &StorePath) {
        self.states.lock().remove(path);
    }

    /// Returns the references of a path that were refused.
    pub(super) fn refused_references(&self, info: &PathInfo) -> BTreeSet<StorePath> {
        let states = self.states.lock();
        let is_refused = |it: &&StorePath| states.get(*it) == Some(&State::Refused);
        references(info).filter(is_refused).cloned().collect()
    }

    /// Waits until no reference of a path is on its way over another connection. Returns those that
    /// were refused.
    pub(super) fn wait_for_references(
        &self,
        info: &PathInfo,
        connection: Option<usize>,
    ) -> BTreeSet<StorePath> {
        let mut states = self.states.lock();
        self.changed.wait_while(&mut states, |states| {
            references(info).any(|it| match states.get(it) {
                Some(State::Sent(other)) => Some(*other) != connection,
                _ => false,
            })
        });
        drop(states);
        self.refused_references(info)
    }
}

/// Returns the references of a path to others.
fn references(info: &PathInfo) -> impl Iterator<Item = &StorePath> {
    info.references.iter().filter(|it| **it != info.path)
}
