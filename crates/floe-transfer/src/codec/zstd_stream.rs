//! A Zstandard frame that is decompressed as it arrives.

use std::io::{self, BufRead};

use zstd::stream::raw::{DParameter, Decoder, Operation as _};

/// A decoder of one frame.
pub(super) struct ZstdStream {
    decoder: Decoder<'static>,
    /// The bytes that had arrived before.
    early: Vec<u8>,
    /// How many of them the decoder has consumed.
    consumed: usize,
}

impl ZstdStream {
    /// Makes a decoder of the frame that begins with `early`.
    ///
    /// Errors: zstd gets no memory.
    pub(super) fn new(early: Vec<u8>, window_log_max: u32) -> io::Result<ZstdStream> {
        let mut decoder = Decoder::new()?;
        decoder.set_parameter(DParameter::WindowLogMax(window_log_max))?;
        Ok(ZstdStream {
            decoder,
            early,
            consumed: 0,
        })
    }

    /// Decompresses a piece of at most `len_max` bytes into `output`. Returns whether the frame has
    /// ended.
    ///
    /// Errors: those of the body; an invalid frame, or a body that ends within it.
    pub(super) fn decompress(
        &mut self,
        body: &mut impl BufRead,
        output: &mut Vec<u8>,
        len_max: usize,
    ) -> io::Result<bool> {
        output.resize(len_max, 0);
        let early = &self.early[self.consumed..];
        let (input, is_early) = match early {
            [] => (body.fill_buf()?, false),
            early => (early, true),
        };
        let is_at_end = input.is_empty();
        let status = self.decoder.run_on_buffers(input, output);
        let status = status.inspect_err(|_| output.clear())?;
        output.truncate(status.bytes_written);
        if is_early {
            self.consumed += status.bytes_read;
        } else {
            body.consume(status.bytes_read);
        }
        if status.remaining > 0 && is_at_end && output.is_empty() {
            let reason = "the body ends within a frame";
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, reason));
        }
        Ok(status.remaining == 0)
    }
}
