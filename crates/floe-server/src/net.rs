//! The network: sockets, connections, and the threads that wait for them.

pub(crate) mod connection;
pub(crate) mod event_loop;
pub(crate) mod job_queue;
pub(crate) mod listen;
pub(crate) mod listeners;
pub(crate) mod login_queue;
pub(crate) mod peers;
mod receive_rate;
pub(crate) mod send;
pub(crate) mod shared;
mod transport;
mod write_buffer;
