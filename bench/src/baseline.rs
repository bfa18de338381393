//! Parts of the work of a copy, done by the same libraries as in floe. Their CPU times are the
//! baseline that copies are compared with.

use std::fs::File;
use std::io::{self, Read, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use clap::ValueEnum;

use crate::outcome::Outcome;

/// One part of the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Part {
    /// Decodes zstd files and discards the result
    Zstd,
    /// Decodes xz files and discards the result
    Xz,
    /// Hashes files
    Sha256,
    /// Decodes zstd from stdin to stdout, as a decompressor for tar
    Cat,
}

/// The buffer size of the copy pipeline.
const CHUNK_LEN: usize = 256 * 1024;

/// Does one part of the work for each file.
pub(crate) fn run(part: Part, files: &[PathBuf]) -> Result<Outcome> {
    let mut chunk = vec![0; CHUNK_LEN];
    if part == Part::Cat {
        decode_stdin(&mut chunk)?;
        return Ok(Outcome::Passed);
    }
    ensure!(!files.is_empty(), "no files given");
    for file in files {
        process(part, file, &mut chunk)
            .with_context(|| format!("cannot read {}", file.display()))?;
    }
    Ok(Outcome::Passed)
}

fn decode_stdin(chunk: &mut [u8]) -> Result<()> {
    let mut decoder = zstd::stream::read::Decoder::new(io::stdin().lock())?;
    let mut stdout = io::stdout().lock();
    loop {
        let len = decoder.read(chunk).context("cannot decode stdin")?;
        if len == 0 {
            return Ok(());
        }
        stdout
            .write_all(&chunk[..len])
            .context("cannot write to stdout")?;
    }
}

fn process(part: Part, file: &Path, chunk: &mut [u8]) -> Result<()> {
    let mut file = File::open(file)?;
    match part {
        Part::Zstd | Part::Cat => {
            let mut decoder = zstd::stream::read::Decoder::new(file)?;
            read_to_end(&mut decoder, chunk, &mut |_| {})
        }
        Part::Xz => read_to_end(&mut xz(file)?, chunk, &mut |_| {}),
        Part::Sha256 => {
            let mut hasher = floe_hash::Sha256::new();
            read_to_end(&mut file, chunk, &mut |bytes| hasher.update(bytes))?;
            std::hint::black_box(hasher.finish());
            Ok(())
        }
    }
}

/// A decoder without liblzma's own checksums, as in floe: the NAR hash makes them redundant.
fn xz(file: File) -> Result<impl Read> {
    use liblzma::stream::{CONCATENATED, IGNORE_CHECK, Stream};
    let stream = Stream::new_stream_decoder(u64::MAX, CONCATENATED | IGNORE_CHECK)?;
    Ok(liblzma::read::XzDecoder::new_stream(file, stream))
}

fn read_to_end(
    reader: &mut impl Read,
    chunk: &mut [u8],
    sink: &mut dyn FnMut(&[u8]),
) -> Result<()> {
    loop {
        let len = reader.read(chunk)?;
        if len == 0 {
            return Ok(());
        }
        sink(&chunk[..len]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn baseline_reads_valid_files_and_refuses_others() {
        let directory = tempfile::tempdir().unwrap();
        let file = |name: &str, bytes: &[u8]| {
            let path = directory.path().join(name);
            std::fs::write(&path, bytes).unwrap();
            path
        };
        let zstd = file("a.zst", &zstd::encode_all(&b"abc"[..], 3).unwrap());
        let plain = file("a", b"abc");
        assert!(run(Part::Zstd, std::slice::from_ref(&zstd)).is_ok());
        assert!(run(Part::Sha256, &[plain.clone(), zstd]).is_ok());
        assert!(run(Part::Zstd, std::slice::from_ref(&plain)).is_err());
        assert!(run(Part::Xz, &[plain]).is_err());
        assert!(run(Part::Zstd, &[]).is_err());
    }
}
