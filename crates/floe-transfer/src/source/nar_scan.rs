//! Reads a NAR without writing it.

use std::io::Read as _;
use std::ops::ControlFlow;

use floe_format::NarInfo;
use floe_format::nar::read::{NarError, NarEvent, NarReader};

use super::{NarRequest, Source};
use crate::codec::{XzChecks, decoder};
use crate::error::Error;
use crate::nar_stream::{Body, NarStream};
use crate::unhashed_body::UnhashedBody;

/// Receives the events of a NAR, and says when it has seen enough.
pub type VisitNar<'a> = dyn FnMut(NarEvent<'_>) -> ControlFlow<()> + 'a;

impl dyn Source + '_ {
    /// Reads the NAR that a narinfo of this source describes, until `visit` breaks. Does not verify
    /// it: what `visit` sees is only a hint.
    ///
    /// Errors: those of the source; [`Error::InvalidNar`]; [`Error::Decode`] for a body that cannot
    /// be decompressed.
    pub fn scan_nar(&self, narinfo: &NarInfo, visit: &mut VisitNar<'_>) -> Result<(), Error> {
        let invalid = |error: NarError| Error::InvalidNar {
            path: narinfo.info.path.clone(),
            url: self.nar_url(narinfo),
            reason: error.to_string(),
        };
        let mut reader = NarReader::new();
        let mut is_done = false;
        self.read_nar(narinfo, &mut |mut chunk| {
            while let Some(event) = reader.next(&mut chunk).map_err(invalid)? {
                if visit(event).is_break() {
                    is_done = true;
                    return Ok(ControlFlow::Break(()));
                }
            }
            Ok(ControlFlow::Continue(()))
        })?;
        if is_done {
            return Ok(());
        }
        reader.finish().map_err(invalid)
    }

    /// Reads the bytes of a NAR, decompressed, until `receive` breaks. Does not verify them.
    ///
    /// Errors: as [`scan_nar`](#method.scan_nar), and those of `receive`.
    pub(super) fn read_nar(
        &self,
        narinfo: &NarInfo,
        receive: &mut ReceiveNar<'_>,
    ) -> Result<(), Error> {
        let mut reading = Reading {
            narinfo,
            url: self.nar_url(narinfo),
            receive,
            is_done: false,
            len: 0,
        };
        match self.open_nar(narinfo, NarRequest::streamed())? {
            NarStream::Dump(dump) => {
                let dumped = dump(&mut |chunk| match reading.read(chunk) {
                    Ok(()) if reading.is_done => Err(Error::NotNeeded),
                    read => read,
                });
                match dumped {
                    Err(Error::NotNeeded) if reading.is_done => Ok(()),
                    dumped => dumped,
                }
            }
            NarStream::Body(body) => reading.decode(body),
        }
    }
}

/// Receives the bytes of a NAR, and says when it has enough.
type ReceiveNar<'a> = dyn FnMut(&[u8]) -> Result<ControlFlow<()>, Error> + 'a;

struct Reading<'a, 'r> {
    narinfo: &'a NarInfo,
    url: String,
    receive: &'a mut ReceiveNar<'r>,
    is_done: bool,
    /// The bytes of the NAR that were read.
    len: u64,
}

impl Reading<'_, '_> {
    fn decode(&mut self, body: Body) -> Result<(), Error> {
        let len_max = self.narinfo.info.nar_size.saturating_mul(2);
        let mut reader = UnhashedBody::new(body, &self.url, len_max.saturating_add(SLACK_LEN));
        let scanned = self.read_all(&mut reader);
        match reader.take_failure() {
            Some(failure) => Err(failure),
            None => scanned,
        }
    }

    fn read_all(&mut self, reader: &mut UnhashedBody) -> Result<(), Error> {
        let NarInfo {
            compression, info, ..
        } = self.narinfo;
        let made = decoder(*compression, reader, info.nar_size, XzChecks::Compare);
        let mut decoder = match made {
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

    fn read(&mut self, chunk: &[u8]) -> Result<(), Error> {
        self.len += chunk.len() as u64;
        if self.len > self.narinfo.info.nar_size {
            return Err(Error::InvalidNar {
                path: self.narinfo.info.path.clone(),
                url: self.url.clone(),
                reason: "its NAR is larger than its narinfo says".into(),
            });
        }
        self.is_done = (self.receive)(chunk)?.is_break();
        Ok(())
    }

    fn failed(&self, reason: String) -> Error {
        Error::Decode {
            path: self.narinfo.info.path.clone(),
            url: self.url.clone(),
            compression: self.narinfo.compression,
            reason,
        }
    }
}

/// How many bytes a compressed NAR may have beyond twice its size.
const SLACK_LEN: u64 = 64 * 1024;

/// How much is read at once, in bytes.
const BUFFER_LEN: usize = 64 * 1024;
