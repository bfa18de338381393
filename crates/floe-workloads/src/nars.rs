//! The workloads with NARs: unpack one, dump a tree, and decompress some.

use std::io::{Read as _, Write as _};
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use floe_format::Compression;
use floe_store::StoreError;
use floe_store::tree::{dump_path, restore_path};
use floe_transfer::codec::{WINDOW_LEN_MAX, XzChecks, decoder, encoder};

use crate::Work;
use crate::inputs::{Numbers, TreeShape, nar};

/// Many small files, as in most closures. Few files share a directory: the order in which a file
/// system lists them decides how many steps their sort takes.
const SMALL_FILES: TreeShape = TreeShape {
    directories: 100,
    files_per_directory: 24,
    file_len_max: 2000,
};

/// Unpacks the NAR of many small files.
pub(crate) fn unpack(directory: &Path) -> Result<Work> {
    let nar = nar(&SMALL_FILES);
    let place = directory.join("unpacked");
    Ok(Box::new(move || {
        Ok(restore_path(&place, &mut nar.as_slice())?)
    }))
}

/// Dumps a tree of many small files.
pub(crate) fn dump(directory: &Path) -> Result<Work> {
    let nar = nar(&SMALL_FILES);
    let place = directory.join("tree");
    restore_path(&place, &mut nar.as_slice())?;
    Ok(Box::new(move || {
        let mut len = 0;
        for _ in 0..DUMPS {
            dump_path(&place, &mut |chunk| {
                len += chunk.len();
                Ok::<(), StoreError>(())
            })?;
        }
        ensure!(len == DUMPS * nar.len(), "the tree has another NAR");
        Ok(())
    }))
}

/// How often the tree is dumped. To read it takes half as many instructions as to write it.
const DUMPS: usize = 2;

/// Decompresses NARs of zstd and of xz. Each consists of equal frames, because the encoder of xz
/// takes much longer than the decoder.
pub(crate) fn decode(_: &Path) -> Result<Work> {
    let contents = Numbers::new(2).text(FRAME_LEN);
    let body = |compression, frames| -> Result<Vec<u8>> {
        let mut frame = Vec::new();
        let made = encoder(compression, Some(ENCODER_LEVEL), &mut frame)?;
        let mut made = made.context("there is no encoder")?;
        made.write_all(&contents)?;
        made.finish()?;
        Ok(frame.repeat(frames))
    };
    let zstd = body(Compression::Zstd, ZSTD_FRAMES)?;
    let xz = body(Compression::Xz, XZ_STREAMS)?;
    Ok(Box::new(move || {
        for (compression, body, frames) in [
            (Compression::Zstd, &zstd, ZSTD_FRAMES),
            (Compression::Xz, &xz, XZ_STREAMS),
        ] {
            let body = body.as_slice();
            let decoder = decoder(compression, body, WINDOW_LEN_MAX, XzChecks::Ignore)?;
            let mut decoder = decoder.context("there is no decoder")?;
            let (mut chunk, mut len) = (vec![0; CHUNK_LEN], 0);
            loop {
                match decoder.read(&mut chunk)? {
                    0 => break,
                    read => len += read,
                }
            }
            ensure!(
                len == frames * FRAME_LEN,
                "{} lost bytes",
                compression.name()
            );
        }
        Ok(())
    }))
}

/// The length of a frame's contents, in bytes.
const FRAME_LEN: usize = 128 * 1024;

/// Both decoders get about the same number of instructions with these numbers of frames.
const ZSTD_FRAMES: usize = 48;
const XZ_STREAMS: usize = 6;

/// A low level, because the encoders do not count.
const ENCODER_LEVEL: i32 = 1;

/// The length of the buffer for decompressed bytes, as in a copy.
const CHUNK_LEN: usize = 256 * 1024;
