//! A network thread: accepts, reads, answers what is in memory, writes, and lends to workers
//! what is not. It never waits for anything but the network.

use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use floe_store::LiveStore;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use rustix::net::{SocketFlags, acceptfrom_with, sockopt::set_tcp_nodelay};

use crate::caches::narinfo_cache::StoreSession;
use crate::clock::Clock;
use crate::error::ServeError;
use crate::net::connection::{Connection, NextStep, ThreadContext};
use crate::net::listen::{Listener, peer_name};
use crate::net::queue::Job;
use crate::net::shared::{Phase, ServerShared};

/// One thread's connections.
pub(crate) struct EventLoop<'s> {
    shared: &'s ServerShared,
    /// Which of the threads this is.
    number: usize,
    epoll: OwnedFd,
    listeners: Vec<Arc<Listener>>,
    slots: Vec<Slot>,
    free: Vec<usize>,
    /// The connections that have more to do at once.
    runnable: Vec<usize>,
    session: StoreSession,
    clock: Clock,
    log: String,
    now: Instant,
    phase: Phase,
    /// When it was told to stop.
    stopping: Option<Instant>,
    /// When accepting failed for want of descriptors, or there were too many connections.
    is_accept_paused: bool,
}

enum Slot {
    Free,
    Open(Box<Connection>),
    /// Lent to a worker.
    Lent {
        /// Whether the client's end of the connection was closed meanwhile.
        hung_up: bool,
    },
}

impl<'s> EventLoop<'s> {
    pub(crate) fn new(
        shared: &'s ServerShared,
        number: usize,
        store: LiveStore,
    ) -> Result<EventLoop<'s>, ServeError> {
        let failed = |source: Errno| ServeError::System {
            action: "preparing to wait for the network",
            source: source.into(),
        };
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(failed)?;
        let wake = shared.mailbox(number).wake();
        let event = epoll::EventData::new_u64(WAKE);
        epoll::add(&epoll, wake, event, epoll::EventFlags::IN).map_err(failed)?;
        let mut this = EventLoop {
            shared,
            number,
            epoll,
            listeners: shared.listeners().clone(),
            slots: Vec::new(),
            free: Vec::new(),
            runnable: Vec::new(),
            session: StoreSession::new(store),
            clock: Clock::new(),
            log: String::new(),
            now: Instant::now(),
            phase: Phase::Running,
            stopping: None,
            is_accept_paused: true,
        };
        this.start_accepting().map_err(failed)?;
        Ok(this)
    }

    /// Serves until the server is told to stop and nothing is under way any more.
    pub(crate) fn run(mut self) {
        let mut events = Vec::with_capacity(EVENTS_MAX);
        let mut swept = Instant::now();
        loop {
            let patience = match self.runnable.is_empty() {
                true => SWEEP_INTERVAL,
                false => Duration::ZERO,
            };
            let timeout = Timespec::try_from(patience).unwrap_or_default();
            events.clear();
            let spare = rustix::buffer::spare_capacity(&mut events);
            // An interrupted wait has no events.
            let _: Result<usize, Errno> = epoll::wait(&self.epoll, spare, Some(&timeout));
            self.now = Instant::now();
            self.clock.tick(self.now);
            self.session.begin_batch();
            // All are read before any is answered: the database is looked at in between.
            for event in &events {
                self.fill(event);
            }
            for slot in std::mem::take(&mut self.runnable) {
                if let Some(Slot::Open(connection)) = self.slots.get_mut(slot) {
                    connection.queued = false;
                }
                self.resume(slot, false);
            }
            for event in &events {
                match event.data.u64() {
                    WAKE => self.collect_returned(),
                    data if data >= LISTENERS => self.accept(data - LISTENERS),
                    slot => {
                        let flags = event.flags;
                        let slot = usize::try_from(slot).unwrap_or(usize::MAX);
                        self.resume(slot, flags.intersects(HUNG_UP));
                    }
                }
            }
            if let Some((_, log)) = &self.shared.log
                && !self.log.is_empty()
            {
                log.write(&self.log);
                self.log.clear();
            }
            if self.now.duration_since(swept) >= SWEEP_INTERVAL {
                swept = self.now;
                self.sweep();
            }
            if self.phase != self.shared.phase() {
                self.phase = self.shared.phase();
                self.stop();
            }
            let eof = match self.phase {
                Phase::Running => false,
                Phase::Stopping => self.is_empty() || self.is_overdue(),
                Phase::Stopped => true,
            };
            if eof {
                return;
            }
        }
    }

    fn start_accepting(&mut self) -> Result<(), Errno> {
        for (index, listener) in self.listeners.iter().enumerate() {
            let data = epoll::EventData::new_u64(LISTENERS + index as u64);
            // One thread is enough for a new client.
            let flags = epoll::EventFlags::IN | epoll::EventFlags::EXCLUSIVE;
            epoll::add(&self.epoll, &listener.socket, data, flags)?;
        }
        self.is_accept_paused = false;
        Ok(())
    }

    fn pause_accepting(&mut self) {
        for listener in &self.listeners {
            // It may not be there, if it could not be added runnable.
            let _: Result<(), Errno> = epoll::delete(&self.epoll, &listener.socket);
        }
        self.is_accept_paused = true;
    }

    fn accept(&mut self, listener: u64) {
        let Some(listener) = usize::try_from(listener)
            .ok()
            .and_then(|index| self.listeners.get(index).cloned())
        else {
            return;
        };
        if self.phase != Phase::Running {
            return;
        }
        if self.shared.open.load(Ordering::Relaxed) >= self.shared.limits.connections_max {
            // They wait in the backlog; the sweep looks runnable.
            self.pause_accepting();
            return;
        }
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        match acceptfrom_with(&listener.socket, flags) {
            Ok((socket, address)) => {
                // A Unix socket has no such option.
                let _: Result<(), Errno> = set_tcp_nodelay(&socket, true);
                let peer = match self.shared.log {
                    Some(_) => peer_name(address),
                    None => String::new(),
                };
                self.add(Connection::new(socket, peer, &self.shared.limits, self.now));
            }
            Err(Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::NOBUFS) => {
                (self.shared.context.warn)(
                    "no more connections can be accepted: too many open files; raise the limit \
                     (LimitNOFILE) or lower --max-connections",
                );
                self.pause_accepting();
            }
            // The client is gone already, or another thread was faster.
            Err(_) => {}
        }
    }

    fn add(&mut self, connection: Connection) {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::Free);
            self.slots.len() - 1
        });
        let data = epoll::EventData::new_u64(slot as u64);
        let edges = epoll::EventFlags::OUT | epoll::EventFlags::ET | epoll::EventFlags::RDHUP;
        let flags = epoll::EventFlags::IN | edges;
        match epoll::add(&self.epoll, &connection.socket, data, flags) {
            Ok(()) => {
                self.shared.open.fetch_add(1, Ordering::Relaxed);
                self.put(slot, Slot::Open(Box::new(connection)));
            }
            Err(_) => self.free.push(slot),
        }
    }

    /// Reads what an event has told of.
    fn fill(&mut self, event: &epoll::Event) {
        let slot = usize::try_from(event.data.u64()).ok();
        if let Some(Slot::Open(connection)) = slot.and_then(|slot| self.slots.get_mut(slot)) {
            let flags = event.flags;
            connection.hung_up |= flags.intersects(HUNG_UP);
            connection.fill();
        }
    }

    /// Lets a connection go on.
    fn resume(&mut self, slot: usize, hung_up: bool) {
        match self.take(slot) {
            Slot::Open(mut connection) => {
                connection.hung_up |= hung_up;
                self.advance(slot, connection);
            }
            // It looks at its socket when it is back.
            Slot::Lent { hung_up } => {
                let hung_up = hung_up || hung_up;
                self.put(slot, Slot::Lent { hung_up });
            }
            Slot::Free => {}
        }
    }

    fn advance(&mut self, slot: usize, mut connection: Box<Connection>) {
        let mut thread_context = ThreadContext {
            context: &self.shared.context,
            limits: &self.shared.limits,
            session: &mut self.session,
            clock: &self.clock,
            log: &mut self.log,
            now: self.now,
            is_stopping: self.phase != Phase::Running,
        };
        // Whatever goes wrong with a request, the next one is answered.
        let next = catch_unwind(AssertUnwindSafe(|| connection.advance(&mut thread_context)));
        let next = next.unwrap_or_else(|_| {
            (self.shared.context.warn)("a request has caused a panic; please report it");
            NextStep::Close
        });
        self.apply(slot, connection, next);
    }

    fn apply(&mut self, slot: usize, mut connection: Box<Connection>, next: NextStep) {
        match next {
            NextStep::AwaitSocket => self.put(slot, Slot::Open(connection)),
            NextStep::Requeue => {
                // An event may have come between two turns; that makes them no more.
                if !std::mem::replace(&mut connection.queued, true) {
                    self.runnable.push(slot);
                }
                self.put(slot, Slot::Open(connection));
            }
            NextStep::Close => self.close(slot, connection),
            NextStep::AwaitWorker => {
                self.put(slot, Slot::Lent { hung_up: false });
                let thread = self.number;
                self.shared.queue.push(Job {
                    connection,
                    thread,
                    slot,
                });
            }
        }
    }

    fn close(&mut self, slot: usize, connection: Box<Connection>) {
        drop(connection);
        self.put(slot, Slot::Free);
        self.free.push(slot);
        self.shared.open.fetch_sub(1, Ordering::Relaxed);
    }

    /// Takes back what workers have done with.
    fn collect_returned(&mut self) {
        for (mut job, is_alive) in self.shared.mailbox(self.number).drain() {
            let place = self.take(job.slot);
            job.connection.hung_up |= matches!(place, Slot::Lent { hung_up: true });
            // What its socket told of meanwhile was told to nobody.
            job.connection.is_drained = false;
            match is_alive && self.phase != Phase::Stopped {
                true => self.advance(job.slot, job.connection),
                false => self.close(job.slot, job.connection),
            }
        }
    }

    /// Closes what has waited too long, and accepts runnable if there is room.
    fn sweep(&mut self) {
        for slot in 0..self.slots.len() {
            match self.take(slot) {
                Slot::Open(connection) if connection.deadline <= self.now => {
                    self.close(slot, connection);
                }
                other => self.put(slot, other),
            }
        }
        let has_room =
            self.shared.open.load(Ordering::Relaxed) < self.shared.limits.connections_max;
        if self.is_accept_paused && has_room && self.phase == Phase::Running {
            // What cannot be added now is tried runnable a moment later.
            self.pause_accepting();
            let _: Result<(), Errno> = self.start_accepting();
        }
    }

    fn stop(&mut self) {
        self.stopping.get_or_insert(self.now);
        self.pause_accepting();
        // Once all threads have let go, whoever comes next may listen at the same place.
        self.listeners.clear();
        self.shared.listeners().clear();
        for slot in 0..self.slots.len() {
            match self.take(slot) {
                Slot::Open(mut connection) => {
                    let next = connection.stop();
                    self.apply(slot, connection, next);
                }
                other => self.put(slot, other),
            }
        }
    }

    fn is_overdue(&self) -> bool {
        self.stopping
            .is_some_and(|since| self.now.duration_since(since) >= SHUTDOWN_GRACE)
    }

    fn is_empty(&self) -> bool {
        self.free.len() == self.slots.len()
    }

    fn take(&mut self, slot: usize) -> Slot {
        let slot = self.slots.get_mut(slot);
        slot.map_or(Slot::Free, |slot| std::mem::replace(slot, Slot::Free))
    }

    fn put(&mut self, slot: usize, value: Slot) {
        if let Some(slot) = self.slots.get_mut(slot) {
            *slot = value;
        }
    }
}

/// Events are known by the number of their slot; these two are none.
const WAKE: u64 = u64::MAX;
const LISTENERS: u64 = 1 << 32;

/// What an event has when nothing more will come from the client. It is told once.
const HUNG_UP: epoll::EventFlags = epoll::EventFlags::RDHUP
    .union(epoll::EventFlags::HUP)
    .union(epoll::EventFlags::ERR);

/// How many events are taken at once: enough that a busy server asks seldom, and few enough that
/// nobody waits long behind the others.
const EVENTS_MAX: usize = 256;

/// How often deadlines are looked at. They are seconds.
const SWEEP_INTERVAL: Duration = Duration::from_millis(500);

/// How long answers that are under way may take when the server is to end.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(10);
