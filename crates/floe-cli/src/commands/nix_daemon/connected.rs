//! The clients that are connected: their number has limits, and the work for those that have gone
//! is cancelled.

use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use floe_transfer::Cancel;
use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::Uid;
use thiserror::Error;

/// The clients that are connected.
pub(super) struct Connected {
    clients: Arc<Mutex<Vec<Client>>>,
    clients_max: usize,
}

struct Client {
    user: Uid,
    stream: UnixStream,
    cancel: Cancel,
    is_refused: bool,
}

/// The place of a client. It is free after the drop.
pub(super) struct Place {
    clients: Arc<Mutex<Vec<Client>>>,
    /// Raised when the client has gone.
    pub(super) cancel: Cancel,
    refusal: Option<TooManyClients>,
}

/// Why a client gets no place.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub(super) enum TooManyClients {
    #[error("cannot serve another client: {0} are connected; try again when one of them has ended")]
    All(usize),
    #[error(
        "cannot serve another client: you have {0} connections; try again when one of them has \
         ended"
    )]
    OfUser(usize),
}

impl Connected {
    /// Makes an empty list. `files_max` is the number of files that the process may open.
    pub(super) fn new(files_max: Option<u64>) -> Connected {
        let files = files_max.and_then(|max| usize::try_from(max).ok());
        let clients_max = files.unwrap_or(usize::MAX) / FILES_PER_CLIENT;
        Connected {
            clients: Arc::default(),
            clients_max: clients_max.clamp(1, CLIENTS_MAX),
        }
    }

    /// Returns the place of a client, which may be one for a refusal; `None` if there are many of
    /// those already.
    pub(super) fn place(&self, user: Uid, stream: &UnixStream) -> io::Result<Option<Place>> {
        let mut clients = self.clients.lock();
        let refusal = self.refusal(&clients, user);
        let refused = clients.iter().filter(|client| client.is_refused);
        if refusal.is_some() && refused.count() >= REFUSED_MAX {
            return Ok(None);
        }
        let cancel = Cancel::default();
        clients.push(Client {
            user,
            stream: stream.try_clone()?,
            cancel: cancel.clone(),
            is_refused: refusal.is_some(),
        });
        Ok(Some(Place {
            clients: self.clients.clone(),
            cancel,
            refusal,
        }))
    }

    /// Returns why a user may not have another client. The root user always may.
    fn refusal(&self, clients: &[Client], user: Uid) -> Option<TooManyClients> {
        if user.is_root() {
            return None;
        }
        let served = clients.iter().filter(|client| !client.is_refused);
        let own = served.clone().filter(|client| client.user == user).count();
        let own_max = (self.clients_max / USER_SHARE).max(1);
        if own >= own_max {
            Some(TooManyClients::OfUser(own_max))
        } else if served.count() >= self.clients_max {
            Some(TooManyClients::All(self.clients_max))
        } else {
            None
        }
    }

    /// Cancels the work for clients that have closed their side.
    pub(super) fn cancel_hung_up(&self) {
        let clients = self.clients.lock();
        let fd = |client| PollFd::new(client, PollFlags::empty());
        let mut fds: Vec<PollFd<'_>> = clients.iter().map(|client| fd(&client.stream)).collect();
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        if poll(&mut fds, Some(&now)).is_err() {
            // The next call finds out.
            return;
        }
        for (client, fd) in clients.iter().zip(fds) {
            if fd.revents().contains(PollFlags::HUP) {
                client.cancel.raise();
            }
        }
    }

    /// Whether no client is connected.
    pub(super) fn is_empty(&self) -> bool {
        self.clients.lock().is_empty()
    }
}

impl Place {
    /// Why the client is not served.
    pub(super) fn refusal(&self) -> Option<TooManyClients> {
        self.refusal
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let own = self.cancel.flag();
        let mut clients = self.clients.lock();
        clients.retain(|client| !Arc::ptr_eq(&client.cancel.flag(), &own));
    }
}

/// The most clients at once.
const CLIENTS_MAX: usize = 1024;

/// A client needs at most this number of files: sockets, databases, locks, and those that it reads.
const FILES_PER_CLIENT: usize = 24;

/// One user has at most one in so many of all connections.
const USER_SHARE: usize = 8;

/// The most clients at once that wait for their refusal.
const REFUSED_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_have_limits_except_those_of_root() {
        let connected = Connected::new(Some(24 * 16));
        let (stream, _other) = UnixStream::pair().unwrap();
        let place = |user| {
            connected
                .place(Uid::from_raw(user), &stream)
                .unwrap()
                .unwrap()
        };
        let first = [place(1000), place(1000)];
        assert!(first.iter().all(|place| place.refusal().is_none()));
        assert_eq!(
            place(1000).refusal(),
            Some(TooManyClients::OfUser(2)),
            "refusals leave no client"
        );
        let others: Vec<Place> = (1001..1008)
            .flat_map(|user| [place(user), place(user)])
            .collect();
        assert!(others.iter().all(|place| place.refusal().is_none()));
        assert_eq!(place(1008).refusal(), Some(TooManyClients::All(16)));
        assert_eq!(place(0).refusal(), None);
        drop(first);
        assert_eq!(place(1008).refusal(), None);
    }

    #[test]
    fn work_for_a_client_that_has_gone_is_cancelled() {
        let connected = Connected::new(None);
        let (stream, other) = UnixStream::pair().unwrap();
        let place = connected
            .place(Uid::from_raw(1000), &stream)
            .unwrap()
            .unwrap();
        connected.cancel_hung_up();
        assert!(!place.cancel.is_raised());
        drop(other);
        connected.cancel_hung_up();
        assert!(place.cancel.is_raised());
        drop(place);
        assert!(connected.is_empty());
    }
}
