//! A NAR reader that is pushed bytes and hands out events, without IO of its own.
//!
//! Contents of files are never copied: [`NarEvent::Data`] is a piece of the input. Only a name, a
//! symlink target or a word of the format that straddles two pushes is put together in a buffer
//! of limited size. After a short warm-up no event allocates.

use crate::nar::padding_len;
use crate::nar::read::grammar::ParseState;
use crate::nar::read::strings::StringRef;

pub use crate::nar::error::NarError;

mod grammar;
mod strings;

/// A step through a NAR.
///
/// The order is: a node is `Directory (Entry node)* EndDirectory`, or `Symlink`, or
/// `File Data* EndFile`. After the root node comes one `End`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NarEvent<'a> {
    /// A directory begins.
    Directory,
    /// An entry of the innermost directory; its node follows. Names come in rising order.
    Entry {
        /// The name, which is valid as [`crate::nar::is_valid_entry_name`] has it.
        name: &'a [u8],
    },
    /// The innermost directory ends.
    EndDirectory,
    /// A symlink, whole.
    Symlink {
        /// The target, which is valid as [`crate::nar::is_valid_symlink_target`] has it.
        target: &'a [u8],
    },
    /// A file begins.
    File {
        /// Whether it may be executed.
        executable: bool,
        /// How many bytes of data follow.
        size: u64,
    },
    /// The next piece of the file's contents, never empty.
    Data(&'a [u8]),
    /// The file ends.
    EndFile,
    /// The NAR ends.
    End,
}

/// Reads one NAR, as strictly as the newest Nix does.
///
/// ```
/// use floe_format::nar::read::{NarEvent, NarReader};
/// use floe_format::nar::write;
///
/// let mut nar = Vec::new();
/// write::begin(&mut nar);
/// write::symlink(&mut nar, b"target");
///
/// let mut reader = NarReader::new();
/// let mut input = nar.as_slice();
/// while let Some(event) = reader.next(&mut input)? {
///     if let NarEvent::Symlink { target } = event {
///         assert_eq!(target, b"target");
///     }
/// }
/// reader.finish()?;
/// # Ok::<(), floe_format::nar::read::NarError>(())
/// ```
#[derive(Clone, Debug)]
pub struct NarReader {
    state: ParseState,
    // Where in the NAR the string, size, data or padding begins that is read next.
    position: u64,
    // The front of a string or size that straddles pushes.
    partial: Vec<u8>,
    // The string that was last completed from the partial, its length in front.
    assembled: Vec<u8>,
    // The names last seen in the open directories, one after the other, outermost first.
    names: Vec<u8>,
    // Where in `names` the part of each open directory begins.
    directories: Vec<usize>,
    error: Option<NarError>,
}

impl NarReader {
    /// A reader that has seen no bytes.
    pub fn new() -> NarReader {
        NarReader {
            state: ParseState::Magic,
            position: 0,
            partial: Vec::new(),
            assembled: Vec::new(),
            names: Vec::new(),
            directories: Vec::new(),
            error: None,
        }
    }

    /// The next event, read from the front of `input`, which is shortened by what was taken.
    ///
    /// `None` means that the input is used up: push more, or call [`NarReader::finish`]. After an
    /// error the same error comes again.
    #[inline]
    pub fn next<'reader, 'input: 'reader>(
        &'reader mut self,
        input: &mut &'input [u8],
    ) -> Result<Option<NarEvent<'reader>>, NarError> {
        if let Some(error) = &self.error {
            return Err(error.clone());
        }
        match self.step(input) {
            Ok(step) => Ok(step.map(|step| step.event(&self.assembled))),
            Err(error) => {
                self.error = Some(error.clone());
                Err(error)
            }
        }
    }

    /// Where in the NAR the next unread byte is.
    pub fn offset(&self) -> u64 {
        self.position + self.partial.len() as u64
    }

    /// Whether [`NarEvent::End`] was handed out.
    pub fn is_finished(&self) -> bool {
        self.state == ParseState::Finished
    }

    /// To be called when the bytes have ended: an error if the NAR has not.
    pub fn finish(&self) -> Result<(), NarError> {
        match (&self.error, self.state) {
            (Some(error), _) => Err(error.clone()),
            (None, ParseState::RootDone | ParseState::Finished) => Ok(()),
            (None, _) => Err(NarError::Truncated {
                offset: self.offset(),
            }),
        }
    }

    /// Goes from state to state until there is something to tell or the input is used up.
    fn step<'input>(&mut self, input: &mut &'input [u8]) -> Result<Option<Step<'input>>, NarError> {
        loop {
            let step = match self.state {
                ParseState::Size { executable } => match self.size(input) {
                    Some(size) => Some(self.begin_file(executable, size)),
                    None => return Ok(None),
                },
                ParseState::RootDone => {
                    self.state = ParseState::Finished;
                    Some(Step::Plain(NarEvent::End))
                }
                _ if input.is_empty() => return Ok(None),
                ParseState::Data { size, left } => Some(self.data(input, size, left)),
                ParseState::Padding { len, seen } => {
                    self.padding(input, len, seen)?;
                    None
                }
                ParseState::Finished => {
                    return Err(NarError::TrailingBytes {
                        offset: self.position,
                    });
                }
                _ => match self.string(input)? {
                    Some(string) => self.accept(string)?,
                    None => return Ok(None),
                },
            };
            if step.is_some() {
                return Ok(step);
            }
        }
    }

    fn begin_file<'input>(&mut self, executable: bool, size: u64) -> Step<'input> {
        self.state = match size {
            0 => ParseState::FileClose,
            _ => ParseState::Data { size, left: size },
        };
        Step::Plain(NarEvent::File { executable, size })
    }

    /// Hands out as much of the file as the input has.
    #[inline]
    fn data<'input>(&mut self, input: &mut &'input [u8], size: u64, left: u64) -> Step<'input> {
        let whole = usize::try_from(left).unwrap_or(usize::MAX);
        let (piece, rest) = input.split_at_checked(whole).unwrap_or((input, &[]));
        *input = rest;
        self.position = self.position.wrapping_add(piece.len() as u64);
        self.state = match (left - piece.len() as u64, padding_len(size)) {
            (0, 0) => ParseState::FileClose,
            (0, len) => ParseState::Padding { len, seen: 0 },
            (left, _) => ParseState::Data { size, left },
        };
        Step::Plain(NarEvent::Data(piece))
    }

    /// Skips the zeros behind a file.
    #[inline]
    fn padding(&mut self, input: &mut &[u8], len: usize, seen: usize) -> Result<(), NarError> {
        let (zeros, rest) = input.split_at_checked(len - seen).unwrap_or((input, &[]));
        if zeros.iter().any(|&byte| byte != 0) {
            return Err(NarError::Padding {
                offset: self.position - seen as u64,
            });
        }
        *input = rest;
        self.position += zeros.len() as u64;
        let seen = seen + zeros.len();
        self.state = if seen == len {
            ParseState::FileClose
        } else {
            ParseState::Padding { len, seen }
        };
        Ok(())
    }
}

impl Default for NarReader {
    fn default() -> NarReader {
        NarReader::new()
    }
}

/// An event whose string may still have to be looked up in the reader.
enum Step<'input> {
    Plain(NarEvent<'input>),
    Entry(StringRef<'input>),
    Symlink(StringRef<'input>),
}

impl<'input> Step<'input> {
    #[inline]
    fn event<'reader>(self, assembled: &'reader [u8]) -> NarEvent<'reader>
    where
        'input: 'reader,
    {
        match self {
            Step::Plain(event) => event,
            Step::Entry(name) => NarEvent::Entry {
                name: name.resolve(assembled),
            },
            Step::Symlink(target) => NarEvent::Symlink {
                target: target.resolve(assembled),
            },
        }
    }
}

#[cfg(test)]
mod tests;
