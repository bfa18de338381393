//! Writes a NAR into a file of a binary cache: verifies, compresses and hashes it, and names it by
//! its hash.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use floe_format::nar::layout::Node;
use floe_format::nar::read::{NarError, NarEvent, NarReader};
use floe_format::{Compression, Hash, NarInfo};
use floe_hash::hash_pool::Stream;
use floe_store::StoreError;
use floe_transfer::codec::{self, Encoder};
use floe_transfer::{Error, IncomingNar, NarSink};

use super::CacheWriteOptions;
use crate::storage::{CacheStorage, file_error};

/// A NAR that is in the cache, while its narinfo is not yet.
#[derive(Debug)]
pub(super) struct StagedNar {
    pub(super) narinfo: NarInfo,
    /// The tree, if a listing is wanted.
    pub(super) tree: Option<Node>,
}

/// Writes a NAR into a file of the cache.
pub(super) fn write_nar_file(
    storage: &dyn CacheStorage,
    options: &CacheWriteOptions,
    nar: &mut IncomingNar<'_>,
) -> Result<StagedNar, Error> {
    let nar_size = nar.narinfo().info.nar_size;
    let hasher = nar.worker().secondary_stream(nar_size);
    let (file, path) = storage.create_temporary()?;
    let mut output = NarFile {
        file: BufWriter::with_capacity(BUFFER_LEN, file),
        hasher,
        len: 0,
    };
    let tree = compress(options, nar, (&mut output, &path))?;
    output.flush().map_err(file_error("write", &path))?;
    let file_hash = Hash::sha256(output.hasher.finish());
    let url = nar_url(&file_hash, options.compression);
    storage.put_temporary(&url, path)?;
    let narinfo = NarInfo {
        url,
        compression: options.compression,
        file_hash: Some(file_hash),
        file_size: Some(output.len),
        ..nar.narinfo().clone()
    };
    Ok(StagedNar { narinfo, tree })
}

/// Returns the URL of a NAR, relative to the cache, in Nix's form.
fn nar_url(file_hash: &Hash, compression: Compression) -> String {
    let (digest, extension) = (file_hash.digest_nix32(), compression.file_extension());
    format!("nar/{digest}.nar{extension}")
}

/// Writes the NAR into `output`. Returns the tree if a listing is wanted.
fn compress(
    options: &CacheWriteOptions,
    nar: &mut IncomingNar<'_>,
    (output, path): (&mut NarFile, &Path),
) -> Result<Option<Node>, Error> {
    let narinfo = nar.narinfo();
    let encoder = codec::encoder(options.compression, options.level, output);
    let encoder = encoder.map_err(file_error("write", path))?;
    let encoder = encoder.ok_or_else(|| Error::Unsupported {
        path: narinfo.info.path.clone(),
        feature: format!(
            "the compression {} (for writing)",
            options.compression.name()
        ),
    })?;
    let mut writer = NarFileWriter {
        narinfo,
        path,
        encoder,
        reader: NarReader::new(),
        listing: options.write_listings.then(ListingBuilder::default),
    };
    nar.write_to(&mut writer)?;
    writer.encoder.finish().map_err(file_error("write", path))?;
    let finished = writer.reader.finish();
    finished.map_err(|source| invalid_nar(narinfo, source))?;
    Ok(writer.listing.and_then(|listing| listing.root))
}

struct NarFileWriter<'a> {
    narinfo: &'a NarInfo,
    path: &'a Path,
    encoder: Box<dyn Encoder + 'a>,
    /// Parses the NAR: a cache must hold nothing that a store would refuse.
    reader: NarReader,
    listing: Option<ListingBuilder>,
}

impl NarSink for NarFileWriter<'_> {
    fn write(&mut self, nar: &[u8]) -> Result<(), Error> {
        let (mut rest, narinfo) = (nar, self.narinfo);
        let invalid = |source| invalid_nar(narinfo, source);
        while let Some(event) = self.reader.next(&mut rest).map_err(invalid)? {
            if let Some(listing) = &mut self.listing {
                listing.apply(event);
            }
        }
        let written = self.encoder.write_all(nar);
        written.map_err(file_error("write", self.path))
    }
}

fn invalid_nar(narinfo: &NarInfo, source: NarError) -> Error {
    let path = narinfo.info.path.clone();
    StoreError::Nar { path, source }.into()
}

/// A temporary file that hashes the bytes that are written to it.
struct NarFile {
    file: BufWriter<File>,
    hasher: Stream,
    len: u64,
}

impl Write for NarFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.hasher.update(&bytes[..written]);
        self.len += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
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
