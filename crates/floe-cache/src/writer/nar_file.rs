//! Writes a NAR into a file of a binary cache: verifies, compresses and hashes it, and names it by
//! its hash.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::path::Path;
use std::sync::Arc;

use floe_format::nar::layout::Node;
use floe_format::nar::read::{NarError, NarEvent, NarReader};
use floe_format::{Compression, Hash, NarInfo, StorePath, nix32};
use floe_hash::Sha256;
use floe_hash::hash_pool::Stream;
use floe_hash::idle_cores::IdleCores;
use floe_store::StoreError;
use floe_transfer::codec::{
    self, DecodeError, Encoder, XzBlocksEncoder, ZSTD_FRAME_LEN, ZstdFrames, xz_block_len,
};
use floe_transfer::{
    Body, Cancel, Error, IncomingNar, NarRequest, NarSink, WriteChunk, random_number,
};

use super::CacheWriteOptions;
use crate::error::file_error;
use crate::storage::{NewObject, ObjectPlan, Replies, WriteStorage, len_and_wait};

/// A NAR that is in the cache, while its narinfo is not yet.
#[derive(Debug)]
pub(super) struct StagedNar {
    pub(super) narinfo: NarInfo,
    /// The tree, if the options need it.
    pub(super) tree: Option<Node>,
    /// Whether the narinfo gets no signature by the keys of the writer.
    pub(super) keeps_signatures: bool,
    /// The reply of the storage, if it was not received yet.
    written: Option<Replies<Result<(), Error>>>,
}

impl StagedNar {
    pub(super) fn path(&self) -> &StorePath {
        &self.narinfo.info.path
    }

    /// Waits until the NAR is whole in the cache.
    pub(super) fn wait_until_whole(&mut self) -> Result<(), Error> {
        let written = self.written.take();
        written.map_or(Ok(()), |mut written| written.only()?)
    }
}

/// Writes a NAR into a file of the cache. `keep` keeps an object with one of the two names that the
/// file may get from a collection.
pub(super) fn write_nar_file(
    storage: &dyn WriteStorage,
    options: &CacheWriteOptions,
    nar: &mut IncomingNar<'_>,
    keep: &dyn Fn(&str) -> Result<(), Error>,
) -> Result<StagedNar, Error> {
    let nar_size = nar.narinfo().info.nar_size;
    let hasher = nar.worker().secondary_stream(nar_size);
    let plan = ObjectPlan {
        early_name: early_name(&nar.narinfo().info.nar_hash, options.compression),
        len: nar_size,
    };
    keep(&plan.early_name)?;
    // The uploads that have the memory may need this core to end.
    let object = nar
        .worker()
        .yield_core_while(|| storage.begin_object(&plan))?;
    let place = object.place().to_owned();
    let mut output = HashedObject {
        object: BufWriter::with_capacity(BUFFER_LEN, object),
        hasher,
        len: 0,
    };
    let tree = compress(options, nar, (&mut output, &place))?;
    let object = output.object.into_inner();
    let object = object.map_err(|error| write_error(&place)(error.into_error()))?;
    let file_hash = Hash::sha256(output.hasher.finish());
    let url = nar_url(&file_hash, options.compression);
    keep(&url)?;
    let mut written = Replies::new(&Cancel::default());
    let named = object.finish(&url, written.callback(|done| done));
    if named != url {
        // The object was too large to be kept, so it cannot be sent again later.
        nar.worker().yield_core_while(|| written.only())??;
    }
    let url = named;
    let narinfo = NarInfo {
        url,
        compression: options.compression,
        file_hash: Some(file_hash),
        file_size: Some(output.len),
        ..nar.narinfo().clone()
    };
    Ok(StagedNar {
        narinfo,
        tree,
        keeps_signatures: nar.planned().keeps_signatures,
        written: (written.pending() > 0).then_some(written),
    })
}

/// Returns a name for a NAR whose file has no hash yet. Two writers may compress a NAR differently,
/// so the name is random: an object always has the size and the hash in its narinfo.
fn early_name(nar_hash: &Hash, compression: Compression) -> String {
    let (digest, extension) = (nar_hash.digest_nix32(), compression.file_extension());
    let random = nix32::encode(&random_number().to_le_bytes());
    format!("nar/{digest}-{random}.nar{extension}")
}

/// Returns the URL of a NAR, relative to the cache, in Nix's form.
fn nar_url(file_hash: &Hash, compression: Compression) -> String {
    let (digest, extension) = (file_hash.digest_nix32(), compression.file_extension());
    format!("nar/{digest}.nar{extension}")
}

/// Writes the NAR into `output`. Returns the tree if the options need it.
fn compress(
    options: &CacheWriteOptions,
    nar: &mut IncomingNar<'_>,
    (output, path): (&mut HashedObject, &Path),
) -> Result<Option<Node>, Error> {
    let narinfo = nar.narinfo();
    let cores = if options.parallel_compression {
        nar.worker().idle_cores().clone()
    } else {
        Arc::new(IdleCores::none())
    };
    let (level, len) = (options.level, narinfo.info.nar_size);
    let encoder = match options.compression {
        Compression::Zstd if len > ZSTD_FRAME_LEN as u64 => {
            ZstdFrames::new(output, level, cores).map(|frames| Some(Box::new(frames) as Box<_>))
        }
        Compression::Xz if len > xz_block_len(level) && options.parallel_compression => {
            let blocks = XzBlocksEncoder::new(output, level, len, &cores);
            blocks.map(|blocks| Some(Box::new(blocks) as Box<_>))
        }
        compression => codec::encoder(compression, level, output),
    };
    let encoder = encoder.map_err(file_error("write", path))?;
    let encoder = encoder.ok_or_else(|| Error::Unsupported {
        path: narinfo.info.path.clone(),
        feature: format!(
            "the compression {} (for writing)",
            options.compression.name()
        ),
    })?;
    let mut writer = NarFileWriter {
        checker: NarChecker {
            narinfo,
            reader: NarReader::new(),
            listing: options.needs_tree().then(ListingBuilder::default),
        },
        path,
        encoder,
    };
    nar.write_to(&mut writer)?;
    writer.encoder.finish().map_err(write_error(path))?;
    let NarChecker {
        reader, listing, ..
    } = writer.checker;
    let finished = reader.finish();
    finished.map_err(|source| invalid_nar(narinfo, source))?;
    Ok(listing.and_then(|listing| listing.root))
}

/// Uses a NAR that an interrupted run has written, with the narinfo in its record. Reads the whole
/// NAR and verifies it as a received one. Returns `None` if it cannot be used.
pub(super) fn reuse_nar_file(
    (storage, cancel): (&dyn WriteStorage, &Cancel),
    options: &CacheWriteOptions,
    nar: &mut IncomingNar<'_>,
    recorded: NarInfo,
) -> Result<Option<StagedNar>, Error> {
    let is_expected = recorded.info.path == *nar.path()
        && recorded.compression == options.compression
        && recorded.file_size == len_and_wait(storage, &recorded.url, cancel)?;
    let Ok(Body::File { file, path }) = storage.open(&recorded.url, NarRequest::streamed()) else {
        return Ok(None);
    };
    if !is_expected {
        return Ok(None);
    }
    let mut sink = NarChecker {
        narinfo: nar.narinfo(),
        reader: NarReader::new(),
        listing: options.needs_tree().then(ListingBuilder::default),
    };
    let mut body = HashedFile::new(file);
    let written = nar.write_local(&path, &mut sink, |write| {
        decode_file(recorded.compression, &mut body, &path, write)
    });
    if let Err(error) = written {
        nar.reset_progress();
        return match error {
            Error::Cancelled => Err(error),
            _ => Ok(None),
        };
    }
    let is_whole = recorded.file_hash == Some(body.finish().0);
    if !is_whole || sink.reader.finish().is_err() {
        return Ok(None);
    }
    let narinfo = NarInfo {
        info: nar.narinfo().info.clone(),
        ..recorded
    };
    let tree = sink.listing.and_then(|listing| listing.root);
    Ok(Some(StagedNar {
        narinfo,
        tree,
        keeps_signatures: nar.planned().keeps_signatures,
        written: None,
    }))
}

/// Decodes a NAR file of the cache to its end.
fn decode_file(
    compression: Compression,
    body: &mut HashedFile,
    path: &Path,
    write: &mut WriteChunk<'_>,
) -> Result<(), Error> {
    match codec::decode(compression, &mut *body, write) {
        Ok(()) | Err(DecodeError::Unsupported) => {}
        Err(DecodeError::Read(error) | DecodeError::Damaged(error)) => {
            return Err(file_error("read", path)(error));
        }
        Err(DecodeError::Receiver(error)) => return Err(error),
    }
    // The hash of the file covers every byte.
    io::copy(body, &mut io::sink()).map_err(file_error("read", path))?;
    Ok(())
}

/// A file that hashes the bytes that are read from it.
pub(super) struct HashedFile {
    file: BufReader<File>,
    hasher: Sha256,
    len: u64,
}

impl HashedFile {
    pub(super) fn new(file: File) -> HashedFile {
        HashedFile {
            file: BufReader::with_capacity(BUFFER_LEN, file),
            hasher: Sha256::new(),
            len: 0,
        }
    }

    /// Returns the hash and the number of the bytes that were read.
    pub(super) fn finish(self) -> (Hash, u64) {
        (Hash::sha256(self.hasher.finish()), self.len)
    }
}

impl Read for HashedFile {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let len = self.file.read(bytes)?;
        self.hasher.update(&bytes[..len]);
        self.len += len as u64;
        Ok(len)
    }
}

impl BufRead for HashedFile {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.file.fill_buf()
    }

    fn consume(&mut self, len: usize) {
        self.hasher.update(&self.file.buffer()[..len]);
        self.len += len as u64;
        self.file.consume(len);
    }
}

/// Parses a NAR that is in the cache, and builds its listing.
struct NarChecker<'a> {
    narinfo: &'a NarInfo,
    /// A cache must hold nothing that a store would refuse.
    reader: NarReader,
    /// If a listing is wanted.
    listing: Option<ListingBuilder>,
}

impl NarSink for NarChecker<'_> {
    fn write(&mut self, nar: &[u8]) -> Result<(), Error> {
        let (mut rest, narinfo) = (nar, self.narinfo);
        let invalid = |source| invalid_nar(narinfo, source);
        while let Some(event) = self.reader.next(&mut rest).map_err(invalid)? {
            if let Some(listing) = &mut self.listing {
                listing.apply(event);
            }
        }
        Ok(())
    }
}

struct NarFileWriter<'a> {
    checker: NarChecker<'a>,
    path: &'a Path,
    encoder: Box<dyn Encoder + 'a>,
}

impl NarSink for NarFileWriter<'_> {
    fn write(&mut self, nar: &[u8]) -> Result<(), Error> {
        self.checker.write(nar)?;
        let written = self.encoder.write_all(nar);
        written.map_err(write_error(self.path))
    }
}

/// Returns the conversion of an error of a new object. A server has errors of its own.
pub(super) fn write_error(path: &Path) -> impl FnOnce(io::Error) -> Error {
    move |error| match error.downcast::<Error>() {
        Ok(error) => error,
        Err(error) => file_error("write", path)(error),
    }
}

fn invalid_nar(narinfo: &NarInfo, source: NarError) -> Error {
    let path = narinfo.info.path.clone();
    StoreError::Nar { path, source }.into()
}

/// A new object that hashes the bytes that are written to it.
struct HashedObject {
    object: BufWriter<Box<dyn NewObject>>,
    hasher: Stream,
    len: u64,
}

impl Write for HashedObject {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.object.write(bytes)?;
        self.hasher.update(&bytes[..written]);
        self.len += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.object.flush()
    }
}

/// Builds the tree of a listing from the events of the NAR.
#[derive(Default)]
struct ListingBuilder {
    /// The directories from the root to the current one.
    open: Vec<OpenDirectory>,
    root: Option<Node>,
}

#[derive(Default)]
struct OpenDirectory {
    entries: BTreeMap<Vec<u8>, Node>,
    /// The name of the next entry.
    entry: Vec<u8>,
}

impl ListingBuilder {
    fn apply(&mut self, event: NarEvent<'_>) {
        let node = match event {
            NarEvent::Directory => return self.open.push(OpenDirectory::default()),
            NarEvent::Entry { name } => {
                if let Some(directory) = self.open.last_mut() {
                    directory.entry = name.to_vec();
                }
                return;
            }
            NarEvent::EndDirectory => Node::Directory {
                entries: self.open.pop().unwrap_or_default().entries,
            },
            NarEvent::Symlink { target } => Node::Symlink {
                target: target.to_vec(),
            },
            NarEvent::File { executable, size } => Node::File { executable, size },
            NarEvent::Data(_) | NarEvent::EndFile | NarEvent::End => return,
        };
        match self.open.last_mut() {
            Some(OpenDirectory { entries, entry }) => {
                entries.insert(std::mem::take(entry), node);
            }
            None => self.root = Some(node),
        }
    }
}

/// Collects the small writes of encoders.
const BUFFER_LEN: usize = 128 * 1024;
