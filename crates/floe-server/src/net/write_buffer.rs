//! Bytes on their way to a client.

use rustix::io::Errno;

use super::transport::{Transport, WriteHint};

/// A buffer that is filled at its end and sent from its beginning.
#[derive(Debug, Default)]
pub(crate) struct WriteBuffer {
    pub(crate) bytes: Vec<u8>,
    /// How many of `bytes` are sent.
    sent: usize,
}

impl WriteBuffer {
    /// Returns how many bytes wait to be sent.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len() - self.sent
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) fn extend(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Appends the bytes that `read` puts into a buffer of `len` bytes, and returns their number.
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

    /// Sends the waiting bytes. Returns `false` if the transport takes no more for now.
    pub(crate) fn send(
        &mut self,
        transport: &mut Transport,
        hint: WriteHint,
    ) -> Result<bool, Errno> {
        while let Some(rest @ [_, ..]) = self.bytes.get(self.sent..) {
            let Some(written) = transport.write(rest, hint)? else {
                return Ok(false);
            };
            self.sent += written;
        }
        self.bytes.clear();
        self.sent = 0;
        Ok(true)
    }

    /// Keeps the first `len` waiting bytes, and drops those that were appended behind them.
    pub(crate) fn truncate(&mut self, len: usize) {
        self.bytes.truncate(self.sent + len);
    }

    /// Frees the memory of bytes that are sent, for a client that does not read. To do so, the
    /// waiting bytes have to be moved, so they must be at most half of the buffer.
    pub(crate) fn compact(&mut self) {
        if self.sent < self.len() {
            return;
        }
        self.bytes.drain(..self.sent);
        self.sent = 0;
        self.bytes.shrink_to_fit();
    }

    /// Frees the memory of a large response. Call this when the connection becomes idle.
    pub(crate) fn shrink(&mut self) {
        self.bytes.shrink_to(IDLE_CAPACITY_MAX);
    }
}

/// How many bytes an idle connection may keep allocated. A server has thousands of them.
const IDLE_CAPACITY_MAX: usize = 4 * 1024;
