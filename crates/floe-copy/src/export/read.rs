//! Reads an export once, and remembers where its NARs are.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read, Seek as _, Write as _};
use std::path::Path;

use floe_format::nar::read::NarReader;
use floe_format::{Hash, PathInfo, StoreDir};
use floe_hash::Sha256;
use floe_store::{UnfinishedFile, WrittenFile};
use floe_transfer::{CANCEL_POLL, Cancel, Error};
use floe_wire::serve::export::{read_entry, read_info};
use floe_wire::{Input, WireError};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::error::ExportError;

/// A path of an export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ExportedPath {
    pub(super) info: PathInfo,
    /// Where its NAR begins in the file, in bytes.
    pub(super) nar_at: u64,
}

/// Reads an export. Returns a file with it, and its paths.
///
/// A file that has no positions, such as a pipe, is copied into an unnamed file in `directory`.
pub(super) fn read_export(
    (input, name): (File, &str),
    dir: &StoreDir,
    directory: &Path,
    cancel: &Cancel,
) -> Result<(File, Vec<ExportedPath>), Error> {
    let failed = |action| {
        let name = name.to_owned();
        move |source| ExportError::Io {
            action,
            name,
            source,
        }
    };
    let mut reader = ExportReader {
        name,
        position: 0,
        buffer: Vec::new(),
        at: 0,
        copy: UnfinishedFile::default(),
        cancel,
        input,
    };
    let is_file = reader.input.metadata().is_ok_and(|found| found.is_file());
    // Standard input may be open at another place than its beginning.
    let begin = is_file
        .then(|| reader.input.stream_position().ok())
        .flatten();
    match begin {
        Some(begin) => reader.position = begin,
        None => {
            let copy = WrittenFile::create_temporary(directory, ".floe-import-", "");
            // Dropping the path removes the name.
            let (copy, _) = copy.map_err(failed("buffer"))?;
            reader.copy.put(copy);
        }
    }
    let mut paths = Vec::new();
    while reader.parse(read_entry)? {
        paths.push(reader.read_path(dir)?);
    }
    let file = match reader.copy.take() {
        Some(copy) => {
            let read = copy.as_file().try_clone();
            copy.close().and(read).map_err(failed("buffer"))?
        }
        None => reader.input,
    };
    Ok((file, paths))
}

struct ExportReader<'a> {
    input: File,
    name: &'a str,
    /// The position of the first byte that was not used.
    position: u64,
    buffer: Vec<u8>,
    /// How many bytes of the buffer were used.
    at: usize,
    /// A copy of all bytes of a pipe.
    copy: UnfinishedFile,
    cancel: &'a Cancel,
}

impl ExportReader<'_> {
    fn read_path(&mut self, dir: &StoreDir) -> Result<ExportedPath, Error> {
        let nar_at = self.position;
        let (nar_hash, nar_size) = self.read_nar()?;
        let found = self.parse(|input| read_info(input, dir))?;
        let info = PathInfo {
            path: found.path,
            nar_hash,
            nar_size,
            references: found.references,
            deriver: found.deriver,
            signatures: BTreeSet::new(),
            ca: None,
            registration_time: None,
            ultimate: false,
        };
        Ok(ExportedPath { info, nar_at })
    }

    /// Reads a NAR, and returns its hash and size.
    fn read_nar(&mut self) -> Result<(Hash, u64), Error> {
        let begin = self.position;
        let (mut reader, mut hasher) = (NarReader::new(), Sha256::new());
        loop {
            if self.at == self.buffer.len() {
                self.fill()?;
            }
            let mut rest = &self.buffer[self.at..];
            let len = rest.len();
            while !reader.is_finished() {
                match reader.next(&mut rest) {
                    Ok(Some(_)) => {}
                    Ok(None) => break,
                    Err(source) => {
                        let name = self.name.to_owned();
                        let position = begin;
                        let error = ExportError::Nar {
                            name,
                            position,
                            source,
                        };
                        return Err(error.into());
                    }
                }
            }
            let used = len - rest.len();
            hasher.update(&self.buffer[self.at..self.at + used]);
            self.advance(used);
            if reader.is_finished() {
                return Ok((Hash::sha256(hasher.finish()), self.position - begin));
            }
        }
    }

    /// Parses a part between the NARs.
    fn parse<T>(
        &mut self,
        parse: impl Fn(&mut Input<'_>) -> Result<T, WireError>,
    ) -> Result<T, Error> {
        loop {
            let mut input = Input::new(&self.buffer[self.at..]);
            match parse(&mut input) {
                Ok(parsed) => {
                    let used = input.len_read();
                    self.advance(used);
                    return Ok(parsed);
                }
                Err(WireError::Incomplete { .. }) => self.fill()?,
                Err(source) => {
                    let error = ExportError::Format {
                        name: self.name.to_owned(),
                        position: self.position,
                        source,
                    };
                    return Err(error.into());
                }
            }
        }
    }

    fn advance(&mut self, len: usize) {
        self.at += len;
        self.position += len as u64;
    }

    /// Reads more bytes.
    ///
    /// Errors: there are none.
    fn fill(&mut self) -> Result<(), Error> {
        self.buffer.drain(..self.at);
        self.at = 0;
        let len = self.buffer.len();
        // Otherwise a long list of references would be parsed again for each chunk.
        self.buffer.resize(len + len.max(CHUNK_LEN), 0);
        let read = loop {
            if self.cancel.is_raised() {
                return Err(Error::Cancelled);
            }
            if !is_readable(&self.input) {
                continue;
            }
            match self.input.read(&mut self.buffer[len..]) {
                Err(error) if is_transient(&error) => {}
                read => break read,
            }
        };
        let read = read.map_err(|source| self.failed("read", source))?;
        self.buffer.truncate(len + read);
        if read == 0 {
            let error = ExportError::Truncated {
                name: self.name.to_owned(),
                position: self.position + len as u64,
            };
            return Err(error.into());
        }
        let copied = self
            .copy
            .get_mut()
            .map(|copy| copy.write_all(&self.buffer[len..]));
        copied
            .transpose()
            .map_err(|source| self.failed("buffer", source))?;
        Ok(())
    }

    fn failed(&self, action: &'static str, source: io::Error) -> Error {
        let name = self.name.to_owned();
        ExportError::Io {
            action,
            name,
            source,
        }
        .into()
    }
}

/// Waits a moment until a pipe has bytes, or its end. A file always has.
fn is_readable(file: &File) -> bool {
    let mut fds = [PollFd::new(file, PollFlags::IN)];
    let wait = Timespec::try_from(CANCEL_POLL).unwrap_or_default();
    matches!(poll(&mut fds, Some(&wait)), Ok(1..))
}

/// Whether the same read may succeed a moment later.
fn is_transient(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock
    )
}

const CHUNK_LEN: usize = 128 * 1024;
