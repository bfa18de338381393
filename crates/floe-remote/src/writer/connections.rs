//! The connections of a target.

use std::sync::OnceLock;
use std::thread;

use parking_lot::Mutex;

use crate::connection::{Connection, Open, Sender};

/// The connections of a target. A daemon adds one path at a time for each connection, so several
/// connections to this machine use several cores. Over a network, one connection takes all bytes.
pub(super) struct Connections {
    slots: Vec<OnceLock<Connection>>,
    /// `None` if there is only one.
    open: Option<Open>,
    opening: Mutex<()>,
}

impl Connections {
    /// Makes the set with its first connection. `open` opens further ones.
    pub(super) fn new(first: Connection, open: Option<Open>) -> Connections {
        let count = match open {
            Some(_) => (SMALL + 1 + cores()).min(CONNECTIONS_MAX),
            None => 1,
        };
        Connections {
            slots: std::iter::once(OnceLock::from(first))
                .chain((1..count).map(|_| OnceLock::new()))
                .collect(),
            open,
            opening: Mutex::new(()),
        }
    }

    /// Returns the connection for queries, whose temporary roots last as long as the target.
    pub(super) fn first(&self) -> &Connection {
        // The first slot is filled from the beginning.
        self.slots[SMALL].wait()
    }

    /// Whether there may be several connections.
    pub(super) fn are_several(&self) -> bool {
        self.slots.len() > 1
    }

    /// Returns the right to send a large NAR over a connection that no other thread uses, if there
    /// is one. If there is none, opens another one. Returns `None` if that is not possible.
    pub(super) fn try_lock(&self) -> Option<(usize, Sender<'_>)> {
        let is_for_large = |number: usize| number != SMALL || !self.are_several();
        let slots = self.slots.iter().enumerate();
        for (number, slot) in slots.filter(|(number, _)| is_for_large(*number)) {
            if let Some(sender) = slot.get().and_then(Connection::try_lock) {
                return Some((number, sender));
            }
        }
        self.open_another()
    }

    fn open_another(&self) -> Option<(usize, Sender<'_>)> {
        // Another thread is opening one for itself.
        let _opening = self.opening.try_lock()?;
        let number = self.slots.iter().position(|slot| slot.get().is_none())?;
        // After a failure, the open connections still take all paths.
        let connection = (self.open.as_ref()?)().ok()?;
        if connection.wants_compression() {
            // A NAR that goes before the greeting would not be compressed.
            connection.wait_until_open().ok()?;
        }
        let connection = self.slots[number].get_or_init(|| connection);
        connection.try_lock().map(|sender| (number, sender))
    }

    /// Waits for the right to send over a connection.
    pub(super) fn lock(&self, number: usize) -> Sender<'_> {
        self.slots[number].wait().lock()
    }
}

impl std::fmt::Debug for Connections {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(&self.slots).finish()
    }
}

fn cores() -> usize {
    thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get)
}

/// The connection for queries and for small NARs. Two connections that register paths at the same
/// moment disturb each other: Nix then waits for 0.1 s. Small paths are many, so they take turns.
pub(super) const SMALL: usize = 0;

/// More connections than this would hold more locks of the database than they save.
const CONNECTIONS_MAX: usize = 4;
