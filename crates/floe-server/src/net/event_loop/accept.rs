//! Accepts connections, or leaves new clients in the backlog when there are too many.

use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;

use rustix::event::epoll;
use rustix::io::Errno;
use rustix::net::sockopt::{set_tcp_nodelay, socket_peercred};
use rustix::net::{SocketFlags, acceptfrom_with};

use super::{EventLoop, LISTENERS, Slot};
use crate::finish::{Finished, Subject, Summary};
use crate::http::refusal::Refusal;
use crate::http::request::ResponseMode;
use crate::http::response::{AfterResponse, Content, Response};
use crate::http::route::RouteSet;
use crate::http::route_kind::RouteKind;
use crate::metrics::counters::ListenerKind;
use crate::net::connection::{Client, Connection, Peer};
use crate::net::listen::{Listener, peer_address};
use crate::net::peers::CountedPeer;
use crate::net::shared::Phase;
use crate::net::transport::{Transport, WriteHint};

impl EventLoop<'_> {
    pub(super) fn start_accepting(&mut self) -> Result<(), Errno> {
        for (index, listener) in self.listeners.iter().enumerate() {
            let data = epoll::EventData::new_u64(LISTENERS + index as u64);
            // A new client wakes one thread, not all of them.
            let flags = epoll::EventFlags::IN | epoll::EventFlags::EXCLUSIVE;
            epoll::add(&self.epoll, &listener.socket, data, flags)?;
        }
        self.is_accept_paused = false;
        Ok(())
    }

    pub(super) fn pause_accepting(&mut self) {
        for listener in &self.listeners {
            // It is absent if an earlier attempt to add it has failed.
            let _: Result<(), Errno> = epoll::delete(&self.epoll, &listener.socket);
        }
        self.is_accept_paused = true;
    }

    pub(super) fn accept(&mut self, listener: u64) {
        let listener = usize::try_from(listener).ok();
        let Some(listener) = listener.and_then(|index| self.listeners.get(index).cloned()) else {
            return;
        };
        if self.phase != Phase::Running {
            return;
        }
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        match acceptfrom_with(&listener.socket, flags) {
            Ok((socket, address)) => {
                // Unix sockets do not have this option.
                let _: Result<(), Errno> = set_tcp_nodelay(&socket, true);
                self.begin(socket, peer_address(address), &listener);
            }
            Err(Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::NOBUFS) => {
                (self.shared.context.warn)(
                    "pausing to accept connections: too many open files; raise the limit \
                     (LimitNOFILE) or lower --max-connections",
                );
                self.pause_accepting();
            }
            // The client has gone already, or another thread was faster.
            Err(_) => {}
        }
    }

    /// Begins a connection, or refuses it.
    fn begin(&mut self, socket: OwnedFd, address: Option<IpAddr>, listener: &Listener) {
        let limits = self.limits.clone();
        let is_proxy = limits.trusted_proxies.contains(address);
        // The address of a monitoring program may be that of a proxy with many connections.
        let is_limited = !is_proxy && listener.routes != RouteSet::Monitoring;
        let mut client = Client::new(address, self.shared.log.is_some());
        if address.is_none() {
            client.user = socket_peercred(&socket).ok().map(|peer| peer.uid.as_raw());
        }
        let Some(mut transport) = self.transport(socket, listener) else {
            return;
        };
        let counted = if self.has_room_for(listener.routes) {
            self.count(client.address.filter(|_| is_limited))
        } else {
            Err(Refusal::ConnectionLimit)
        };
        let counted = match counted {
            Ok(counted) => counted,
            Err(refusal) => {
                self.refuse(&mut transport, &client.name, refusal);
                return self.finisher.counters.count_closed();
            }
        };
        if is_proxy && limits.proxy_protocol && listener.routes != RouteSet::Monitoring {
            transport = transport.after_proxy_header();
        }
        let peer = Peer::new(client, counted, is_proxy, listener.routes);
        self.add(Connection::new(transport, peer, &limits, self.now));
    }

    /// Decides whether the client that a proxy has named may connect.
    pub(super) fn admit(&mut self, slot: usize, mut connection: Box<Connection>) {
        match connection.transport.take_proxied_client() {
            Some(Some(address)) => {
                let client = Client::new(Some(address), self.shared.log.is_some());
                let is_proxy = self.limits.trusted_proxies.contains(client.address);
                match self.count(client.address.filter(|_| !is_proxy)) {
                    Ok(counted) => connection.set_client(client, counted, &self.limits),
                    Err(refusal) => {
                        self.refuse(&mut connection.transport, &client.name, refusal);
                        return self.close(slot, connection);
                    }
                }
            }
            Some(None) => connection.set_unknown_client(),
            None => {}
        }
        self.advance(slot, connection);
    }

    /// Counts a connection of an address. A client without an address is not counted.
    fn count(&self, address: Option<IpAddr>) -> Result<Option<CountedPeer>, Refusal> {
        let Some(address) = address else {
            return Ok(None);
        };
        let open = self.shared.open.load(Ordering::Relaxed);
        let free = self.limits.connections_max.get().saturating_sub(open);
        let counted = self.shared.peers.count(address, free);
        counted.map(Some).map_err(|connections| {
            self.warn_of_greedy_address(connections);
            Refusal::AddressLimit
        })
    }

    /// Returns the byte stream over a new socket. `None` if TLS cannot begin.
    fn transport(&mut self, socket: OwnedFd, listener: &Listener) -> Option<Transport> {
        let counters = &mut self.finisher.counters;
        match (listener.kind(), &self.shared.tls) {
            (ListenerKind::Tcp, Some(tls)) => {
                counters.count_accepted(ListenerKind::Tls);
                Some(Transport::tls(socket, tls.accept()?))
            }
            (kind, _) => {
                counters.count_accepted(kind);
                Some(Transport::plain(socket))
            }
        }
    }

    fn warn_of_full_server(&self) {
        if self.shared.full_warning.is_due(self.now) {
            let max = self.limits.connections_max.get();
            (self.shared.context.warn)(&format!(
                "refusing new clients: all {max} connections are in use; raise --max-connections"
            ));
        }
    }

    fn warn_of_greedy_address(&self, connections: usize) {
        if self.shared.peer_warning.is_due(self.now) {
            (self.shared.context.warn)(&format!(
                "refusing connections: an address has {connections} connections, which is its \
                 limit; raise --max-connections or --max-connections-per-address"
            ));
        }
    }

    /// Tells a client that the server has no connection for it now, and closes this one.
    fn refuse(&mut self, transport: &mut Transport, peer: &str, refusal: Refusal) {
        if refusal == Refusal::ConnectionLimit {
            self.warn_of_full_server();
        }
        let response = Response::refused(refusal);
        let mut bytes = Vec::new();
        let mode = ResponseMode::default();
        response.write_head(
            &mut bytes,
            &self.clock.date_header,
            mode,
            AfterResponse::Close,
        );
        if let Content::Text(text) = &response.content {
            bytes.extend_from_slice(text.as_str().as_bytes());
        }
        // A client that has no room for these bytes learns from the end of the connection. So does
        // a client that uses TLS, because a handshake would cost more than its request.
        let _: Result<Option<usize>, Errno> = transport.write(&bytes, WriteHint::Last);
        let _: Result<(), Errno> = transport.shutdown_write();
        self.finisher.finish_response(&Finished {
            peer,
            user: None,
            route: RouteKind::Other,
            request: Subject::Invalid(b""),
            summary: Summary::new(&response, mode, None),
            clock: &self.clock,
        });
        self.finisher.counters.count_sent(transport.sent);
    }

    fn add(&mut self, connection: Connection) {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::Free);
            self.slots.len() - 1
        });
        let data = epoll::EventData::new_u64(slot as u64);
        let edges = epoll::EventFlags::OUT | epoll::EventFlags::ET | epoll::EventFlags::RDHUP;
        let flags = epoll::EventFlags::IN | edges;
        match epoll::add(&self.epoll, connection.transport.socket(), data, flags) {
            Ok(()) => {
                self.shared.open.fetch_add(1, Ordering::Relaxed);
                self.put(slot, Slot::Open(Box::new(connection)));
            }
            Err(_) => {
                self.free.push(slot);
                self.finisher.counters.count_closed();
            }
        }
    }
}
