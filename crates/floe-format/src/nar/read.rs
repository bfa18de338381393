//! The NAR reader: a parser that gets bytes in pieces and returns events, without I/O.
//!
//! The reader never copies the contents of files: [`NarEvent::Data`] borrows from the input. It
//! copies a name, a symlink target or a tag only if the string spans two pieces, and then into a
//! buffer of limited size. Once its buffers have grown, an event allocates no memory.

use crate::nar::padding_len;
use crate::nar::read::state::ParseState;
use crate::nar::read::strings::StringRef;

pub use crate::nar::error::NarError;

mod grammar;
mod state;
mod strings;

/// An event of the reader.
///
/// The events of a node are `Directory (Entry node)* EndDirectory`, `Symlink`, or
/// `File Data* EndFile`. One `End` follows the root node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NarEvent<'a> {
    /// Start of a directory.
    Directory,
    /// An entry of the innermost directory. Its node follows. Names are in ascending order.
    Entry {
        /// The name, which [`crate::nar::is_valid_entry_name`] accepts.
        name: &'a [u8],
    },
    /// End of the innermost directory.
    EndDirectory,
    /// A symlink.
    Symlink {
        /// The target, which [`crate::nar::is_valid_symlink_target`] accepts.
        target: &'a [u8],
    },
    /// Start of a file.
    File {
        /// Whether the file is executable.
        executable: bool,
        /// Size of the contents, in bytes.
        size: u64,
    },
    /// The next bytes of the contents. Never empty.
    Data(&'a [u8]),
    /// End of a file.
    EndFile,
    /// End of the NAR.
    End,
}

/// A reader of one NAR, as strict as the newest Nix.
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
    // The offset of the next string, size, data or padding in the NAR.
    position: u64,
    // The first bytes of a string or size whose last bytes are in a later piece.
    partial: Vec<u8>,
    // The last string that was completed in `partial`, with its length in front.
    assembled: Vec<u8>,
    // The last name in each open directory, concatenated, the outermost first. The next name must
    // be greater.
    names: Vec<u8>,
    // For each open directory, the start of its name in `names`.
    directories: Vec<usize>,
    error: Option<NarError>,
}

impl NarReader {
    /// Makes a reader at the start of a NAR.
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

    /// Returns the next event and removes its bytes from the front of `input`.
    ///
    /// Returns `None` if the input is used up. The caller then passes the next piece, or calls
    /// [`NarReader::finish`] at the end. After an error, every call returns the same error.
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

    /// Returns the number of bytes read so far.
    pub fn offset(&self) -> u64 {
        self.position + self.partial.len() as u64
    }

    /// Returns whether the reader has returned [`NarEvent::End`].
    pub fn is_finished(&self) -> bool {
        self.state == ParseState::Finished
    }

    /// Checks at the end of the input that the NAR is complete.
    pub fn finish(&self) -> Result<(), NarError> {
        match (&self.error, self.state) {
            (Some(error), _) => Err(error.clone()),
            (None, ParseState::RootDone | ParseState::Finished) => Ok(()),
            (None, _) => Err(NarError::Truncated {
                offset: self.offset(),
            }),
        }
    }

    /// Advances the state until there is an event or the input is used up.
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

    /// Returns as many bytes of the contents as the input has.
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

    /// Skips the padding after the contents of a file.
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

/// An event whose string may be in the buffer of the reader.
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
