//! Decodes a body that its sender pushes piece by piece, on one thread.

use std::io;

use floe_format::Compression;
use liblzma::stream::{Action, Status, Stream};
use zstd::stream::raw::{DParameter, Decoder, Operation as _};

use super::budget::SMALL_WINDOW_LEN;
use super::{CHUNK_LEN, DecodeError, LZMA_EXTRA_LEN, XzChecks, zstd_window_log};

/// A decoder of a body whose pieces the caller passes to it. It refuses windows of more than 8 MiB,
/// and compares the checks of xz.
pub struct PushDecoder {
    method: Method,
    /// A piece of the output.
    chunk: Vec<u8>,
    is_at_end: bool,
}

enum Method {
    None,
    Zstd(Decoder<'static>),
    Xz(Stream),
}

/// The result of one step of a decoder.
struct Progress {
    consumed: usize,
    written: usize,
    /// Whether a frame or stream has ended.
    is_at_end: bool,
}

impl PushDecoder {
    /// Makes a decoder, or returns `None` if floe has none of this kind for the compression. It has
    /// them for those that Nix and floe use by themselves: none, zstd and xz.
    ///
    /// Errors: the decoder gets no memory.
    pub fn new(compression: Compression) -> io::Result<Option<PushDecoder>> {
        let method = match compression {
            Compression::None => Method::None,
            Compression::Zstd => {
                let mut decoder = Decoder::new()?;
                let log = zstd_window_log(SMALL_WINDOW_LEN);
                decoder.set_parameter(DParameter::WindowLogMax(log))?;
                Method::Zstd(decoder)
            }
            Compression::Xz => {
                let memory = SMALL_WINDOW_LEN + LZMA_EXTRA_LEN;
                let flags = XzChecks::Compare.flags();
                Method::Xz(Stream::new_stream_decoder(memory, flags)?)
            }
            _ => return Ok(None),
        };
        let needs_chunk = !matches!(method, Method::None);
        Ok(Some(PushDecoder {
            is_at_end: !needs_chunk,
            method,
            chunk: vec![0; if needs_chunk { CHUNK_LEN } else { 0 }],
        }))
    }

    /// Decodes the next piece of the body, and passes the bytes on in chunks.
    ///
    /// Errors: [`DecodeError`]. The decoder is of no use then.
    pub fn push<E>(
        &mut self,
        mut piece: &[u8],
        receive: &mut dyn FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), DecodeError<E>> {
        if let Method::None = self.method {
            return receive(piece).map_err(DecodeError::Receiver);
        }
        // A full chunk may have left bytes in the decoder.
        let mut is_full = false;
        while !piece.is_empty() || is_full {
            let progress = self.method.run(piece, &mut self.chunk, Action::Run);
            let progress = progress.map_err(DecodeError::Damaged)?;
            piece = &piece[progress.consumed..];
            self.is_at_end = progress.is_at_end;
            is_full = progress.written == self.chunk.len() && !self.is_at_end;
            receive(&self.chunk[..progress.written]).map_err(DecodeError::Receiver)?;
        }
        Ok(())
    }

    /// Ends the body.
    ///
    /// Errors: [`DecodeError`]; the body ends within a frame or stream.
    pub fn finish<E>(
        mut self,
        receive: &mut dyn FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), DecodeError<E>> {
        while let Method::Xz(_) = self.method {
            // Only the end of the body tells that no other stream follows.
            let progress = self.method.run(&[], &mut self.chunk, Action::Finish);
            let progress = progress.map_err(DecodeError::Damaged)?;
            receive(&self.chunk[..progress.written]).map_err(DecodeError::Receiver)?;
            self.is_at_end = progress.is_at_end;
            if progress.written == 0 {
                break;
            }
        }
        if self.is_at_end {
            return Ok(());
        }
        let reason = "the body ends too early";
        Err(DecodeError::Damaged(io::Error::new(
            io::ErrorKind::UnexpectedEof,
            reason,
        )))
    }
}

impl Method {
    /// Decodes some bytes of `input` into `output`.
    ///
    /// Errors: the body is damaged, or needs a larger window.
    fn run(&mut self, input: &[u8], output: &mut [u8], action: Action) -> io::Result<Progress> {
        match self {
            Method::None => Err(io::Error::other("such a body needs no decoder")),
            Method::Zstd(decoder) => {
                let status = decoder.run_on_buffers(input, output)?;
                Ok(Progress {
                    consumed: status.bytes_read,
                    written: status.bytes_written,
                    is_at_end: status.remaining == 0,
                })
            }
            Method::Xz(stream) => {
                let (read, written) = (stream.total_in(), stream.total_out());
                let status = stream.process(input, output, action)?;
                let since = |total: u64, before: u64| usize::try_from(total - before).unwrap_or(0);
                Ok(Progress {
                    consumed: since(stream.total_in(), read),
                    written: since(stream.total_out(), written),
                    is_at_end: matches!(status, Status::StreamEnd),
                })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use proptest::prelude::*;

    use super::*;
    use crate::codec::encoder;

    const METHODS: [Compression; 3] = [Compression::None, Compression::Zstd, Compression::Xz];

    fn encode(compression: Compression, level: i32, message: &[u8]) -> Vec<u8> {
        let mut output = Vec::new();
        let made = encoder(compression, Some(level), &mut output).unwrap();
        let mut encoder = made.unwrap();
        encoder.write_all(message).unwrap();
        encoder.finish().unwrap();
        output
    }

    fn decode(
        compression: Compression,
        body: &[u8],
        piece_len: usize,
    ) -> Result<Vec<u8>, DecodeError<()>> {
        let mut message = Vec::new();
        let mut receive = |bytes: &[u8]| {
            message.extend_from_slice(bytes);
            Ok(())
        };
        let mut decoder = PushDecoder::new(compression).unwrap().unwrap();
        for piece in body.chunks(piece_len) {
            decoder.push(piece, &mut receive)?;
        }
        decoder.finish(&mut receive)?;
        Ok(message)
    }

    /// A text that compresses well in places only.
    fn message(len: u32, seed: u32) -> Vec<u8> {
        let word = |n: u32| (n ^ seed).wrapping_mul(n) / 7 % (1 + n % 4096);
        (0..len / 4).flat_map(|n| word(n).to_le_bytes()).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn pieces_of_every_length_decode(
            lens in prop::collection::vec(0u32..700_000, 1..4),
            seed: u32,
            piece_len in 1usize..70_000,
        ) {
            for compression in METHODS {
                let parts: Vec<Vec<u8>> = lens.iter().map(|len| message(*len, seed)).collect();
                let frames = parts.iter().map(|part| encode(compression, 1, part));
                let body = frames.collect::<Vec<_>>().concat();
                prop_assert_eq!(
                    decode(compression, &body, piece_len).unwrap(),
                    parts.concat(),
                    "{:?}", compression
                );
            }
        }
    }

    /// The contents are far longer than a chunk of the output, also at the end of the body.
    #[test]
    fn well_compressed_bodies_decode() {
        let message = vec![7; 40 * CHUNK_LEN];
        for compression in METHODS {
            let body = encode(compression, 3, &message);
            for piece_len in [1 + body.len() / 3, body.len()] {
                let decoded = decode(compression, &body, piece_len).unwrap();
                assert_eq!(decoded.len(), message.len(), "{compression:?}");
            }
        }
    }

    #[test]
    fn damaged_bodies_are_refused() {
        for compression in [Compression::Zstd, Compression::Xz] {
            let body = encode(compression, 3, &message(300_000, 1));
            for cut in [1, body.len() / 2, body.len() - 1] {
                let cut = decode(compression, &body[..cut], 1000);
                assert!(
                    matches!(cut, Err(DecodeError::Damaged(_))),
                    "{compression:?}"
                );
            }
            let longer = [&body[..], b"more than the body"].concat();
            let longer = decode(compression, &longer, 1000);
            assert!(
                matches!(longer, Err(DecodeError::Damaged(_))),
                "{compression:?}"
            );
        }
    }

    #[test]
    fn large_windows_are_refused() {
        let message = message(400_000, 1);
        let mut zstd = zstd::stream::Encoder::new(Vec::new(), 1).unwrap();
        zstd.long_distance_matching(true).unwrap();
        zstd.window_log(27).unwrap();
        zstd.write_all(&message).unwrap();
        let zstd = zstd.finish().unwrap();
        for (compression, body) in [
            (Compression::Zstd, zstd),
            (Compression::Xz, encode(Compression::Xz, 9, &message)),
        ] {
            let decoded = decode(compression, &body, 1000);
            assert!(
                matches!(decoded, Err(DecodeError::Damaged(_))),
                "{compression:?}"
            );
        }
    }

    #[test]
    fn receiver_ends_the_body() {
        let body = encode(Compression::Zstd, 3, &vec![7; 40 * CHUNK_LEN]);
        let mut decoder = PushDecoder::new(Compression::Zstd).unwrap().unwrap();
        let mut calls = 0;
        let pushed = decoder.push(&body, &mut |_| {
            calls += 1;
            if calls == 3 { Err("enough") } else { Ok(()) }
        });
        assert!(matches!(pushed, Err(DecodeError::Receiver("enough"))));
        assert_eq!(calls, 3);
    }
}
