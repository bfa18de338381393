//! The bytes that go to the daemon.

use std::io::{self, Write};

use floe_wire::Compressor;

/// The bytes that go to the daemon.
pub(super) struct Writer {
    input: Option<Box<dyn Write + Send>>,
    pub(super) buffer: Vec<u8>,
    compressor: Option<Compressor>,
    /// Compressed bytes that are not sent.
    compressed: Vec<u8>,
}

impl Writer {
    /// Makes a writer. The bytes in `buffer` are the first ones.
    pub(super) fn new(input: Box<dyn Write + Send>, buffer: Vec<u8>) -> Writer {
        Writer {
            input: Some(input),
            buffer,
            compressor: None,
            compressed: Vec::new(),
        }
    }

    /// Compresses all bytes that follow.
    pub(super) fn compress(&mut self, compressor: Compressor) {
        self.compressor = Some(compressor);
    }

    /// Ends the input of the daemon.
    pub(super) fn close(&mut self) {
        self.input = None;
    }

    /// Sends everything, so that the daemon can read it now.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        self.write_buffer()?;
        match &mut self.compressor {
            Some(compressor) => compressor.flush(&mut self.compressed)?,
            None => return Ok(()),
        }
        self.write_compressed()
    }

    pub(super) fn write_buffer(&mut self) -> io::Result<()> {
        let buffer = std::mem::take(&mut self.buffer);
        let written = self.write(&buffer);
        self.buffer = buffer;
        self.buffer.clear();
        written
    }

    pub(super) fn write(&mut self, data: &[u8]) -> io::Result<()> {
        let Some(compressor) = &mut self.compressor else {
            return write_to(&mut self.input, data);
        };
        compressor.write(data, &mut self.compressed)?;
        if self.compressed.len() >= BUFFER_LEN {
            self.write_compressed()?;
        }
        Ok(())
    }

    fn write_compressed(&mut self) -> io::Result<()> {
        let written = write_to(&mut self.input, &self.compressed);
        self.compressed.clear();
        written
    }
}

fn write_to(input: &mut Option<Box<dyn Write + Send>>, data: &[u8]) -> io::Result<()> {
    match input {
        Some(input) => {
            input.write_all(data)?;
            input.flush()
        }
        None => Err(io::ErrorKind::BrokenPipe.into()),
    }
}

impl std::fmt::Debug for Writer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes to send", self.buffer.len())
    }
}

/// The bytes that are collected before a write: many requests, or the frames of small NARs.
pub(super) const BUFFER_LEN: usize = 64 * 1024;
