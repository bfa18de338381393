//! Reads a body without hashing it.

use std::io::{self, BufRead, Read};

use bytes::Bytes;

use crate::error::Error;
use crate::nar_stream::{Body, ChunkSource, NextChunk};

impl Body {
    /// Reads the whole body, but no more than `len_max` bytes of it. Errors name `url`.
    ///
    /// Errors: those of the body.
    pub fn read_to_end(self, url: &str, len_max: usize) -> Result<Vec<u8>, Error> {
        UnhashedBody::new(self, url, u64::MAX).read_up_to(len_max)
    }

    /// Waits for the first bytes, and returns a reader of the body that fails after `len_max`
    /// bytes. Errors name `url`; those of the reader hold an [`Error`].
    ///
    /// Errors: those of the body before its first bytes.
    pub fn into_reader(self, url: &str, len_max: u64) -> Result<Box<dyn Read>, Error> {
        let mut reader = UnhashedBody::new(self, url, len_max);
        reader.next_bytes()?;
        Ok(Box::new(BodyText(reader)))
    }

    /// Reads the first `len` bytes, and returns them and the rest of the body. Errors name `url`.
    ///
    /// Errors: those of the body before these bytes. A shorter body is none.
    pub fn split_at(self, url: &str, len: usize) -> Result<(Vec<u8>, Body), Error> {
        let mut reader = UnhashedBody::new(self, url, u64::MAX);
        let first = reader.read_up_to(len)?;
        let UnhashedBody { body, current, .. } = reader;
        let rest = RestOfBody {
            first: (!current.is_empty()).then_some(current),
            body,
        };
        Ok((first, Body::Chunks(Box::new(rest))))
    }
}

/// A body for a caller who reads it as a file.
struct BodyText(UnhashedBody);

impl Read for BodyText {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let chunk = self.0.next_bytes().map_err(io::Error::other)?;
        let len = chunk.len().min(buffer.len());
        buffer[..len].copy_from_slice(&chunk[..len]);
        self.0.consume(len);
        Ok(len)
    }
}

/// The rest of a body, whose next bytes were read already.
#[derive(Debug)]
struct RestOfBody {
    first: Option<Bytes>,
    body: Body,
}

impl ChunkSource for RestOfBody {
    fn try_next(&mut self) -> Option<NextChunk> {
        if let Some(first) = self.first.take() {
            return Some(Ok(Some(first)));
        }
        match &mut self.body {
            Body::Chunks(chunks) => chunks.try_next(),
            Body::File { .. } => Some(self.body.next_chunk()),
        }
    }

    fn wait_for_next(&mut self) -> NextChunk {
        match self.first.take() {
            Some(first) => Ok(Some(first)),
            None => self.body.next_chunk(),
        }
    }
}

impl Body {
    /// Waits for the next chunk.
    fn next_chunk(&mut self) -> NextChunk {
        match self {
            Body::Chunks(chunks) => chunks.wait_for_next(),
            Body::File { file, path } => {
                let mut chunk = Vec::with_capacity(BUFFER_LEN);
                let read = file.take(BUFFER_LEN as u64).read_to_end(&mut chunk);
                let chunk = read.map(|len| (len > 0).then(|| chunk.into()));
                chunk.map_err(|source| Error::UnreadableFile {
                    action: "read",
                    path: path.clone(),
                    source,
                })
            }
        }
    }
}

/// Reads a body, and keeps the error that ended it.
pub(crate) struct UnhashedBody {
    body: Body,
    /// The address of the body, for errors.
    url: String,
    current: Bytes,
    failure: Option<Error>,
    /// How many bytes the body may still have.
    len_left: u64,
}

impl UnhashedBody {
    /// Makes a reader that fails after `len_max` bytes.
    pub(crate) fn new(mut body: Body, url: &str, len_max: u64) -> UnhashedBody {
        if let Body::Chunks(chunks) = &mut body {
            chunks.begin();
        }
        UnhashedBody {
            body,
            url: url.to_owned(),
            current: Bytes::new(),
            failure: None,
            len_left: len_max,
        }
    }

    /// Returns the next bytes; none at the end. The caller consumes them.
    ///
    /// Errors: those of the body, and for a body that is too long.
    pub(crate) fn next_bytes(&mut self) -> Result<&[u8], Error> {
        if self.current.is_empty() {
            self.current = self.body.next_chunk()?.unwrap_or_default();
            let left = self.len_left.checked_sub(self.current.len() as u64);
            let too_long = || Error::fetch(&self.url, "it is longer than it may be", false);
            self.len_left = left.ok_or_else(too_long)?;
        }
        Ok(&self.current)
    }

    /// Returns the next `len` bytes, or all that are left.
    fn read_up_to(&mut self, len: usize) -> Result<Vec<u8>, Error> {
        let mut contents = Vec::new();
        while contents.len() < len {
            let chunk = self.next_bytes()?;
            let chunk_len = chunk.len().min(len - contents.len());
            if chunk_len == 0 {
                break;
            }
            contents.extend_from_slice(&chunk[..chunk_len]);
            self.consume(chunk_len);
        }
        Ok(contents)
    }

    /// Returns the error that ended the body, if there is one.
    pub(crate) fn take_failure(&mut self) -> Option<Error> {
        self.failure.take()
    }
}

impl Read for UnhashedBody {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let len = self.fill_buf()?.read(buffer)?;
        self.consume(len);
        Ok(len)
    }
}

impl BufRead for UnhashedBody {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if let Err(error) = self.next_bytes() {
            let message = error.to_string();
            self.failure = Some(error);
            return Err(io::Error::other(message));
        }
        Ok(&self.current)
    }

    fn consume(&mut self, len: usize) {
        let _: Bytes = self.current.split_to(len);
    }
}

/// How much of a file is read at once, in bytes.
const BUFFER_LEN: usize = 64 * 1024;
