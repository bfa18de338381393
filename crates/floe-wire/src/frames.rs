//! The frames of a NAR that a client sends: each begins with its length. An empty one ends them.
//!
//! The source of the format is `FramedSink` and `FramedSource` in Nix's `serialise.hh`.

use crate::input::NUMBER_LEN;

/// The frame after the last one.
pub const END: [u8; 8] = [0; NUMBER_LEN];

/// Returns the bytes before a frame of this length, which must not be zero.
pub fn header(len: usize) -> [u8; 8] {
    (len as u64).to_le_bytes()
}

/// The state of a receiver of frames.
#[derive(Clone, Debug, Default)]
pub struct FrameReader {
    /// The bytes of the current frame that have not arrived.
    left: u64,
    /// The bytes of a length that has arrived in part.
    header: Vec<u8>,
    has_ended: bool,
}

impl FrameReader {
    /// Makes a receiver before the first frame.
    pub fn new() -> FrameReader {
        FrameReader::default()
    }

    /// Returns the next bytes of the contents, and removes them and the lengths before them from
    /// the front of `input`. Returns `None` at the end of the input or of the frames.
    pub fn next<'i>(&mut self, input: &mut &'i [u8]) -> Option<&'i [u8]> {
        while self.left == 0 && !self.has_ended {
            let missing = NUMBER_LEN - self.header.len();
            let (taken, rest) = input.split_at(missing.min(input.len()));
            self.header.extend_from_slice(taken);
            *input = rest;
            let header = <[u8; NUMBER_LEN]>::try_from(&*self.header).ok()?;
            self.header.clear();
            self.left = u64::from_le_bytes(header);
            self.has_ended = self.left == 0;
        }
        let left = usize::try_from(self.left).unwrap_or(usize::MAX);
        let (data, rest) = input.split_at(left.min(input.len()));
        self.left -= data.len() as u64;
        *input = rest;
        Some(data).filter(|data| !data.is_empty())
    }

    /// Whether the last frame has arrived.
    pub fn has_ended(&self) -> bool {
        self.has_ended
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn frames_in_any_pieces_give_their_contents(
            frames in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..40), 0..8),
            piece_len in 1..50_usize,
        ) {
            let mut sent = Vec::new();
            for frame in &frames {
                sent.extend_from_slice(&header(frame.len()));
                sent.extend_from_slice(frame);
            }
            sent.extend_from_slice(&END);
            sent.extend_from_slice(b"rest");
            let (mut reader, mut received, mut rest) = (FrameReader::new(), Vec::new(), Vec::new());
            for mut piece in sent.chunks(piece_len) {
                while let Some(data) = reader.next(&mut piece) {
                    received.extend_from_slice(data);
                }
                rest.extend_from_slice(piece);
            }
            prop_assert!(reader.has_ended());
            prop_assert_eq!(received, frames.concat());
            prop_assert_eq!(rest, b"rest");
        }
    }
}
