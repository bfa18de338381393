//! Parts of the work of a copy, done by the same libraries as in floe. Their CPU times are the
//! baseline that copies are compared with.

use std::fs::File;
use std::io::{self, Read, Write as _};

use anyhow::{Context as _, Result, bail, ensure};
use clap::ValueEnum;

use crate::http::{Connection, Origin};
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
    /// Fetches URLs of one server over one HTTP connection and discards the bodies
    Receive,
    /// Decodes zstd from stdin to stdout, as a decompressor for tar
    Cat,
}

/// The buffer size of the copy pipeline.
const CHUNK_LEN: usize = 256 * 1024;

/// Does one part of the work for each file or URL.
pub(crate) fn run(part: Part, inputs: &[String]) -> Result<Outcome> {
    let mut chunk = vec![0; CHUNK_LEN];
    match part {
        Part::Cat => decode_stdin(&mut chunk)?,
        Part::Receive => receive(inputs)?,
        Part::Zstd => for_each(inputs, |file| {
            let mut decoder = zstd::stream::read::Decoder::new(file)?;
            read_to_end(&mut decoder, &mut chunk, &mut |_| {})
        })?,
        Part::Xz => for_each(inputs, |file| {
            read_to_end(&mut xz(file)?, &mut chunk, &mut |_| {})
        })?,
        Part::Sha256 => for_each(inputs, |file| hash(file, &mut chunk))?,
    }
    Ok(Outcome::Passed)
}

fn for_each(files: &[String], mut process: impl FnMut(File) -> Result<()>) -> Result<()> {
    ensure!(!files.is_empty(), "no files given");
    for file in files {
        let opened = File::open(file).map_err(anyhow::Error::from);
        opened
            .and_then(&mut process)
            .with_context(|| format!("cannot read {file}"))?;
    }
    Ok(())
}

fn hash(mut file: File, chunk: &mut [u8]) -> Result<()> {
    let mut hasher = floe_hash::Sha256::new();
    read_to_end(&mut file, chunk, &mut |bytes| hasher.update(bytes))?;
    std::hint::black_box(hasher.finish());
    Ok(())
}

fn receive(urls: &[String]) -> Result<()> {
    ensure!(!urls.is_empty(), "no URLs given");
    let mut connection = None;
    for url in urls {
        let Some(origin) = Origin::parse(url) else {
            bail!("{url} is not a URL of http");
        };
        let connection = connection.get_or_insert_with(|| Connection::new(&origin));
        let head = connection.get(&origin.prefix, "", &mut io::sink())?;
        ensure!(head.status == 200, "GET {url}: status {}", head.status);
    }
    Ok(())
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
    use std::io::{BufRead as _, BufReader};
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    #[test]
    fn baseline_reads_valid_files_and_refuses_others() {
        let directory = tempfile::tempdir().unwrap();
        let file = |name: &str, bytes: &[u8]| {
            let path = directory.path().join(name);
            std::fs::write(&path, bytes).unwrap();
            path.display().to_string()
        };
        let zstd = file("a.zst", &zstd::encode_all(&b"abc"[..], 3).unwrap());
        let plain = file("a", b"abc");
        assert!(run(Part::Zstd, std::slice::from_ref(&zstd)).is_ok());
        assert!(run(Part::Sha256, &[plain.clone(), zstd]).is_ok());
        assert!(run(Part::Zstd, std::slice::from_ref(&plain)).is_err());
        assert!(run(Part::Xz, &[plain]).is_err());
        assert!(run(Part::Zstd, &[]).is_err());
    }

    #[test]
    fn baseline_receives_every_url_with_status_200() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let origin = format!("http://{}", listener.local_addr().unwrap());
        let urls = ["a", "b", "missing"].map(|name| format!("{origin}/nar/{name}"));
        let server = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut requests = BufReader::new(stream.try_clone().unwrap()).lines();
            let mut targets = Vec::new();
            while let Some(Ok(first)) = requests.next() {
                while requests
                    .next()
                    .is_some_and(|line| !line.unwrap().is_empty())
                {}
                let status = if first.contains("missing") { 404 } else { 200 };
                write!(
                    stream,
                    "HTTP/1.1 {status} X\r\nContent-Length: 3\r\n\r\nabc"
                )
                .unwrap();
                targets.push(first.split(' ').nth(1).unwrap().to_owned());
            }
            targets
        });
        let error = run(Part::Receive, &urls).unwrap_err().to_string();
        assert!(error.ends_with("/nar/missing: status 404"), "{error}");
        assert_eq!(server.join().unwrap(), ["/nar/a", "/nar/b", "/nar/missing"]);
        assert!(run(Part::Receive, &["file:///a".into()]).is_err());
        assert!(run(Part::Receive, &[]).is_err());
    }
}
