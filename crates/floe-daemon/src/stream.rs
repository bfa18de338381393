//! The bytes of a connection.

use std::fs::File;
use std::io::{self, Read as _, Write};
use std::os::fd::OwnedFd;

use floe_wire::compressor;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::error::HostError;

/// Passes the chunks of one NAR to its argument.
pub type ReadNar<'a> =
    dyn FnMut(&mut dyn FnMut(&[u8]) -> Result<(), HostError>) -> Result<(), HostError> + 'a;

/// The two directions of a connection: the standard streams of a program, or a socket twice.
pub(crate) struct Stream {
    input: File,
    /// Compresses its bytes for another floe that has asked for it.
    output: Box<dyn Write + Send>,
    /// The bytes that are not sent yet.
    pub(crate) unsent: Vec<u8>,
}

impl Stream {
    pub(crate) fn new(input: OwnedFd, output: OwnedFd) -> Stream {
        Stream {
            input: input.into(),
            output: Box::new(File::from(output)),
            unsent: Vec::new(),
        }
    }

    /// Whether a read returns at once.
    pub(crate) fn has_input(&self) -> bool {
        let mut fds = [PollFd::new(&self.input, PollFlags::IN)];
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        poll(&mut fds, Some(&now)).is_ok_and(|count| count > 0)
    }

    /// Reads some bytes. Returns 0 at the end.
    pub(crate) fn read(&mut self, space: &mut [u8]) -> Result<usize, HostError> {
        loop {
            match self.input.read(space) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // A client that is killed ends the connection as well.
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(0),
                read => return read.map_err(connection("read from")),
            }
        }
    }

    /// Sends the bytes that are not sent yet.
    pub(crate) fn flush(&mut self) -> Result<(), HostError> {
        self.write_unsent()?;
        self.output.flush().map_err(connection("write to"))
    }

    /// Compresses all bytes that are sent from now on. After an error, nothing can be sent.
    pub(crate) fn compress(&mut self) -> Result<(), HostError> {
        self.flush()?;
        let output = std::mem::replace(&mut self.output, Box::new(io::sink()));
        let compressor = compressor(output).map_err(connection("compress the bytes of"))?;
        self.output = Box::new(compressor);
        Ok(())
    }

    fn write_unsent(&mut self) -> Result<(), HostError> {
        let sent = self.output.write_all(&self.unsent);
        self.unsent.clear();
        sent.map_err(connection("write to"))
    }

    /// Sends the bytes that are not sent yet if they are many. A client that does not read its
    /// replies then blocks its own thread, and does not fill the memory.
    pub(crate) fn flush_if_large(&mut self) -> Result<(), HostError> {
        if self.unsent.len() > SMALL {
            self.flush()?;
        }
        Ok(())
    }

    /// Sends bytes of a NAR, after those that are not sent yet.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> Result<(), HostError> {
        if self.unsent.len() + bytes.len() <= SMALL {
            self.unsent.extend_from_slice(bytes);
            return Ok(());
        }
        self.write_unsent()?;
        self.output.write_all(bytes).map_err(connection("write to"))
    }
}

impl std::fmt::Debug for Stream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes to send", self.unsent.len())
    }
}

pub(crate) fn connection(action: &'static str) -> impl FnOnce(io::Error) -> HostError {
    move |source| HostError::Connection { action, source }
}

/// Fewer bytes than this are collected before they are sent.
const SMALL: usize = 64 * 1024;
