//! Decodes and hashes the file of a NAR while it arrives, so that the server does not read it again
//! for its narinfo.

use std::fmt;

use floe_format::nar::read::{NarError, NarReader};
use floe_format::{Compression, Hash};
use floe_hash::Sha256;
use floe_transfer::codec::PushDecoder;

/// The facts about a file in `nar/` that was read to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NarFile {
    /// The compression with which the file was read.
    pub compression: Compression,
    /// The hash of the NAR.
    pub nar_hash: Hash,
    /// The size of the NAR in bytes.
    pub nar_size: u64,
    /// The hash of the file.
    pub file_hash: Hash,
    /// The size of the file in bytes.
    pub file_size: u64,
}

/// The file of a NAR that arrives piece by piece. Its first bytes tell the compression.
pub struct ArrivingNar {
    compression: Compression,
    decoder: PushDecoder,
    nar: NarHasher,
    nar_size_max: u64,
    /// The bytes of the file that have come.
    len: u64,
}

impl ArrivingNar {
    /// Begins with the first piece of a file. Returns `None` if floe cannot decode such a file
    /// piece by piece, or does not recognise it.
    /// A larger NAR than `nar_size_max` is none, either.
    pub fn begin(first: &[u8], nar_size_max: u64) -> Option<ArrivingNar> {
        let compression = Compression::from_signature(first)?;
        // Without memory, the file is read later.
        let decoder = PushDecoder::new(compression).ok()??;
        Some(ArrivingNar {
            compression,
            decoder,
            nar: NarHasher::new(0),
            nar_size_max,
            len: 0,
        })
    }

    /// Takes the next piece. Returns `None` if the file is no NAR, needs more memory, or decodes to
    /// far more bytes than it has: such a piece would keep its worker for too long.
    pub fn push(mut self, piece: &[u8]) -> Option<ArrivingNar> {
        self.len += piece.len() as u64;
        let usual = SMALL_LEN + self.len.saturating_mul(RATIO_MAX);
        self.nar.size_max = usual.min(self.nar_size_max);
        let pushed = self
            .decoder
            .push(piece, &mut |bytes| self.nar.update(bytes));
        pushed.ok().map(|()| self)
    }

    /// Ends the file. Returns its facts, or `None` if it holds no whole NAR.
    pub fn finish(self, (file_hash, file_size): (Hash, u64)) -> Option<NarFile> {
        let mut nar = self.nar;
        let finished = self.decoder.finish(&mut |bytes| nar.update(bytes));
        finished.ok()?;
        let (nar_hash, nar_size) = nar.finish().ok()?;
        Some(NarFile {
            compression: self.compression,
            nar_hash,
            nar_size,
            file_hash,
            file_size,
        })
    }
}

impl fmt::Debug for ArrivingNar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ArrivingNar")
            .field("compression", &self.compression)
            .finish_non_exhaustive()
    }
}

/// Hashes a NAR, and checks that it is one.
pub(super) struct NarHasher {
    reader: NarReader,
    hasher: Sha256,
    size: u64,
    size_max: u64,
}

impl NarHasher {
    pub(super) fn new(size_max: u64) -> NarHasher {
        NarHasher {
            reader: NarReader::new(),
            hasher: Sha256::new(),
            size: 0,
            size_max,
        }
    }

    /// Takes the next bytes.
    ///
    /// Errors: the reason why they belong to no NAR of at most the largest size.
    pub(super) fn update(&mut self, bytes: &[u8]) -> Result<(), String> {
        self.size += bytes.len() as u64;
        // A small file may decode to an endless NAR.
        if self.size > self.size_max {
            return Err(format!(
                "has more than the {} bytes that it may have",
                self.size_max
            ));
        }
        self.hasher.update(bytes);
        let mut rest = bytes;
        while self.reader.next(&mut rest).map_err(damaged)?.is_some() {}
        Ok(())
    }

    /// Returns the hash and the size in bytes.
    ///
    /// Errors: the reason why the bytes are no whole NAR.
    pub(super) fn finish(self) -> Result<(Hash, u64), String> {
        self.reader.finish().map_err(damaged)?;
        Ok((Hash::sha256(self.hasher.finish()), self.size))
    }
}

fn damaged(error: NarError) -> String {
    format!("is damaged: {error}")
}

/// The bytes of a NAR that the smallest file may decode to.
const SMALL_LEN: u64 = 16 * 1024 * 1024;

/// The bytes of a NAR for each byte of its file. Few NARs compress as well.
const RATIO_MAX: u64 = 64;

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use floe_hash::sha256;
    use floe_transfer::codec::encoder;

    use super::*;

    /// The NAR of a file.
    fn nar_of(contents: &[u8]) -> Vec<u8> {
        let mut nar = Vec::new();
        let mut text = |bytes: &[u8]| {
            nar.extend_from_slice(&(bytes.len() as u64).to_le_bytes());
            nar.extend_from_slice(bytes);
            nar.resize(nar.len().next_multiple_of(8), 0);
        };
        for word in ["nix-archive-1", "(", "type", "regular", "contents"] {
            text(word.as_bytes());
        }
        text(contents);
        text(b")");
        nar
    }

    fn compress(compression: Compression, nar: &[u8]) -> Vec<u8> {
        let mut file = Vec::new();
        let mut encoder = encoder(compression, None, &mut file).unwrap().unwrap();
        encoder.write_all(nar).unwrap();
        encoder.finish().unwrap();
        file
    }

    fn arrive(file: &[u8], piece_len: usize) -> Option<NarFile> {
        let mut pieces = file.chunks(piece_len);
        let mut arriving = ArrivingNar::begin(pieces.clone().next()?, 1 << 30)?;
        for piece in &mut pieces {
            arriving = arriving.push(piece)?;
        }
        arriving.finish((Hash::sha256(sha256(file)), file.len() as u64))
    }

    #[test]
    fn facts_are_those_of_the_nar() {
        let contents: Vec<u8> = (0..500_000_u32)
            .map(|n| (n.wrapping_mul(n) >> 7) as u8)
            .collect();
        let nar = nar_of(&contents);
        for compression in [Compression::None, Compression::Zstd, Compression::Xz] {
            let file = compress(compression, &nar);
            let expected = NarFile {
                compression,
                nar_hash: Hash::sha256(sha256(&nar)),
                nar_size: nar.len() as u64,
                file_hash: Hash::sha256(sha256(&file)),
                file_size: file.len() as u64,
            };
            for piece_len in [100, 4096, 300_000] {
                assert_eq!(
                    arrive(&file, piece_len),
                    Some(expected.clone()),
                    "{compression:?}"
                );
            }
        }
    }

    #[test]
    fn other_files_have_no_facts() {
        let nar = nar_of(b"contents");
        let zstd = compress(Compression::Zstd, &nar);
        for file in [
            &b"<html>"[..],
            &nar[..nar.len() - 1],
            &[&nar[..], b"more"].concat(),
            &zstd[..zstd.len() - 1],
            &[&zstd[..], b"more"].concat(),
            &compress(Compression::Zstd, b"no NAR"),
            // There is no decoder for its pieces.
            &compress(Compression::Bzip2, &nar),
        ] {
            assert_eq!(arrive(file, 4096), None, "{file:?}");
        }
        assert!(arrive(&zstd, 4096).is_some());
    }

    #[test]
    fn small_file_of_a_huge_nar_has_no_facts() {
        let file = compress(Compression::Zstd, &nar_of(&vec![0; 64 << 20]));
        assert!(file.len() < 16_384, "{}", file.len());
        assert_eq!(arrive(&file, 1 << 20), None);
    }
}
