//! xz bodies of several blocks, which several cores compress and decompress at once.
//!
//! Nix writes such bodies with `parallel-compression`, and so does `xz -T`. The header of each
//! block has the lengths of the block and of its contents (the .xz file format 1.2.1, section 3.1),
//! so liblzma can pass whole blocks to threads of its own.

use std::io::{self, BufRead, Read, Write};
use std::sync::Arc;

use floe_format::Compression;
use floe_hash::idle_cores::{BusyCore, IdleCores};
use liblzma::bufread::XzDecoder;
use liblzma::stream::{Check, MtStreamBuilder, Stream};
use liblzma::write::XzEncoder;

use super::budget::{DecoderBudget, FramePermit};
use super::window::XzHeader;
use super::{Encoder, LZMA_EXTRA_LEN, XzChecks, xz_level};

/// The threads of a decoder, and the memory that they may use.
#[derive(Debug)]
pub(crate) struct XzThreads {
    count: u32,
    permit: FramePermit,
    window: u64,
}

impl XzThreads {
    /// Returns the threads for a body with contents of `len` bytes, if its blocks can be divided
    /// among cores and there is memory for two of them.
    pub(crate) fn for_body(
        compression: Compression,
        (head, len): (&[u8], u64),
        budget: &DecoderBudget,
        cores: &IdleCores,
    ) -> Option<XzThreads> {
        let header = XzHeader::parse(head).filter(|_| compression == Compression::Xz)?;
        let (block_len, contents_len) = (header.block_len?, header.contents_len?);
        let is_usual = (1..=BLOCK_LEN_MAX).contains(&contents_len) && block_len <= BLOCK_LEN_MAX;
        if !is_usual || contents_len >= len {
            return None;
        }
        // A thread has its block, the contents and the window.
        let needed = block_len + contents_len + header.window + LZMA_EXTRA_LEN;
        let most = len.div_ceil(contents_len).min(cores.cores() as u64);
        (2..=most).rev().find_map(|count| {
            let permit = budget.try_acquire_frame(count * needed)?;
            let count = u32::try_from(count).ok()?;
            let window = header.window;
            Some(XzThreads {
                count,
                permit,
                window,
            })
        })
    }
}

/// Decompresses a body on several threads. The threads work beside the caller, which takes part
/// only if a block does not declare its lengths or does not fit into the memory.
pub(crate) struct XzBlocks<R> {
    /// `None` after an error.
    decoder: Option<XzDecoder<R>>,
    /// Whether the threads have decompressed the first stream.
    is_rest: bool,
    threads: XzThreads,
}

impl<R: BufRead> XzBlocks<R> {
    /// Makes a decoder of a body.
    ///
    /// Errors: liblzma gets no memory.
    pub(crate) fn new(body: R, threads: XzThreads) -> io::Result<XzBlocks<R>> {
        let memory = threads.permit.len();
        let stream = MtStreamBuilder::new()
            .threads(threads.count)
            .memlimit_threading(memory)
            .memlimit_stop(memory)
            .decoder()?;
        Ok(XzBlocks {
            decoder: Some(XzDecoder::new_stream(body, stream)),
            is_rest: false,
            threads,
        })
    }

    /// Goes on after the first stream. liblzma's threads decompress only one.
    fn begin_rest(&mut self, mut body: R) -> io::Result<()> {
        self.is_rest = true;
        while let Some(padding) = leading_zeros(body.fill_buf()?) {
            body.consume(padding);
        }
        if !body.fill_buf()?.is_empty() {
            let memory = self.threads.window + LZMA_EXTRA_LEN;
            // The threads compare the checks as well.
            let stream = Stream::new_stream_decoder(memory, XzChecks::Compare.flags())?;
            self.decoder = Some(XzDecoder::new_stream(body, stream));
        }
        Ok(())
    }
}

impl<R: BufRead> Read for XzBlocks<R> {
    fn read(&mut self, output: &mut [u8]) -> io::Result<usize> {
        while let Some(decoder) = &mut self.decoder {
            let len = decoder.read(output)?;
            if len > 0 || output.is_empty() || self.is_rest {
                return Ok(len);
            }
            if let Some(ended) = self.decoder.take() {
                self.begin_rest(ended.into_inner())?;
            }
        }
        Ok(0)
    }
}

/// Returns the number of zeros at the beginning, if there are any: streams may have padding.
fn leading_zeros(bytes: &[u8]) -> Option<usize> {
    let len = bytes.iter().take_while(|byte| **byte == 0).count();
    (len > 0).then_some(len)
}

/// Compresses blocks on several threads.
pub struct XzBlocksEncoder<W: Write> {
    encoder: XzEncoder<W>,
    _cores: Vec<BusyCore>,
}

impl<W: Write> XzBlocksEncoder<W> {
    /// Makes an encoder of contents of `len` bytes, with a thread for each core that is idle now
    /// and one for the caller. The number of threads does not change the output.
    ///
    /// Errors: liblzma gets no memory.
    pub fn new(
        output: W,
        level: Option<i32>,
        len: u64,
        cores: &Arc<IdleCores>,
    ) -> io::Result<XzBlocksEncoder<W>> {
        let useful = len.div_ceil(xz_block_len(level)).saturating_sub(1);
        let others: Vec<BusyCore> = (0..useful).map_while(|_| cores.try_occupy()).collect();
        let threads = u32::try_from(others.len() + 1).unwrap_or(u32::MAX);
        let stream = MtStreamBuilder::new()
            .threads(threads)
            .preset(xz_level(level))
            .block_size(xz_block_len(level))
            .check(Check::Crc64)
            .encoder()?;
        Ok(XzBlocksEncoder {
            encoder: XzEncoder::new_stream(output, stream),
            _cores: others,
        })
    }
}

impl<W: Write> Write for XzBlocksEncoder<W> {
    fn write(&mut self, contents: &[u8]) -> io::Result<usize> {
        self.encoder.write(contents)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.encoder.flush()
    }
}

impl<W: Write> Encoder for XzBlocksEncoder<W> {
    fn finish(self: Box<Self>) -> io::Result<()> {
        self.encoder.finish()?.flush()
    }
}

/// Returns the length of the contents of a block at a level, in bytes: that of `xz -T`, and so of
/// Nix. It is 24 MiB at the default level.
pub fn xz_block_len(level: Option<i32>) -> u64 {
    let bits = WINDOW_BITS.get(xz_level(level) as usize);
    bits.map_or(BLOCK_LEN_MAX, |bits| (3 << bits).max(1 << 20))
}

/// The binary logarithms of the windows of levels 0 to 9, in bytes.
const WINDOW_BITS: [u32; 10] = [18, 20, 21, 22, 22, 23, 23, 24, 25, 26];

/// The largest block that a thread decompresses, in bytes, with its contents and compressed.
const BLOCK_LEN_MAX: u64 = 32 * 1024 * 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::{WINDOW_LEN_MAX, decoder};

    /// Bytes that compress by about a half.
    fn contents(len: usize) -> Vec<u8> {
        let mut state = 1_u32;
        let next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 28) as u8
        };
        std::iter::repeat_with(next).take(len).collect()
    }

    /// Compresses with blocks of a mebibyte.
    fn compress(contents: &[u8]) -> Vec<u8> {
        let stream = MtStreamBuilder::new()
            .threads(2)
            .preset(0)
            .block_size(1 << 20)
            .check(Check::Crc64)
            .encoder()
            .unwrap();
        let mut encoder = XzEncoder::new_stream(Vec::new(), stream);
        encoder.write_all(contents).unwrap();
        encoder.finish().unwrap()
    }

    fn threads(body: &[u8], len: usize, cores: usize) -> Option<XzThreads> {
        let budget = DecoderBudget::new(1);
        let body = (body, len as u64);
        XzThreads::for_body(Compression::Xz, body, &budget, &IdleCores::new(cores))
    }

    fn decompress(body: &[u8], len: usize) -> io::Result<Vec<u8>> {
        let threads = threads(body, len, 3).expect("the body has blocks");
        let mut output = Vec::new();
        XzBlocks::new(body, threads)?.read_to_end(&mut output)?;
        Ok(output)
    }

    #[test]
    fn threads_decompress_blocks_and_further_streams() {
        let contents = contents(5_500_000);
        let body = compress(&contents);
        assert_eq!(threads(&body, contents.len(), 4).unwrap().count, 4);
        assert_eq!(threads(&body, contents.len(), 40).unwrap().count, 6);
        assert!(decompress(&body, contents.len()).unwrap() == contents);
        let streams = [&body[..], &[0; 8], &compress(b"more")].concat();
        let whole = [&contents[..], b"more"].concat();
        assert!(decompress(&streams, whole.len()).unwrap() == whole);
    }

    #[test]
    fn one_core_and_bodies_of_one_block_have_no_threads() {
        let contents = contents(2_500_000);
        let body = compress(&contents);
        assert!(threads(&body, contents.len(), 1).is_none());
        assert!(threads(&body, 1 << 20, 4).is_none());
        let single = liblzma::encode_all(&contents[..], 0).unwrap();
        assert!(threads(&single, contents.len(), 4).is_none());
    }

    #[test]
    fn damaged_and_cut_bodies_are_errors() {
        let contents = contents(3_500_000);
        let body = compress(&contents);
        for cut in [body.len() - 1, body.len() / 2, 100] {
            let cut = decompress(&body[..cut], contents.len());
            assert!(cut.is_err(), "{:?}", cut.map(|it| it.len()));
        }
        for place in (40..body.len()).step_by(body.len() / 40) {
            let mut damaged = body.clone();
            damaged[place] ^= 0x10;
            let result = decompress(&damaged, contents.len());
            assert!(result.is_err(), "{place}");
        }
    }

    #[test]
    fn decoder_without_permit_uses_no_more_memory_than_its_budget() {
        let contents = contents(3_000_000);
        let body = compress(&contents);
        let budget = DecoderBudget::new(1);
        let all: Vec<FramePermit> =
            std::iter::from_fn(|| budget.try_acquire_frame(1 << 20)).collect();
        let cores = IdleCores::new(4);
        let body = (&body[..], contents.len() as u64);
        assert!(XzThreads::for_body(Compression::Xz, body, &budget, &cores).is_none());
        drop(all);
        assert!(XzThreads::for_body(Compression::Xz, body, &budget, &cores).is_some());
    }

    #[test]
    fn blocks_have_the_length_that_liblzma_chooses() {
        assert_eq!(xz_block_len(None), 24 << 20);
        let contents = contents(200_000);
        for level in 0..=9 {
            let mut encoder = XzEncoder::new_stream(Vec::new(), {
                let mut builder = MtStreamBuilder::new();
                builder.threads(1).preset(level).check(Check::Crc64);
                builder.encoder().unwrap()
            });
            encoder.write_all(&contents).unwrap();
            let header = XzHeader::parse(&encoder.finish().unwrap()).unwrap();
            let chosen = (3 * header.window).max(1 << 20);
            assert_eq!(xz_block_len(i32::try_from(level).ok()), chosen, "{level}");
        }
    }

    #[test]
    fn encoder_writes_blocks_that_every_decoder_reads() {
        let len = xz_block_len(Some(0)) as usize + 1_000_000;
        let contents = contents(len);
        let mut outputs = Vec::new();
        for cores in [0, 3] {
            let cores = Arc::new(IdleCores::new(cores));
            let mut output = Vec::new();
            let encoder = XzBlocksEncoder::new(&mut output, Some(0), len as u64, &cores);
            let mut encoder = Box::new(encoder.unwrap());
            encoder.write_all(&contents).unwrap();
            encoder.finish().unwrap();
            outputs.push(output);
        }
        assert!(outputs[0] == outputs[1]);
        assert!(decompress(&outputs[0], len).unwrap() == contents);
        let mut plain = Vec::new();
        let body = &outputs[0][..];
        let decoder = decoder(Compression::Xz, body, WINDOW_LEN_MAX, XzChecks::Compare);
        decoder.unwrap().unwrap().read_to_end(&mut plain).unwrap();
        assert!(plain == contents);
    }
}
