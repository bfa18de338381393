//! The state that network threads and workers share, and the signals between them.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::time::Instant;

use parking_lot::{Mutex, RwLock};
use rustix::event::{EventfdFlags, eventfd};

use super::connection::Connection;
use super::job_queue::{Job, JobQueue};
use super::listen::Listener;
use super::login_queue::LoginQueue;
use super::peers::PeerCounts;
use crate::config::Limits;
use crate::context::Context;
use crate::error::ServeError;
use crate::finish::access_log::AccessLog;
use crate::tls::TlsAcceptor;
use crate::warning::RepeatedWarning;

/// The state that all threads of a server share.
pub(crate) struct ServerShared {
    pub(crate) context: Context,
    pub(crate) limits: RwLock<Arc<Limits>>,
    /// Each network thread has its own references. A listener is closed with the last of them.
    pub(crate) listeners: Mutex<Vec<Arc<Listener>>>,
    /// For the listeners on TCP, if they use TLS.
    pub(crate) tls: Option<TlsAcceptor>,
    pub(crate) queue: JobQueue,
    /// For connections whose bodies are received. Other workers serve it, so that uploads never
    /// keep downloads waiting.
    pub(crate) upload_queue: JobQueue,
    /// `None` if the server needs no login.
    pub(crate) login_queue: Option<LoginQueue>,
    /// The number of open connections.
    pub(crate) open: AtomicUsize,
    pub(crate) peers: Arc<PeerCounts>,
    /// For a server whose connections are all in use.
    pub(crate) full_warning: RepeatedWarning,
    /// For an address with too many connections.
    pub(crate) peer_warning: RepeatedWarning,
    /// For connections that were closed to make room.
    pub(crate) room_warning: RepeatedWarning,
    /// For connections that were closed because they held decoders for build logs.
    pub(crate) log_decoder_warning: RepeatedWarning,
    pub(crate) log: Option<Arc<AccessLog>>,
    pub(crate) signal: Arc<Signal>,
}

/// Wakes the network threads, and tells them and the workers to stop.
#[derive(Debug)]
pub(crate) struct Signal {
    phase: AtomicU8,
    /// One for each network thread.
    mailboxes: Vec<Mailbox>,
}

/// The connections that workers have returned to a network thread.
#[derive(Debug)]
pub(crate) struct Mailbox {
    returned: Mutex<Vec<Returned>>,
    /// An event descriptor, which the thread waits for together with its sockets.
    wake: OwnedFd,
    /// When the thread ended its last wait.
    beat: Mutex<Instant>,
}

/// A connection that is no longer lent to a worker.
#[derive(Debug)]
pub(crate) struct Returned {
    pub(crate) slot: usize,
    /// `None` if the worker has closed it.
    pub(crate) connection: Option<Box<Connection>>,
}

/// The life of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd)]
pub(crate) enum Phase {
    Running,
    /// Responses that have begun are finished. No further request is read.
    Stopping,
    /// All connections are closed at once.
    Stopped,
}

impl ServerShared {
    /// Returns when the slowest network thread ended its last wait. It waits half a second at most.
    pub(crate) fn oldest_beat(&self) -> Option<Instant> {
        let mailboxes = self.signal.mailboxes.iter();
        mailboxes.map(|mailbox| *mailbox.beat.lock()).min()
    }

    pub(crate) fn phase(&self) -> Phase {
        match self.signal.phase.load(Ordering::Acquire) {
            0 => Phase::Running,
            1 => Phase::Stopping,
            _ => Phase::Stopped,
        }
    }

    /// Returns the limits that count from now on.
    pub(crate) fn limits(&self) -> Arc<Limits> {
        self.limits.read().clone()
    }

    /// Sets other limits. Each network thread uses them after its next wait.
    pub(crate) fn set_limits(&self, limits: Limits) {
        self.peers.set_max(limits.connections_per_address_max);
        let max = limits.connections_max.get();
        self.context.metrics.set_connections_max(max);
        *self.limits.write() = Arc::new(limits);
    }

    /// Tells the metrics when the certificates expire.
    pub(crate) fn note_certificates(&self) {
        if let Some(tls) = &self.tls {
            let expiries = tls.settings().expiries();
            self.context.metrics.set_certificate_expiries(expiries);
        }
    }

    pub(crate) fn mailbox(&self, thread: usize) -> &Mailbox {
        &self.signal.mailboxes[thread]
    }

    /// Returns a connection to its network thread, or closes it if `is_alive` is false.
    pub(crate) fn return_connection(&self, job: Job, is_alive: bool) {
        self.mailbox(job.thread).push(Returned {
            slot: job.slot,
            connection: is_alive.then_some(job.connection),
        });
    }
}

impl Signal {
    pub(crate) fn new(threads: usize) -> Result<Signal, ServeError> {
        let mailboxes: Result<Vec<Mailbox>, ServeError> =
            (0..threads).map(|_| Mailbox::new()).collect();
        Ok(Signal {
            phase: AtomicU8::new(Phase::Running as u8),
            mailboxes: mailboxes?,
        })
    }

    /// Returns the number of network threads.
    pub(crate) fn threads(&self) -> usize {
        self.mailboxes.len()
    }

    /// Begins the next phase, and wakes all network threads for it.
    pub(crate) fn advance(&self) {
        let before = self.phase.fetch_add(1, Ordering::AcqRel);
        if before >= Phase::Stopped as u8 {
            self.stop();
        }
        for mailbox in &self.mailboxes {
            mailbox.notify();
        }
    }

    /// Begins the last phase, when no network thread is left to wake.
    pub(crate) fn stop(&self) {
        self.phase.store(Phase::Stopped as u8, Ordering::Release);
    }
}

impl Mailbox {
    fn new() -> Result<Mailbox, ServeError> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let wake = eventfd(0, flags).map_err(|source| ServeError::System {
            action: "create an event descriptor",
            source: source.into(),
        })?;
        Ok(Mailbox {
            returned: Mutex::new(Vec::new()),
            wake,
            beat: Mutex::new(Instant::now()),
        })
    }

    /// Notes that the thread has ended a wait.
    pub(crate) fn beat(&self, now: Instant) {
        *self.beat.lock() = now;
    }

    pub(crate) fn wake(&self) -> &OwnedFd {
        &self.wake
    }

    fn push(&self, returned: Returned) {
        let mut all = self.returned.lock();
        all.push(returned);
        // Otherwise the thread was woken already, and has not looked yet.
        let is_first = all.len() == 1;
        drop(all);
        if is_first {
            self.notify();
        }
    }

    /// Takes all connections out.
    pub(crate) fn drain(&self) -> Vec<Returned> {
        let mut count = [0; 8];
        // The event is cleared first, so that a connection that is pushed from now on raises it
        // again.
        let _: rustix::io::Result<usize> = rustix::io::read(&self.wake, &mut count);
        std::mem::take(&mut *self.returned.lock())
    }

    fn notify(&self) {
        // If the counter is full, the event is raised already.
        let _: rustix::io::Result<usize> = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }
}
