//! A NAR reader that is pushed bytes and hands out events, without IO of its own.
//!
//! Contents of files are never copied: [`Event::Data`] is a piece of the input. Only a name, a
//! symlink target or a word of the format that straddles two pushes is put together in a buffer
//! of limited size. After a short warm-up no event allocates.

use crate::nar::padding_len;
use crate::nar::read::strings::Bytes;
use crate::nar::read::words::State;

pub use crate::nar::error::NarError;

mod strings;
mod words;

/// A step through a NAR.
///
/// The order is: a node is `Directory (Entry node)* EndDirectory`, or `Symlink`, or
/// `File Data* EndFile`. After the root node comes one `End`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// A directory begins.
    Directory,
    /// An entry of the innermost directory; its node follows. Names come in rising order.
    Entry {
        /// The name, which is valid as [`crate::nar::is_entry_name`] has it.
        name: &'a [u8],
    },
    /// The innermost directory ends.
    EndDirectory,
    /// A symlink, whole.
    Symlink {
        /// The target, which is valid as [`crate::nar::is_symlink_target`] has it.
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
/// use floe_format::nar::read::{Event, Reader};
/// use floe_format::nar::write;
///
/// let mut nar = Vec::new();
/// write::begin(&mut nar);
/// write::symlink(&mut nar, b"target");
///
/// let mut reader = Reader::new();
/// let mut input = nar.as_slice();
/// while let Some(event) = reader.next(&mut input)? {
///     if let Event::Symlink { target } = event {
///         assert_eq!(target, b"target");
///     }
/// }
/// reader.finish()?;
/// # Ok::<(), floe_format::nar::read::NarError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Reader {
    state: State,
    // Where in the NAR the string, size, data or padding begins that is read next.
    position: u64,
    // The front of a string or size that straddles pushes.
    carry: Vec<u8>,
    // The string that was last completed from the carry, its length in front.
    carried: Vec<u8>,
    // The names last seen in the open directories, one after the other, outermost first.
    names: Vec<u8>,
    // Where in `names` the part of each open directory begins.
    directories: Vec<usize>,
    failure: Option<NarError>,
}

impl Reader {
    /// A reader that has seen no bytes.
    pub fn new() -> Reader {
        Reader {
            state: State::Magic,
            position: 0,
            carry: Vec::new(),
            carried: Vec::new(),
            names: Vec::new(),
            directories: Vec::new(),
            failure: None,
        }
    }

    /// The next event, read from the front of `input`, which is shortened by what was taken.
    ///
    /// `None` means that the input is used up: push more, or call [`Reader::finish`]. After an
    /// error the same error comes again.
    #[inline]
    pub fn next<'reader, 'input: 'reader>(
        &'reader mut self,
        input: &mut &'input [u8],
    ) -> Result<Option<Event<'reader>>, NarError> {
        if let Some(failure) = &self.failure {
            return Err(failure.clone());
        }
        match self.step(input) {
            Ok(step) => Ok(step.map(|step| step.event(&self.carried))),
            Err(failure) => {
                self.failure = Some(failure.clone());
                Err(failure)
            }
        }
    }

    /// Where in the NAR the next unread byte is.
    pub fn offset(&self) -> u64 {
        self.position + self.carry.len() as u64
    }

    /// Whether [`Event::End`] was handed out.
    pub fn is_finished(&self) -> bool {
        self.state == State::Finished
    }

    /// To be called when the bytes have ended: an error if the NAR has not.
    pub fn finish(&self) -> Result<(), NarError> {
        match (&self.failure, self.state) {
            (Some(failure), _) => Err(failure.clone()),
            (None, State::RootDone | State::Finished) => Ok(()),
            (None, _) => Err(NarError::Truncated {
                offset: self.offset(),
            }),
        }
    }

    /// Goes from state to state until there is something to tell or the input is used up.
    fn step<'input>(&mut self, input: &mut &'input [u8]) -> Result<Option<Step<'input>>, NarError> {
        loop {
            let step = match self.state {
                State::Size { executable } => match self.size(input) {
                    Some(size) => Some(self.begin_file(executable, size)),
                    None => return Ok(None),
                },
                State::RootDone => {
                    self.state = State::Finished;
                    Some(Step::Plain(Event::End))
                }
                _ if input.is_empty() => return Ok(None),
                State::Data { size, left } => Some(self.data(input, size, left)),
                State::Padding { len, seen } => {
                    self.padding(input, len, seen)?;
                    None
                }
                State::Finished => {
                    return Err(NarError::TrailingBytes {
                        offset: self.position,
                    });
                }
                _ => match self.string(input)? {
                    Some(string) => self.word(string)?,
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
            0 => State::FileClose,
            _ => State::Data { size, left: size },
        };
        Step::Plain(Event::File { executable, size })
    }

    /// Hands out as much of the file as the input has.
    #[inline]
    fn data<'input>(&mut self, input: &mut &'input [u8], size: u64, left: u64) -> Step<'input> {
        let whole = usize::try_from(left).unwrap_or(usize::MAX);
        let (piece, rest) = input.split_at_checked(whole).unwrap_or((input, &[]));
        *input = rest;
        self.position = self.position.wrapping_add(piece.len() as u64);
        self.state = match (left - piece.len() as u64, padding_len(size)) {
            (0, 0) => State::FileClose,
            (0, len) => State::Padding { len, seen: 0 },
            (left, _) => State::Data { size, left },
        };
        Step::Plain(Event::Data(piece))
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
            State::FileClose
        } else {
            State::Padding { len, seen }
        };
        Ok(())
    }
}

impl Default for Reader {
    fn default() -> Reader {
        Reader::new()
    }
}

/// An event whose string may still have to be looked up in the reader.
enum Step<'input> {
    Plain(Event<'input>),
    Entry(Bytes<'input>),
    Symlink(Bytes<'input>),
}

impl<'input> Step<'input> {
    #[inline]
    fn event<'reader>(self, carried: &'reader [u8]) -> Event<'reader>
    where
        'input: 'reader,
    {
        match self {
            Step::Plain(event) => event,
            Step::Entry(name) => Event::Entry {
                name: name.resolve(carried),
            },
            Step::Symlink(target) => Event::Symlink {
                target: target.resolve(carried),
            },
        }
    }
}

#[cfg(test)]
mod tests;
