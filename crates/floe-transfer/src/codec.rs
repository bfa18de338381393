//! Compressions: one decoder and one encoder for each that binary caches use.
//!
//! A decoder reads all frames, blocks, streams or members of a body, not only the first, and fails
//! on any other data.

mod arriving_frame;
mod budget;
mod decode;
mod frame_queue;
mod push_decoder;
mod window;
mod xz_blocks;
mod zstd_decoder;
mod zstd_frames;
mod zstd_header;
mod zstd_stream;

use std::io::{self, BufRead, Read, Write};

use floe_format::Compression;
use liblzma::stream::{CONCATENATED, IGNORE_CHECK, Stream};

pub use budget::DecoderBudget;
use budget::SMALL_WINDOW_LEN;
pub use decode::{DecodeError, acquire_window, decode};
pub use push_decoder::PushDecoder;
pub use window::window_len;
pub(crate) use xz_blocks::{XzBlocks, XzThreads};
pub use xz_blocks::{XzBlocksEncoder, xz_block_len};
pub use zstd_decoder::ZstdDecoder;
pub(crate) use zstd_decoder::has_zstd_frames;
pub use zstd_frames::{ZSTD_FRAME_LEN, ZstdFrames};

/// Whether a decoder compares the integrity checks of xz. They take a tenth of the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XzChecks {
    /// For a file that other programs will decode, which may compare them.
    Compare,
    /// For contents whose hash the caller compares.
    Ignore,
}

impl XzChecks {
    /// Returns the flags of a decoder of liblzma.
    fn flags(self) -> u32 {
        match self {
            XzChecks::Compare => CONCATENATED,
            XzChecks::Ignore => CONCATENATED | IGNORE_CHECK,
        }
    }
}

/// Returns a decoder of a compressed body, or `None` if floe has none for the compression. The
/// decoder keeps at most `window` bytes, but at least a small window, and fails if it needs more.
pub fn decoder<'a, R: BufRead + 'a>(
    compression: Compression,
    mut body: R,
    window: u64,
    checks: XzChecks,
) -> io::Result<Option<Box<dyn Read + 'a>>> {
    let window_log = zstd_window_log(window);
    let window = usable_window(window);
    Ok(Some(match compression {
        Compression::None => Box::new(body),
        Compression::Zstd => {
            let mut decoder = zstd::stream::read::Decoder::with_buffer(body)?;
            decoder.window_log_max(window_log)?;
            Box::new(decoder)
        }
        Compression::Xz => {
            let memory = window + LZMA_EXTRA_LEN;
            let stream = Stream::new_stream_decoder(memory, checks.flags())?;
            Box::new(liblzma::bufread::XzDecoder::new_stream(body, stream))
        }
        Compression::Lzma => {
            let stream = Stream::new_lzma_decoder(window + LZMA_EXTRA_LEN)?;
            Box::new(liblzma::bufread::XzDecoder::new_stream(body, stream))
        }
        Compression::Bzip2 => Box::new(bzip2::bufread::MultiBzDecoder::new(body)),
        Compression::Gzip => Box::new(flate2::bufread::MultiGzDecoder::new(body)),
        Compression::Brotli => {
            // RFC 7932 reserves these first bits. Encoders use them for windows of up to a
            // gibibyte.
            if body.fill_buf()?.first().is_some_and(|b| b & 0x7f == 0x11) {
                return Err(io::Error::other("its window is larger than brotli allows"));
            }
            Box::new(brotli::Decompressor::new(body, BROTLI_BUFFER_LEN))
        }
        Compression::Lz4 => Box::new(Lz4Frames(lz4_flex::frame::FrameDecoder::new(body))),
        Compression::Unsupported(_) => return Ok(None),
    }))
}

fn usable_window(window: u64) -> u64 {
    window.clamp(SMALL_WINDOW_LEN, WINDOW_LEN_MAX)
}

/// Returns the logarithm of a window for a decoder of zstd.
fn zstd_window_log(window: u64) -> u32 {
    usable_window(window).next_power_of_two().ilog2()
}

/// Returns an encoder that writes to `output`, or `None` if floe has none for the compression.
pub fn encoder<'a, W: Write + 'a>(
    compression: Compression,
    level: Option<i32>,
    output: W,
) -> io::Result<Option<Box<dyn Encoder + 'a>>> {
    // As in Nix, a level outside the range of the compression means the nearest valid level.
    let within = |low: i32, high: i32, default: i32| level.unwrap_or(default).clamp(low, high);
    Ok(Some(match compression {
        Compression::None => Box::new(Finishable(output, Ok)),
        Compression::Zstd => {
            let encoder = zstd::stream::write::Encoder::new(output, zstd_level(level))?;
            Box::new(Finishable(encoder, zstd::stream::write::Encoder::finish))
        }
        Compression::Xz => {
            let encoder = liblzma::write::XzEncoder::new(output, xz_level(level));
            Box::new(Finishable(encoder, liblzma::write::XzEncoder::finish))
        }
        Compression::Bzip2 => {
            let level = bzip2::Compression::new(within(1, 9, 9).unsigned_abs());
            let encoder = bzip2::write::BzEncoder::new(output, level);
            Box::new(Finishable(encoder, bzip2::write::BzEncoder::finish))
        }
        Compression::Gzip => {
            let level = flate2::Compression::new(within(0, 9, 6).unsigned_abs());
            let encoder = flate2::write::GzEncoder::new(output, level);
            Box::new(Finishable(encoder, flate2::write::GzEncoder::finish))
        }
        Compression::Brotli => {
            let quality = within(0, 11, 9).unsigned_abs();
            let (buffer, window) = (BROTLI_BUFFER_LEN, BROTLI_WINDOW_BITS);
            let encoder = brotli::CompressorWriter::new(output, buffer, quality, window);
            let finish = |encoder: brotli::CompressorWriter<W>| Ok(encoder.into_inner());
            Box::new(Finishable(encoder, finish))
        }
        Compression::Lz4 => {
            let encoder = lz4_flex::frame::FrameEncoder::new(output);
            let finish = |encoder: lz4_flex::frame::FrameEncoder<W>| {
                encoder.finish().map_err(io::Error::other)
            };
            Box::new(Finishable(encoder, finish))
        }
        Compression::Lzma | Compression::Unsupported(_) => return Ok(None),
    }))
}

/// Returns the level of xz for that of a store URI.
fn xz_level(level: Option<i32>) -> u32 {
    level.unwrap_or(6).clamp(0, 9).unsigned_abs()
}

/// Returns the level of zstd for that of a store URI.
fn zstd_level(level: Option<i32>) -> i32 {
    level.unwrap_or(3).clamp(-7, 22)
}

/// Whether decoders of a compression usually need the largest window that needs no permit.
pub fn has_large_window(compression: &Compression) -> bool {
    matches!(compression, Compression::Xz | Compression::Lzma)
}

/// Whether one encoder keeps a core busy, and needs so much memory that more than one per core are
/// a waste.
pub fn needs_core(compression: Compression) -> bool {
    !matches!(
        compression,
        Compression::None | Compression::Zstd | Compression::Lz4 | Compression::Gzip
    )
}

/// A compressed stream that must be finished.
pub trait Encoder: Write {
    /// Writes the end of the stream.
    fn finish(self: Box<Self>) -> io::Result<()>;
}

/// An encoder, and the function that writes its end and returns its output.
struct Finishable<E, F>(E, F);

impl<E: Write, F> Write for Finishable<E, F> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }
    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

impl<E: Write, W: Write, F: FnOnce(E) -> io::Result<W>> Encoder for Finishable<E, F> {
    fn finish(self: Box<Self>) -> io::Result<()> {
        (self.1)(self.0)?.flush()
    }
}

/// A decoder of all frames. `FrameDecoder` returns 0 after each frame, and reads the next one if it
/// is called again.
struct Lz4Frames<R: BufRead>(lz4_flex::frame::FrameDecoder<R>);

impl<R: BufRead> Read for Lz4Frames<R> {
    fn read(&mut self, output: &mut [u8]) -> io::Result<usize> {
        loop {
            let read = self.0.read(output)?;
            if read > 0 || self.0.get_mut().fill_buf()?.is_empty() {
                return Ok(read);
            }
        }
    }
}

/// The largest window that floe accepts, in bytes. It is the window of `zstd --long`, above which
/// zstd's own programs need an option as well, and twice that of `xz -9`.
pub const WINDOW_LEN_MAX: u64 = 128 * 1024 * 1024;

/// An upper bound for the memory that liblzma needs beside the window, in bytes.
const LZMA_EXTRA_LEN: u64 = 1024 * 1024;

/// The input buffer of `brotli`, in bytes. A larger one was not faster.
const BROTLI_BUFFER_LEN: usize = 64 * 1024;

/// How many bytes of its output a decoder passes on at once.
const CHUNK_LEN: usize = 128 * 1024;

/// The window of the reference encoder's command line.
const BROTLI_WINDOW_BITS: u32 = 22;

#[cfg(test)]
mod tests {
    use floe_testkit::with_wrong_xz_check;

    use super::*;

    const WRITTEN: [Compression; 7] = [
        Compression::None,
        Compression::Zstd,
        Compression::Xz,
        Compression::Bzip2,
        Compression::Gzip,
        Compression::Brotli,
        Compression::Lz4,
    ];

    fn encode(compression: Compression, message: &[u8]) -> Vec<u8> {
        let mut output = Vec::new();
        let mut encoder = encoder(compression, None, &mut output).unwrap().unwrap();
        encoder.write_all(message).unwrap();
        encoder.finish().unwrap();
        output
    }

    fn decode(compression: Compression, body: &[u8]) -> io::Result<Vec<u8>> {
        let mut message = Vec::new();
        let window = window_len(compression, body).unwrap_or(WINDOW_LEN_MAX);
        decoder(compression, body, window, XzChecks::Compare)?
            .unwrap()
            .read_to_end(&mut message)?;
        Ok(message)
    }

    fn message() -> Vec<u8> {
        (0..300_000_u32)
            .flat_map(|n| (n.wrapping_mul(n) / 7).to_le_bytes())
            .collect()
    }

    #[test]
    fn every_compression_round_trips() {
        for compression in WRITTEN {
            for message in [message(), Vec::new()] {
                let body = encode(compression, &message);
                assert_eq!(
                    decode(compression, &body).unwrap(),
                    message,
                    "{compression:?}"
                );
            }
        }
    }

    #[test]
    fn decoder_reads_every_frame() {
        for compression in WRITTEN {
            // A brotli body has only one stream.
            if compression == Compression::Brotli {
                continue;
            }
            let mut body = encode(compression, b"one ");
            body.extend(encode(compression, b"two"));
            assert_eq!(
                decode(compression, &body).unwrap(),
                b"one two",
                "{compression:?}"
            );
        }
    }

    #[test]
    fn xz_decoder_reads_every_block() {
        let message = message();
        let options = liblzma::stream::LzmaOptions::new_preset(6).unwrap();
        let mut filters = liblzma::stream::Filters::new();
        filters.lzma2(&options);
        let block_len = message.len() as u64 / 5;
        let stream = liblzma::stream::MtStreamBuilder::new()
            .threads(2)
            .block_size(block_len)
            .filters(filters)
            .check(liblzma::stream::Check::Crc64)
            .encoder()
            .unwrap();
        let mut encoder = liblzma::write::XzEncoder::new_stream(Vec::new(), stream);
        encoder.write_all(&message).unwrap();
        let body = encoder.finish().unwrap();
        assert_eq!(decode(Compression::Xz, &body).unwrap(), message);
    }

    #[test]
    fn wrong_xz_check_is_an_error_where_checks_are_compared() {
        let body = with_wrong_xz_check(encode(Compression::Xz, &message()));
        let read = |checks| {
            let mut contents = Vec::new();
            let decoder = decoder(Compression::Xz, &body[..], WINDOW_LEN_MAX, checks);
            let read = decoder.unwrap().unwrap().read_to_end(&mut contents);
            read.map(|_| contents)
        };
        assert_eq!(read(XzChecks::Ignore).unwrap(), message());
        assert!(read(XzChecks::Compare).is_err());
        let mut receive = |_: &[u8]| Ok::<(), ()>(());
        let whole = super::decode(Compression::Xz, &body[..], &mut receive);
        assert!(matches!(whole, Err(DecodeError::Damaged(_))), "{whole:?}");
        let mut pieces = PushDecoder::new(Compression::Xz).unwrap().unwrap();
        let pushed = pieces.push(&body, &mut receive);
        let ended = pushed.and_then(|()| pieces.finish(&mut receive));
        assert!(matches!(ended, Err(DecodeError::Damaged(_))), "{ended:?}");
    }

    #[test]
    fn truncated_body_is_an_error() {
        for compression in WRITTEN {
            if compression == Compression::None {
                continue;
            }
            let body = encode(compression, &message());
            assert!(body.len() > 1000);
            // The lz4 decoder accepts a missing end mark; sizes and hashes detect it.
            let end_mark_len = if compression == Compression::Lz4 {
                5
            } else {
                1
            };
            for cut in [1, body.len() / 2, body.len() - end_mark_len] {
                let cut = decode(compression, &body[..cut]);
                assert!(
                    cut.is_err(),
                    "{compression:?} gave {:?}",
                    cut.map(|m| m.len())
                );
            }
        }
    }

    #[test]
    fn lzma_decodes_and_has_no_encoder() {
        assert!(
            encoder(Compression::Lzma, None, Vec::new())
                .unwrap()
                .is_none()
        );
        let options = liblzma::stream::LzmaOptions::new_preset(6).unwrap();
        let stream = Stream::new_lzma_encoder(&options).unwrap();
        let mut encoder = liblzma::write::XzEncoder::new_stream(Vec::new(), stream);
        encoder.write_all(&message()).unwrap();
        let body = encoder.finish().unwrap();
        assert_eq!(decode(Compression::Lzma, &body).unwrap(), message());
    }
}
