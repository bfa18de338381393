//! A network thread: accepts connections, reads requests, responds from memory, and lends to
//! workers the connections whose responses need files. It waits only for the network, but it
//! queries the database and examines the root of a path.
//!
//! # Fairness
//!
//! One turn of the loop handles a batch of events. All sockets of the batch are read before any
//! request is processed, so one check of the database is newer than every request of the batch.
//! Then each connection is resumed once. A connection that could continue without waiting, such as
//! a client with a long pipeline, stops after a bounded number of reads, and is queued for the
//! next turn. While connections are queued, the loop only polls for events and does not sleep. So
//! no client can delay the others by more than its share of one turn.
//!
//! # Connections lent to workers
//!
//! The slot of a lent connection remembers whether the client has hung up, because an
//! edge-triggered event is reported only once. When the worker returns the connection, it is read
//! again, whatever was reported meanwhile.

mod accept;

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use floe_store::LiveStore;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;

use super::connection::state::{Expiry, NextStep, Shortage, SocketEvent, State};
use super::connection::{Connection, ThreadContext};
use super::job_queue::Job;
use super::listen::Listener;
use super::shared::{Phase, Returned, ServerShared};
use crate::caches::narinfo_cache::StoreSession;
use crate::clock::Clock;
use crate::config::Limits;
use crate::error::ServeError;
use crate::finish::Finisher;
use crate::http::route::RouteSet;

/// The connections of one network thread.
pub(crate) struct EventLoop<'s> {
    shared: &'s ServerShared,
    /// The number of this thread.
    number: usize,
    epoll: OwnedFd,
    listeners: Vec<Arc<Listener>>,
    slots: Vec<Slot>,
    free: Vec<usize>,
    /// The slots of connections that continue in the next turn, without an event.
    runnable: Vec<usize>,
    session: StoreSession,
    clock: Clock,
    finisher: Finisher,
    /// The limits of this turn.
    limits: Arc<Limits>,
    now: Instant,
    phase: Phase,
    stopping_since: Option<Instant>,
    /// Whether new clients wait in the backlog, because there are too many descriptors.
    is_accept_paused: bool,
}

enum Slot {
    Free,
    Open(Box<Connection>),
    /// A worker has the connection. The event came meanwhile, or `Ready` stands for none.
    Lent(SocketEvent),
}

impl<'s> EventLoop<'s> {
    pub(crate) fn new(
        shared: &'s ServerShared,
        number: usize,
        store: LiveStore,
    ) -> Result<EventLoop<'s>, ServeError> {
        let failed = |source: Errno| ServeError::System {
            action: "wait for the network",
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
            listeners: shared.listeners.lock().clone(),
            slots: Vec::new(),
            free: Vec::new(),
            runnable: Vec::new(),
            session: StoreSession::new(store),
            clock: Clock::new(),
            finisher: Finisher::new(shared.context.metrics.register(), shared.log.clone()),
            limits: shared.limits(),
            now: Instant::now(),
            phase: Phase::Running,
            stopping_since: None,
            is_accept_paused: true,
        };
        this.start_accepting().map_err(failed)?;
        Ok(this)
    }

    /// Serves until the server stops and all its responses are sent.
    pub(crate) fn run(mut self) {
        let mut events = Vec::with_capacity(EVENTS_MAX);
        let mut swept = Instant::now();
        loop {
            self.wait(&mut events);
            self.turn(&events);
            if self.now.duration_since(swept) >= SWEEP_INTERVAL {
                swept = self.now;
                self.sweep();
            }
            if self.phase != self.shared.phase() {
                self.phase = self.shared.phase();
                self.stop();
            }
            self.finisher.end_batch(self.now);
            let is_finished = match self.phase {
                Phase::Running => false,
                Phase::Stopping => self.is_empty() || self.is_overdue(),
                Phase::Stopped => true,
            };
            if is_finished {
                return;
            }
        }
    }

    fn wait(&mut self, events: &mut Vec<epoll::Event>) {
        let timeout = if self.runnable.is_empty() {
            SWEEP_INTERVAL
        } else {
            Duration::ZERO
        };
        let timeout = Timespec::try_from(timeout).unwrap_or_default();
        events.clear();
        let spare = rustix::buffer::spare_capacity(events);
        // If a signal interrupts the wait, there are no events.
        let _: Result<usize, Errno> = epoll::wait(&self.epoll, spare, Some(&timeout));
        self.now = Instant::now();
        self.clock.tick(self.now);
        self.session.begin_batch();
        self.limits = self.shared.limits();
        self.shared.mailbox(self.number).beat(self.now);
    }

    fn turn(&mut self, events: &[epoll::Event]) {
        for event in events {
            let slot = usize::try_from(event.data.u64()).ok();
            let Some(slot) = slot else { continue };
            if let Some(Slot::Open(connection)) = self.slots.get_mut(slot) {
                let event = socket_event(event.flags);
                let context = &self.shared.context;
                let read = context.catch_panic(|| connection.prefetch_input(event));
                if read.is_none() {
                    self.close_broken(slot);
                }
            }
        }
        for slot in std::mem::take(&mut self.runnable) {
            if let Some(Slot::Open(connection)) = self.slots.get_mut(slot) {
                connection.is_queued = false;
            }
            self.resume(slot, SocketEvent::Ready);
        }
        for event in events {
            match event.data.u64() {
                WAKE => self.collect_returned(),
                data if data >= LISTENERS => self.accept(data - LISTENERS),
                slot => {
                    let slot = usize::try_from(slot).unwrap_or(usize::MAX);
                    self.resume(slot, socket_event(event.flags));
                }
            }
        }
    }

    /// Closes a connection whose request has caused a panic.
    fn close_broken(&mut self, slot: usize) {
        if let Slot::Open(connection) = self.take(slot) {
            self.close(slot, connection);
        }
    }

    /// Lets a connection continue. Its event may be [`SocketEvent::Ready`] without a need to read.
    fn resume(&mut self, slot: usize, event: SocketEvent) {
        match self.take(slot) {
            Slot::Open(mut connection) => {
                if event == SocketEvent::HungUp {
                    connection.note_event(event);
                }
                self.advance(slot, connection);
            }
            Slot::Lent(earlier) => self.put(slot, Slot::Lent(earlier.max(event))),
            Slot::Free => {}
        }
    }

    fn advance(&mut self, slot: usize, mut connection: Box<Connection>) {
        let mut thread = ThreadContext {
            context: &self.shared.context,
            limits: &self.limits,
            logins: self.shared.login_queue.as_ref().map(|it| &**it.logins()),
            session: &mut self.session,
            clock: &self.clock,
            finisher: &mut self.finisher,
            now: self.now,
            is_stopping: self.phase != Phase::Running,
        };
        let next = self
            .shared
            .context
            .catch_panic(|| connection.advance(&mut thread));
        self.apply(slot, connection, next.unwrap_or(NextStep::Close));
    }

    fn apply(&mut self, slot: usize, mut connection: Box<Connection>, next: NextStep) {
        match next {
            NextStep::AwaitSocket => self.put(slot, Slot::Open(connection)),
            NextStep::Requeue => {
                // It is queued already if an event has resumed it before its turn.
                if !std::mem::replace(&mut connection.is_queued, true) {
                    self.runnable.push(slot);
                }
                self.put(slot, Slot::Open(connection));
            }
            NextStep::Close => self.close(slot, connection),
            NextStep::AwaitWorker => {
                self.put(slot, Slot::Lent(SocketEvent::Ready));
                self.finisher.counters.count_queued_job();
                let queue = match connection.state {
                    State::Receiving(_) => &self.shared.upload_queue,
                    _ => &self.shared.queue,
                };
                queue.push(Job {
                    connection,
                    thread: self.number,
                    slot,
                });
            }
            NextStep::AwaitLogin => self.await_login(slot, connection),
            NextStep::Admit => self.admit(slot, connection),
        }
    }

    /// Lends a connection to the thread that verifies passwords, or lets it continue with a
    /// refusal.
    fn await_login(&mut self, slot: usize, connection: Box<Connection>) {
        self.put(slot, Slot::Lent(SocketEvent::Ready));
        let thread = self.number;
        let job = Job {
            connection,
            thread,
            slot,
        };
        let pushed = match &self.shared.login_queue {
            Some(queue) => queue.push(job, self.now),
            None => Err(job),
        };
        if let Err(job) = pushed {
            self.apply(slot, job.connection, NextStep::Requeue);
        }
    }

    fn close(&mut self, slot: usize, mut connection: Box<Connection>) {
        let counters = &mut self.finisher.counters;
        counters.count_sent(connection.take_uncounted_sent());
        drop(connection);
        self.release_slot(slot);
    }

    fn release_slot(&mut self, slot: usize) {
        self.finisher.counters.count_closed();
        self.put(slot, Slot::Free);
        self.free.push(slot);
        self.shared.open.fetch_sub(1, Ordering::Relaxed);
    }

    fn collect_returned(&mut self) {
        for Returned { slot, connection } in self.shared.mailbox(self.number).drain() {
            match (connection, self.take(slot)) {
                (Some(mut connection), Slot::Lent(event)) if self.phase != Phase::Stopped => {
                    // Events that came meanwhile are lost, except for a hang-up.
                    connection.note_event(event);
                    self.advance(slot, connection);
                }
                _ => self.release_slot(slot),
            }
        }
    }

    /// Closes connections that have waited too long, and accepts again if there is room. If all
    /// connections are in use, it also closes idle ones and those of slow clients. If all decoders
    /// for build logs are in use, it closes the connections of slow clients that hold one. Notes
    /// the traffic.
    fn sweep(&mut self) {
        self.shared.context.metrics.note_traffic(self.now);
        let limits = self.limits.clone();
        let shortage = Shortage {
            connections: !self.has_room(),
            log_decoders: self.shared.context.log_decoders.is_exhausted(),
        };
        let (mut closed_for_room, mut closed_for_decoder) = (0usize, 0usize);
        for slot in 0..self.slots.len() {
            match self.take(slot) {
                Slot::Open(mut connection) => {
                    match connection.expiry(self.now, &limits, shortage) {
                        Expiry::None => {
                            let counters = &mut self.finisher.counters;
                            counters.count_sent(connection.take_uncounted_sent());
                            self.put(slot, Slot::Open(connection));
                        }
                        expiry => {
                            closed_for_room += usize::from(expiry == Expiry::ForRoom);
                            closed_for_decoder += usize::from(expiry == Expiry::ForLogDecoder);
                            if expiry == Expiry::Timeout {
                                connection.finish_late_head(&mut self.finisher, &self.clock);
                            }
                            self.close(slot, connection);
                        }
                    }
                }
                other => self.put(slot, other),
            }
        }
        self.warn_of_closed(closed_for_room, closed_for_decoder);
        let reopenings = self.session.store.reopenings();
        self.finisher.counters.note_database_reopenings(reopenings);
        if self.is_accept_paused && self.phase == Phase::Running {
            // After a failure only some of the listeners are in the set. The next sweep tries
            // again.
            self.pause_accepting();
            let _: Result<(), Errno> = self.start_accepting();
        }
    }

    fn warn_of_closed(&self, for_room: usize, for_decoder: usize) {
        if for_room > 0 && self.shared.room_warning.is_due(self.now) {
            (self.shared.context.warn)(&format!(
                "closing {for_room} idle or slow connections: all {} connections are in use; \
                 raise --max-connections",
                self.limits.connections_max.get()
            ));
        }
        if for_decoder > 0 && self.shared.log_decoder_warning.is_due(self.now) {
            (self.shared.context.warn)(&format!(
                "closing {for_decoder} slow connections: all decoders for compressed logs are in use"
            ));
        }
    }

    fn has_room(&self) -> bool {
        self.has_room_for(RouteSet::All)
    }

    /// Whether there is room for a connection of a listener with these routes.
    fn has_room_for(&self, routes: RouteSet) -> bool {
        let reserve = match routes {
            RouteSet::All | RouteSet::WithoutMetrics | RouteSet::Redirect => 0,
            RouteSet::Monitoring => MONITORING_RESERVE,
        };
        let max = self.limits.connections_max.get() + reserve;
        self.shared.open.load(Ordering::Relaxed) < max
    }

    fn stop(&mut self) {
        self.stopping_since.get_or_insert(self.now);
        self.pause_accepting();
        // When all threads have done this, another server may listen on the same addresses.
        self.listeners.clear();
        self.shared.listeners.lock().clear();
        for slot in 0..self.slots.len() {
            match self.take(slot) {
                Slot::Open(mut connection) => {
                    let next = connection.stop(self.now);
                    self.apply(slot, connection, next);
                }
                other => self.put(slot, other),
            }
        }
    }

    fn is_overdue(&self) -> bool {
        self.stopping_since
            .is_some_and(|since| self.now.duration_since(since) >= self.limits.stop_timeout)
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

fn socket_event(flags: epoll::EventFlags) -> SocketEvent {
    let hang_up = epoll::EventFlags::RDHUP | epoll::EventFlags::HUP | epoll::EventFlags::ERR;
    if flags.intersects(hang_up) {
        SocketEvent::HungUp
    } else {
        SocketEvent::Ready
    }
}

/// The data of an event is the number of a slot, except for these two.
const WAKE: u64 = u64::MAX;
const LISTENERS: u64 = 1 << 32;

/// How many connections of the listeners for monitoring are open besides the most that a server may
/// have. A server whose connections are all in use is one that the operator has to watch.
const MONITORING_RESERVE: usize = 16;

/// How many events one turn handles: enough to make few system calls on a busy server, but so few
/// that no client waits long for its turn.
const EVENTS_MAX: usize = 256;

/// How often deadlines are checked.
const SWEEP_INTERVAL: Duration = Duration::from_millis(500);
