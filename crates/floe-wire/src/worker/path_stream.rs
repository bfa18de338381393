//! The paths of `AddMultipleToStore`, within its frames: their number, and for each of them its
//! metadata and its NAR.

use floe_format::{PathInfo, StoreDir};

use super::path_info::{read_info, read_path};
use crate::error::WireError;
use crate::input::Input;

/// Reads the paths of `AddMultipleToStore` from the contents of its frames, in pieces.
#[derive(Debug, Default)]
pub struct PathStream {
    state: State,
    /// The beginning of a description that has arrived in part.
    pending: Vec<u8>,
    /// The description has at least this number of bytes.
    needed: usize,
}

#[derive(Debug, Default)]
enum State {
    /// Before the number of paths.
    #[default]
    Count,
    /// Before a path, with the number of paths that follow.
    Info(u64),
    /// Within a NAR, with the number of bytes and of paths that follow.
    Nar(u64, u64),
}

/// An event of [`PathStream`].
#[derive(Debug, PartialEq, Eq)]
pub enum PathStreamEvent<'a> {
    /// A path begins. Its NAR follows.
    Path(Box<PathInfo>),
    /// The next bytes of the NAR.
    Data(&'a [u8]),
    /// The NAR has the announced size.
    PathEnd,
    /// All paths have arrived.
    End,
}

impl PathStream {
    /// Returns the next event, and removes its bytes from the front of `input`. `None` means that
    /// it needs more bytes.
    ///
    /// Errors: the client breaks the format.
    pub fn next<'i>(
        &mut self,
        input: &mut &'i [u8],
        dir: &StoreDir,
    ) -> Result<Option<PathStreamEvent<'i>>, WireError> {
        match self.state {
            State::Count => {
                let Some(count) = self.parse(input, |input| input.number())? else {
                    return Ok(None);
                };
                self.state = State::Info(count);
                self.next(input, dir)
            }
            State::Info(0) => Ok(Some(PathStreamEvent::End)),
            State::Info(left) => {
                let info = self.parse(input, |input| {
                    let path = read_path(input, dir)?;
                    read_info(input, path, dir)
                })?;
                let Some(info) = info else {
                    return Ok(None);
                };
                self.state = State::Nar(info.nar_size, left - 1);
                Ok(Some(PathStreamEvent::Path(Box::new(info))))
            }
            State::Nar(0, paths) => {
                self.state = State::Info(paths);
                Ok(Some(PathStreamEvent::PathEnd))
            }
            State::Nar(left, paths) => {
                let len = usize::try_from(left).unwrap_or(usize::MAX);
                let (data, rest) = input.split_at(len.min(input.len()));
                *input = rest;
                self.state = State::Nar(left - data.len() as u64, paths);
                Ok((!data.is_empty()).then_some(PathStreamEvent::Data(data)))
            }
        }
    }

    /// Whether all bytes of a NAR have arrived, and [`PathStreamEvent::PathEnd`] is next.
    pub fn is_at_end_of_nar(&self) -> bool {
        matches!(self.state, State::Nar(0, _))
    }

    /// Parses a message from the pending bytes and those of `input`.
    fn parse<T>(
        &mut self,
        input: &mut &[u8],
        parse: impl FnOnce(&mut Input<'_>) -> Result<T, WireError>,
    ) -> Result<Option<T>, WireError> {
        let before = self.pending.len();
        self.pending.extend_from_slice(input);
        if self.pending.len() < self.needed {
            *input = &[];
            return Ok(None);
        }
        let mut bytes = Input::new(&self.pending);
        match parse(&mut bytes) {
            Ok(parsed) => {
                *input = &input[bytes.len_read() - before..];
                self.pending.clear();
                self.needed = 0;
                Ok(Some(parsed))
            }
            Err(WireError::Incomplete { needed, .. }) if needed <= INFO_LEN_MAX => {
                self.needed = needed;
                *input = &[];
                Ok(None)
            }
            Err(WireError::Incomplete { needed, .. }) => Err(WireError::TooLong {
                what: "the description of a path",
                len: needed as u64,
                max: INFO_LEN_MAX as u64,
            }),
            Err(error) => Err(error),
        }
    }
}

/// The longest description of a path in bytes: one of many thousand references.
const INFO_LEN_MAX: usize = 16 * 1024 * 1024;
