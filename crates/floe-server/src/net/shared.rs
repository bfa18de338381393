//! What the network's threads and the workers share, and how they tell each other of it.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::event::{EventfdFlags, eventfd};

use crate::access_log::writer::LogWriter;
use crate::config::LogFormat;
use crate::context::Context;
use crate::error::ServeError;
use crate::net::limits::Limits;
use crate::net::listen::Listener;
use crate::net::queue::{Job, JobQueue};

/// What all threads of a server share.
pub(crate) struct ServerShared {
    pub(crate) context: Context,
    pub(crate) limits: Limits,
    /// Each of the network's threads has its own hold on them; they are closed with the last.
    pub(crate) listeners: Mutex<Vec<Arc<Listener>>>,
    pub(crate) queue: JobQueue,
    /// How many connections there are.
    pub(crate) open: AtomicUsize,
    pub(crate) log: Option<(LogFormat, LogWriter)>,
    pub(crate) signal: Arc<Signal>,
}

/// How threads are told that something has changed.
#[derive(Debug)]
pub(crate) struct Signal {
    phase: AtomicU8,
    mailboxes: Vec<Mailbox>,
}

/// What workers give back to one of the network's threads.
#[derive(Debug)]
pub(crate) struct Mailbox {
    returned: Mutex<Vec<(Job, bool)>>,
    wake: OwnedFd,
}

/// How far a server has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd)]
pub(crate) enum Phase {
    Running,
    /// No new requests; what is under way is finished.
    Stopping,
    /// Everything is dropped.
    Stopped,
}

impl ServerShared {
    pub(crate) fn phase(&self) -> Phase {
        match self.signal.phase.load(Ordering::Acquire) {
            0 => Phase::Running,
            1 => Phase::Stopping,
            _ => Phase::Stopped,
        }
    }

    pub(crate) fn listeners(&self) -> MutexGuard<'_, Vec<Arc<Listener>>> {
        self.listeners
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn mailbox(&self, thread: usize) -> &Mailbox {
        &self.signal.mailboxes[thread]
    }

    /// Gives a connection back to the thread that it belongs to.
    pub(crate) fn return_connection(&self, job: Job, is_alive: bool) {
        let mailbox = self.mailbox(job.thread);
        let mut returned = mailbox
            .returned
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        returned.push((job, is_alive));
        // Whoever was first has woken it already.
        let is_first = returned.len() == 1;
        drop(returned);
        if is_first {
            mailbox.notify();
        }
    }
}

impl Signal {
    pub(crate) fn new(threads: usize) -> Result<Signal, ServeError> {
        let mut mailboxes = Vec::new();
        for _ in 0..threads {
            let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
            let wake = eventfd(0, flags).map_err(|source| ServeError::System {
                action: "making an event descriptor",
                source: source.into(),
            })?;
            mailboxes.push(Mailbox {
                returned: Mutex::new(Vec::new()),
                wake,
            });
        }
        Ok(Signal {
            phase: AtomicU8::new(Phase::Running as u8),
            mailboxes,
        })
    }

    /// How many threads of the network there are.
    pub(crate) fn threads(&self) -> usize {
        self.mailboxes.len()
    }

    /// From running to stopping, from stopping to stopped.
    pub(crate) fn advance(&self) {
        let before = self.phase.fetch_add(1, Ordering::AcqRel);
        if before >= Phase::Stopped as u8 {
            self.stop();
        }
        for mailbox in &self.mailboxes {
            mailbox.notify();
        }
    }

    pub(crate) fn stop(&self) {
        self.phase.store(Phase::Stopped as u8, Ordering::Release);
    }
}

impl Mailbox {
    pub(crate) fn wake(&self) -> &OwnedFd {
        &self.wake
    }

    /// Takes what is there.
    pub(crate) fn drain(&self) -> Vec<(Job, bool)> {
        let mut count = [0; 8];
        // Emptied before looking, so that whatever comes later rings again.
        let _: rustix::io::Result<usize> = rustix::io::read(&self.wake, &mut count);
        std::mem::take(&mut *self.returned.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn notify(&self) {
        // Full means that it has been rung.
        let _: rustix::io::Result<usize> = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }
}
