//! A NAR into a file of a binary cache: checked, compressed, hashed, and named by its hash.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use floe_format::nar::layout::Node;
use floe_format::nar::read::{Event, Reader};
use floe_format::{Hash, NarInfo};
use floe_store::StoreError;
use floe_store::hashing::{Stream, Worker};

use super::publish::{CacheWriter, create_shared};
use super::receive::Sink;
use crate::codec::{self, Encoder};
use crate::error::Error;

/// A NAR that is in the cache, while its narinfo is not yet.
#[derive(Debug)]
pub(crate) struct PackedNar {
    pub(crate) narinfo: NarInfo,
    /// The shape of the tree, where a listing is wanted.
    pub(crate) tree: Option<Node>,
}

/// Packs the NAR that `receive` brings to the sink it is given.
pub(crate) fn pack(
    cache: &CacheWriter,
    narinfo: &NarInfo,
    worker: &Worker,
    receive: impl FnOnce(&mut dyn Sink) -> Result<(), Error>,
) -> Result<PackedNar, Error> {
    let location = cache.location();
    let hasher = worker.beside(narinfo.info.nar_size);
    let mut output = Output::create(cache.temporary_file("nar"), hasher)?;
    let shape = compress(cache, narinfo, &mut output, receive)?;
    let (file_size, file_hash) = output.finish(cache)?;
    let mut narinfo = narinfo.clone();
    narinfo.url = CacheWriter::nar_url(&file_hash, location.compression);
    narinfo.compression = location.compression;
    narinfo.file_hash = Some(file_hash);
    narinfo.file_size = Some(file_size);
    Ok(PackedNar {
        narinfo,
        tree: shape.and_then(Shape::finish),
    })
}

/// Brings the NAR into `output`; its shape, where a listing is wanted.
fn compress(
    cache: &CacheWriter,
    narinfo: &NarInfo,
    output: &mut Output,
    receive: impl FnOnce(&mut dyn Sink) -> Result<(), Error>,
) -> Result<Option<Shape>, Error> {
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
    let shape = location.write_listings.then(Shape::default);
    let mut packer = Packer {
        narinfo,
        file: &file,
        encoder,
        reader: Reader::new(),
        shape,
    };
    receive(&mut packer)?;
    packer.encoder.finish().map_err(failed)?;
    packer
        .reader
        .finish()
        .map_err(|source| broken_nar(narinfo, source))?;
    Ok(packer.shape)
}

struct Packer<'a> {
    narinfo: &'a NarInfo,
    file: &'a Path,
    encoder: Box<dyn Encoder + 'a>,
    /// A cache holds nothing that a store would refuse.
    reader: Reader,
    shape: Option<Shape>,
}

impl Sink for Packer<'_> {
    fn write(&mut self, nar: &[u8]) -> Result<(), Error> {
        let mut rest = nar;
        loop {
            match self.reader.next(&mut rest) {
                Ok(None) => break,
                Ok(Some(event)) => {
                    if let Some(shape) = &mut self.shape {
                        shape.apply(event);
                    }
                }
                Err(source) => return Err(broken_nar(self.narinfo, source)),
            }
        }
        self.encoder.write_all(nar).map_err(|source| Error::File {
            action: "writing",
            path: self.file.to_path_buf(),
            source,
        })
    }
}

fn broken_nar(narinfo: &NarInfo, source: floe_format::nar::read::NarError) -> Error {
    StoreError::Nar {
        path: narinfo.info.path.clone(),
        source,
    }
    .into()
}

/// A file that hashes what is written to it, and is removed unless it is finished.
struct Output {
    file: BufWriter<File>,
    path: PathBuf,
    hasher: Stream,
    len: u64,
    finished: bool,
}

impl Output {
    fn create(path: PathBuf, hasher: Stream) -> Result<Output, Error> {
        match create_shared(&path) {
            Ok(file) => Ok(Output {
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
    fn finish(mut self, cache: &CacheWriter) -> Result<(u64, Hash), Error> {
        let hash = Hash::sha256(std::mem::take(&mut self.hasher).finish());
        let url = CacheWriter::nar_url(&hash, cache.location().compression);
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

impl Write for Output {
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

impl Drop for Output {
    fn drop(&mut self) {
        if !self.finished {
            let _: io::Result<()> = fs::remove_file(&self.path);
        }
    }
}

/// The shape of a tree, gathered from the events of its NAR.
#[derive(Default)]
struct Shape {
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

impl Shape {
    fn apply(&mut self, event: Event<'_>) {
        match event {
            Event::Directory => self.open.push(OpenDirectory::default()),
            Event::Entry { name } => {
                if let Some(directory) = self.open.last_mut() {
                    directory.entry = name.to_vec();
                }
            }
            Event::EndDirectory => {
                if let Some(OpenDirectory { entries, .. }) = self.open.pop() {
                    self.add(Node::Directory { entries });
                }
            }
            Event::Symlink { target } => self.add(Node::Symlink {
                target: target.to_vec(),
            }),
            Event::File { executable, size } => self.add(Node::File { executable, size }),
            Event::Data(_) | Event::EndFile | Event::End => {}
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
