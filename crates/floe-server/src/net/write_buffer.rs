//! Bytes on their way to a socket.

use std::os::fd::BorrowedFd;

use rustix::io::Errno;
use rustix::net::{SendFlags, send};

/// A buffer that is filled at its end and sent from its beginning.
#[derive(Debug, Default)]
pub(crate) struct WriteBuffer {
    pub(crate) bytes: Vec<u8>,
    sent: usize,
    sent_ever: u64,
}

impl WriteBuffer {
    /// How many bytes wait.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len() - self.sent
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) fn extend(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Appends what `read` puts into a buffer of at most `len` bytes; how much that was.
    pub(crate) fn read_from(
        &mut self,
        len: u64,
        read: impl FnOnce(&mut [u8]) -> Result<usize, Errno>,
    ) -> Result<u64, Errno> {
        let before = self.bytes.len();
        self.bytes
            .resize(before + usize::try_from(len).unwrap_or(0), 0);
        let result = read(self.bytes.get_mut(before..).unwrap_or_default());
        self.bytes.truncate(before + result.unwrap_or(0));
        result.map(|read| read as u64)
    }

    /// Sends what waits. True if all of it went out, false if the socket takes no more for now.
    pub(crate) fn send(&mut self, socket: BorrowedFd<'_>, flags: SendFlags) -> Result<bool, Errno> {
        while let Some(rest @ [_, ..]) = self.bytes.get(self.sent..) {
            match send(socket, rest, flags | SendFlags::NOSIGNAL) {
                Ok(sent) => {
                    self.sent += sent;
                    self.sent_ever += sent as u64;
                }
                Err(Errno::AGAIN) => return Ok(false),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error),
            }
        }
        self.bytes.clear();
        self.sent = 0;
        Ok(true)
    }

    /// How much has ever been sent.
    pub(crate) fn sent_ever(&self) -> u64 {
        self.sent_ever
    }

    /// Takes back what was appended beyond `len` waiting bytes.
    pub(crate) fn truncate(&mut self, len: usize) {
        self.bytes.truncate(self.sent + len);
    }

    /// Gives up what a client that does not read would make a thousand connections hold, once that
    /// is half of it: what is left has to be moved.
    pub(crate) fn compact(&mut self) {
        if self.sent < self.len() {
            return;
        }
        self.bytes.drain(..self.sent);
        self.sent = 0;
        self.bytes.shrink_to_fit();
    }

    /// Gives up the memory of a large answer. An idle connection does not need it.
    pub(crate) fn relax(&mut self) {
        self.bytes.shrink_to(KEPT_LEN_MAX);
    }
}

/// What an idle connection may keep. Thousands of them are normal.
const KEPT_LEN_MAX: usize = 4 * 1024;
