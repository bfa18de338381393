//! A Zstandard frame whose bytes arrive piece by piece.

use super::zstd_header::{ZSTD_BLOCK_HEADER_LEN, ZSTD_CHECKSUM_LEN, ZstdBlock, ZstdHeader};

/// The bytes of a frame, up to the point that the headers so far tell.
#[derive(Debug)]
pub(super) struct ArrivingFrame {
    pub(super) bytes: Vec<u8>,
    step: Step,
    /// The length at which the next header, or the frame, is complete.
    target: usize,
    has_checksum: bool,
}

#[derive(Debug)]
enum Step {
    /// The header of the frame ends at the target, or later.
    Header,
    /// The header of a block ends at the target.
    Block,
    /// The frame ends at the target.
    End,
}

/// The progress of a frame after a piece.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Arrived {
    /// A part of the frame has arrived.
    Part,
    Header(ZstdHeader),
    Frame,
    /// Bytes that begin no frame with contents, or are damaged.
    Unknown,
}

impl Default for ArrivingFrame {
    fn default() -> ArrivingFrame {
        ArrivingFrame {
            bytes: Vec::new(),
            step: Step::Header,
            target: ZstdHeader::LEN_MIN,
            has_checksum: false,
        }
    }
}

impl ArrivingFrame {
    /// Takes the next bytes, at most up to the next point of interest. Returns how many bytes it
    /// took, and what is complete.
    pub(super) fn push(&mut self, input: &[u8]) -> (usize, Arrived) {
        let len = input.len().min(self.target - self.bytes.len());
        self.bytes.extend_from_slice(&input[..len]);
        let arrived = if self.bytes.len() == self.target {
            self.advance()
        } else {
            Arrived::Part
        };
        (len, arrived)
    }

    fn advance(&mut self) -> Arrived {
        match self.step {
            Step::Header => match ZstdHeader::parse(&self.bytes) {
                Some(header) => {
                    self.has_checksum = header.has_checksum;
                    self.target += ZSTD_BLOCK_HEADER_LEN;
                    self.step = Step::Block;
                    Arrived::Header(header)
                }
                None if ZstdHeader::may_begin(&self.bytes) => {
                    self.target += 1;
                    Arrived::Part
                }
                None => Arrived::Unknown,
            },
            Step::Block => self.begin_block(),
            Step::End => Arrived::Frame,
        }
    }

    fn begin_block(&mut self) -> Arrived {
        let header = self.bytes.last_chunk().copied();
        let Some(block) = header.and_then(ZstdBlock::parse) else {
            return Arrived::Unknown;
        };
        self.target += block.len;
        if !block.is_last {
            self.target += ZSTD_BLOCK_HEADER_LEN;
            return Arrived::Part;
        }
        if self.has_checksum {
            self.target += ZSTD_CHECKSUM_LEN;
        }
        self.step = Step::End;
        if self.bytes.len() == self.target {
            return Arrived::Frame;
        }
        Arrived::Part
    }
}
