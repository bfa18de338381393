//! Reads a NAR without writing it.

use std::io::{self, BufRead, Read};
use std::ops::ControlFlow;

use bytes::Bytes;
use floe_format::NarInfo;
use floe_format::nar::read::{NarEvent, NarReader};

use super::{NarRequest, Source};
use crate::codec::decoder;
use crate::error::Error;
use crate::nar_stream::{Body, NarStream};

/// Receives the events of a NAR, and says when it has seen enough.
pub type VisitNar<'a> = dyn FnMut(NarEvent<'_>) -> ControlFlow<()> + 'a;

impl dyn Source + '_ {
    /// Reads the NAR that a narinfo of this source describes, until `visit` breaks. Does not verify
    /// it: what `visit` sees is only a hint.
    ///
    /// Errors: those of the source; [`Error::Fetch`] and [`Error::Decode`] for another format.
    pub fn scan_nar(&self, narinfo: &NarInfo, visit: &mut VisitNar<'_>) -> Result<(), Error> {
        let mut scan = Scan {
            narinfo,
            url: self.nar_url(narinfo),
            reader: NarReader::new(),
            visit,
            is_done: false,
            len: 0,
        };
        match self.open_nar(narinfo, NarRequest::streamed())? {
            NarStream::Dump(dump) => {
                let dumped = dump(&mut |chunk| match scan.read(chunk) {
                    Ok(()) if scan.is_done => Err(Error::NotNeeded),
                    read => read,
                });
                match dumped {
                    Err(Error::NotNeeded) if scan.is_done => Ok(()),
                    dumped => dumped,
                }
            }
            NarStream::Body(body) => scan.decode(body),
        }
    }
}

struct Scan<'a, 'v> {
    narinfo: &'a NarInfo,
    url: String,
    reader: NarReader,
    visit: &'a mut VisitNar<'v>,
    is_done: bool,
    /// The bytes of the NAR that were read.
    len: u64,
}

impl Scan<'_, '_> {
    fn decode(&mut self, mut body: Body) -> Result<(), Error> {
        if let Body::Chunks(chunks) = &mut body {
            chunks.begin();
        }
        let mut reader = BodyReader {
            body,
            current: Bytes::new(),
            failure: None,
            len_left: self.narinfo.info.nar_size.saturating_mul(2) + SLACK_LEN,
        };
        let scanned = self.read_all(&mut reader);
        match reader.failure {
            Some(failure) => Err(failure),
            None => scanned,
        }
    }

    fn read_all(&mut self, reader: &mut BodyReader) -> Result<(), Error> {
        let NarInfo {
            compression, info, ..
        } = self.narinfo;
        let mut decoder = match decoder(*compression, reader, info.nar_size) {
            Ok(Some(decoder)) => decoder,
            Ok(None) => return Err(self.failed("floe has no decoder for it".into())),
            Err(error) => return Err(self.failed(error.to_string())),
        };
        let mut buffer = vec![0; BUFFER_LEN];
        while !self.is_done {
            match decoder.read(&mut buffer) {
                Ok(0) => break,
                Ok(len) => self.read(&buffer[..len])?,
                Err(error) => return Err(self.failed(error.to_string())),
            }
        }
        Ok(())
    }

    fn read(&mut self, mut chunk: &[u8]) -> Result<(), Error> {
        self.len += chunk.len() as u64;
        if self.len > self.narinfo.info.nar_size {
            let reason = "its NAR is larger than its narinfo says";
            return Err(Error::fetch(&self.url, reason, false));
        }
        while !self.is_done {
            let event = self.reader.next(&mut chunk);
            let event = event.map_err(|error| {
                Error::fetch(&self.url, format!("it has an invalid NAR: {error}"), false)
            })?;
            let Some(event) = event else { return Ok(()) };
            self.is_done = (self.visit)(event).is_break();
        }
        Ok(())
    }
}

impl Scan<'_, '_> {
    fn failed(&self, reason: String) -> Error {
        Error::Decode {
            path: self.narinfo.info.path.clone(),
            url: self.url.clone(),
            compression: self.narinfo.compression,
            reason,
        }
    }
}

/// Reads a body, and keeps the error that ended it.
struct BodyReader {
    body: Body,
    current: Bytes,
    failure: Option<Error>,
    /// How many bytes the body may still have.
    len_left: u64,
}

impl Read for BodyReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let len = self.fill_buf()?.read(buffer)?;
        self.consume(len);
        Ok(len)
    }
}

impl BufRead for BodyReader {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.current.is_empty() {
            let next = match &mut self.body {
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
            };
            match next {
                Ok(chunk) => {
                    self.current = chunk.unwrap_or_default();
                    let len = self.current.len() as u64;
                    let left = self.len_left.checked_sub(len);
                    self.len_left = left.ok_or_else(|| io::Error::other("it is too long"))?;
                }
                Err(error) => {
                    let message = error.to_string();
                    self.failure = Some(error);
                    return Err(io::Error::other(message));
                }
            }
        }
        Ok(&self.current)
    }

    fn consume(&mut self, len: usize) {
        let _: Bytes = self.current.split_to(len);
    }
}

/// How many bytes a compressed NAR may have beyond twice its size.
const SLACK_LEN: u64 = 64 * 1024;

/// How much is read at once, in bytes.
const BUFFER_LEN: usize = 64 * 1024;
