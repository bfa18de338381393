//! The bytes that go to the daemon.

use std::io::{self, Write};

use floe_wire::compressor;

/// The bytes that go to the daemon.
pub(super) struct Writer {
    input: Option<Box<dyn Write + Send>>,
    pub(super) buffer: Vec<u8>,
}

impl Writer {
    /// Makes a writer. The bytes in `buffer` are the first ones.
    pub(super) fn new(input: Box<dyn Write + Send>, buffer: Vec<u8>) -> Writer {
        Writer {
            input: Some(input),
            buffer,
        }
    }

    /// Compresses all bytes that follow. After an error, the input of the daemon has ended.
    pub(super) fn compress(&mut self) -> io::Result<()> {
        self.flush()?;
        let input = self.input.take().ok_or(io::ErrorKind::BrokenPipe)?;
        self.input = Some(Box::new(compressor(input)?));
        Ok(())
    }

    /// Ends the input of the daemon.
    pub(super) fn close(&mut self) {
        self.input = None;
    }

    /// Sends everything, so that the daemon can read it now.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        self.write_buffer()?;
        self.input()?.flush()
    }

    pub(super) fn write_buffer(&mut self) -> io::Result<()> {
        let buffer = std::mem::take(&mut self.buffer);
        let written = self.write(&buffer);
        self.buffer = buffer;
        self.buffer.clear();
        written
    }

    pub(super) fn write(&mut self, data: &[u8]) -> io::Result<()> {
        self.input()?.write_all(data)
    }

    fn input(&mut self) -> io::Result<&mut Box<dyn Write + Send>> {
        self.input
            .as_mut()
            .ok_or_else(|| io::ErrorKind::BrokenPipe.into())
    }
}

impl std::fmt::Debug for Writer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes to send", self.buffer.len())
    }
}

/// The bytes that are collected before a write: many requests, or the frames of small NARs.
pub(super) const BUFFER_LEN: usize = 64 * 1024;
