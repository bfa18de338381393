//! A NAR into a file of a binary cache: checked, compressed, hashed, and named by its hash.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use floe_format::nar::layout::Node;
use floe_format::nar::read::{NarEvent, NarReader};
use floe_format::{Hash, NarInfo};
use floe_hash::hash_pool::Stream;
use floe_store::StoreError;
use floe_transfer::codec::{self, Encoder};
use floe_transfer::{Error, IncomingNar, NarSink};

use super::{BinaryCacheWriter, create_world_readable};

/// A NAR that is in the cache, while its narinfo is not yet.
#[derive(Debug)]
pub(crate) struct StagedNar {
    pub(crate) narinfo: NarInfo,
    /// The shape of the tree, where a listing is wanted.
    pub(crate) tree: Option<Node>,
}

/// Writes a NAR into a file of the cache.
pub(crate) fn write_nar_file(
    cache: &BinaryCacheWriter,
    nar: &mut IncomingNar<'_>,
) -> Result<StagedNar, Error> {
    let (narinfo, worker) = (nar.narinfo(), nar.worker());
    let location = cache.location();
    let hasher = worker.secondary_stream(narinfo.info.nar_size);
    let mut output = NarFile::create(cache.temporary_file("nar"), hasher)?;
    let listing = compress(cache, nar, &mut output)?;
    let (file_size, file_hash) = output.finish(cache)?;
    let mut narinfo = narinfo.clone();
    narinfo.url = BinaryCacheWriter::nar_url(&file_hash, location.compression);
    narinfo.compression = location.compression;
    narinfo.file_hash = Some(file_hash);
    narinfo.file_size = Some(file_size);
    Ok(StagedNar {
        narinfo,
        tree: listing.and_then(ListingBuilder::finish),
    })
}

/// Writes the NAR into `output`. Returns the shape of its tree if a listing is wanted.
fn compress(
    cache: &BinaryCacheWriter,
    nar: &mut IncomingNar<'_>,
    output: &mut NarFile,
) -> Result<Option<ListingBuilder>, Error> {
    let narinfo = nar.narinfo();
    let location = cache.location();
    let file = output.path.clone();
    let failed = |source| Error::File {
        action: "writing",
        path: file.clone(),
        source,
    };
    let encoder = codec::encoder(location.compression, location.level, output);
    let encoder = encoder
        .map_err(failed)?
        .ok_or_else(|| Error::UnsupportedCompression {
            path: narinfo.info.path.clone(),
            name: format!("{} (for writing)", location.compression.name()),
        })?;
    let listing = location.write_listings.then(ListingBuilder::default);
    let mut writer = NarFileWriter {
        narinfo,
        file: &file,
        encoder,
        reader: NarReader::new(),
        listing,
    };
    nar.write_to(&mut writer)?;
    writer.encoder.finish().map_err(failed)?;
    writer
        .reader
        .finish()
        .map_err(|source| invalid_nar(narinfo, source))?;
    Ok(writer.listing)
}

struct NarFileWriter<'a> {
    narinfo: &'a NarInfo,
    file: &'a Path,
    encoder: Box<dyn Encoder + 'a>,
    /// A cache holds nothing that a store would refuse.
    reader: NarReader,
    listing: Option<ListingBuilder>,
}

impl NarSink for NarFileWriter<'_> {
    fn write(&mut self, nar: &[u8]) -> Result<(), Error> {
        let mut rest = nar;
        loop {
            match self.reader.next(&mut rest) {
                Ok(None) => break,
                Ok(Some(event)) => {
                    if let Some(listing) = &mut self.listing {
                        listing.apply(event);
                    }
                }
                Err(source) => return Err(invalid_nar(self.narinfo, source)),
            }
        }
        self.encoder.write_all(nar).map_err(|source| Error::File {
            action: "writing",
            path: self.file.to_path_buf(),
            source,
        })
    }
}

fn invalid_nar(narinfo: &NarInfo, source: floe_format::nar::read::NarError) -> Error {
    StoreError::Nar {
        path: narinfo.info.path.clone(),
        source,
    }
    .into()
}

/// A file that hashes what is written to it, and is removed unless it is finished.
struct NarFile {
    file: BufWriter<File>,
    path: PathBuf,
    hasher: Stream,
    len: u64,
    finished: bool,
}

impl NarFile {
    fn create(path: PathBuf, hasher: Stream) -> Result<NarFile, Error> {
        match create_world_readable(&path) {
            Ok(file) => Ok(NarFile {
                file: BufWriter::with_capacity(BUFFER_LEN, file),
                path,
                hasher,
                len: 0,
                finished: false,
            }),
            Err(source) => Err(Error::File {
                action: "creating",
                path,
                source,
            }),
        }
    }

    /// Renames the file to what its hash calls for; its size and hash.
    fn finish(mut self, cache: &BinaryCacheWriter) -> Result<(u64, Hash), Error> {
        let hash = Hash::sha256(std::mem::take(&mut self.hasher).finish());
        let url = BinaryCacheWriter::nar_url(&hash, cache.location().compression);
        let path = cache.location().directory.join(url);
        let flushed = self
            .file
            .flush()
            .and_then(|()| fs::rename(&self.path, &path));
        flushed.map_err(|source| Error::File {
            action: "writing",
            path,
            source,
        })?;
        self.finished = true;
        Ok((self.len, hash))
    }
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

impl Drop for NarFile {
    fn drop(&mut self) {
        if !self.finished {
            let _: io::Result<()> = fs::remove_file(&self.path);
        }
    }
}

/// The shape of a tree, gathered from the events of its NAR.
#[derive(Default)]
struct ListingBuilder {
    /// The directories from the root to where the NAR is.
    open: Vec<OpenDirectory>,
    root: Option<Node>,
}

#[derive(Default)]
struct OpenDirectory {
    entries: BTreeMap<Vec<u8>, Node>,
    /// The name of the entry whose node comes next.
    entry: Vec<u8>,
}

impl ListingBuilder {
    fn apply(&mut self, event: NarEvent<'_>) {
        match event {
            NarEvent::Directory => self.open.push(OpenDirectory::default()),
            NarEvent::Entry { name } => {
                if let Some(directory) = self.open.last_mut() {
                    directory.entry = name.to_vec();
                }
            }
            NarEvent::EndDirectory => {
                if let Some(OpenDirectory { entries, .. }) = self.open.pop() {
                    self.add(Node::Directory { entries });
                }
            }
            NarEvent::Symlink { target } => self.add(Node::Symlink {
                target: target.to_vec(),
            }),
            NarEvent::File { executable, size } => self.add(Node::File { executable, size }),
            NarEvent::Data(_) | NarEvent::EndFile | NarEvent::End => {}
        }
    }

    fn add(&mut self, node: Node) {
        match self.open.last_mut() {
            Some(OpenDirectory { entries, entry }) => {
                entries.insert(std::mem::take(entry), node);
            }
            None => self.root = Some(node),
        }
    }

    fn finish(self) -> Option<Node> {
        self.root
    }
}

/// Large enough that an encoder's small writes do not become system calls.
const BUFFER_LEN: usize = 128 * 1024;
