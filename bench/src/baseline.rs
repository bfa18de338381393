//! `cargo xtask bench baseline WHAT FILE…`: a part of the work of a copy and nothing else, by the
//! same libraries, for benchmarks to compare with.

use std::fs::File;
use std::io::{self, Read, Write as _};
use std::path::Path;

use anyhow::{Context as _, Result, bail};

use crate::Outcome;

/// As much as the mover has in its hands at once.
const CHUNK_LEN: usize = 256 * 1024;

/// Reads each file, decodes or hashes it, and throws the result away; `cat` is for tar and writes
/// to stdout what stdin decodes to.
pub(crate) fn command(_root: &Path, arguments: &[String]) -> Result<Outcome> {
    let Some((what, files)) = arguments.split_first() else {
        return Ok(Outcome::Usage(
            "baseline wants zstd, xz, sha256 or cat".into(),
        ));
    };
    let mut chunk = vec![0; CHUNK_LEN];
    if what == "cat" {
        // tar asks its decompressor with -d.
        let mut decoder = zstd::stream::read::Decoder::new(io::stdin().lock())?;
        let mut stdout = io::stdout().lock();
        loop {
            let len = decoder.read(&mut chunk).context("decoding stdin")?;
            if len == 0 {
                return Ok(Outcome::Good);
            }
            stdout
                .write_all(&chunk[..len])
                .context("writing to stdout")?;
        }
    }
    if files.is_empty() {
        return Ok(Outcome::Usage(format!("baseline {what} wants files")));
    }
    for file in files {
        let opened = File::open(file).with_context(|| format!("opening {file}"))?;
        one(what, opened, &mut chunk).with_context(|| format!("reading {file}"))?;
    }
    Ok(Outcome::Good)
}

fn one(what: &str, mut file: File, chunk: &mut [u8]) -> Result<()> {
    match what {
        "zstd" => drain(
            &mut zstd::stream::read::Decoder::new(file)?,
            chunk,
            &mut |_| {},
        ),
        "xz" => drain(&mut xz(file)?, chunk, &mut |_| {}),
        "sha256" => {
            let mut hasher = floe_hash::Sha256::new();
            drain(&mut file, chunk, &mut |bytes| hasher.update(bytes))?;
            std::hint::black_box(hasher.finish());
            Ok(())
        }
        _ => bail!("there is no baseline `{what}`"),
    }
}

/// As the mover decodes it: who compares hashes needs no other checksums.
fn xz(file: File) -> Result<impl Read> {
    use liblzma::stream::{CONCATENATED, IGNORE_CHECK, Stream};
    let stream = Stream::new_stream_decoder(u64::MAX, CONCATENATED | IGNORE_CHECK)?;
    Ok(liblzma::read::XzDecoder::new_stream(file, stream))
}

fn drain(reader: &mut impl Read, chunk: &mut [u8], sink: &mut dyn FnMut(&[u8])) -> Result<()> {
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
    fn a_floor_reads_what_is_right_and_refuses_what_is_not() {
        let directory = tempfile::tempdir().unwrap();
        let file = |name: &str, bytes: &[u8]| {
            let path = directory.path().join(name);
            std::fs::write(&path, bytes).unwrap();
            path.display().to_string()
        };
        let zstd = file("a.zst", &zstd::encode_all(&b"abc"[..], 3).unwrap());
        let plain = file("a", b"abc");
        let root = Path::new(".");
        let run = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            command(root, &words)
        };
        assert!(matches!(run(&["zstd", &zstd]), Ok(Outcome::Good)));
        assert!(matches!(run(&["sha256", &plain, &zstd]), Ok(Outcome::Good)));
        assert!(run(&["zstd", &plain]).is_err());
        assert!(run(&["xz", &plain]).is_err());
        assert!(run(&["brotli", &plain]).is_err());
        assert!(matches!(run(&["zstd"]), Ok(Outcome::Usage(_))));
    }
}
