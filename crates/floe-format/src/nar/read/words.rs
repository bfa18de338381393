//! The grammar of NARs: which string may follow which.

use crate::nar::read::strings::Bytes;
use crate::nar::read::{Event, NarError, Reader, Step};
use crate::nar::{
    DEPTH_MAX, MAGIC, NAME_LEN_MAX, TAG_LEN_MAX, TARGET_LEN_MAX, is_entry_name, is_symlink_target,
    padding_len,
};

/// What is expected next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Magic,
    Open,
    Type,
    Kind,
    ExecutableOrContents,
    ExecutableMarker,
    Contents,
    Size { executable: bool },
    Data { size: u64, left: u64 },
    Padding { len: usize, seen: usize },
    FileClose,
    TargetTag,
    Target,
    SymlinkClose,
    EntryOrClose,
    EntryOpen,
    NameTag,
    Name,
    NodeTag,
    EntryClose,
    RootDone,
    Finished,
}

impl State {
    /// The word that must come here, if there is but one, and what comes after it.
    #[inline]
    fn only_word(self) -> Option<(&'static str, State)> {
        match self {
            State::Open => Some(("(", State::Type)),
            State::Type => Some(("type", State::Kind)),
            State::Contents => Some(("contents", State::Size { executable: true })),
            State::TargetTag => Some(("target", State::Target)),
            State::EntryOpen => Some(("(", State::NameTag)),
            State::NameTag => Some(("name", State::Name)),
            State::EntryClose => Some((")", State::EntryOrClose)),
            _ => None,
        }
    }

    /// How long a string may be here, and the name of that limit.
    #[inline]
    pub(super) fn string_limit(self) -> (&'static str, usize) {
        match self {
            State::Magic => ("MAGIC", MAGIC.len()),
            State::Name => ("NAME_LEN_MAX", NAME_LEN_MAX),
            State::Target => ("TARGET_LEN_MAX", TARGET_LEN_MAX),
            State::ExecutableMarker => ("the length of an executable marker", 0),
            _ => ("TAG_LEN_MAX", TAG_LEN_MAX),
        }
    }
}

impl Reader {
    /// Acts on a string, which has just been read in the current state.
    #[inline]
    pub(super) fn word<'input>(
        &mut self,
        string: Bytes<'input>,
    ) -> Result<Option<Step<'input>>, NarError> {
        let bytes = string.resolve(&self.carried);
        let offset = self.position - 8 - (bytes.len() + padding_len(bytes.len() as u64)) as u64;
        let tag = |expected: &'static str| expect(bytes, expected, offset);
        if let Some((expected, next)) = self.state.only_word() {
            tag(expected)?;
            self.state = next;
            return Ok(None);
        }
        match self.state {
            State::Magic if bytes == MAGIC => self.state = State::Open,
            State::Magic => return Err(NarError::Magic),
            State::Kind => match bytes {
                b"regular" => self.state = State::ExecutableOrContents,
                b"symlink" => self.state = State::TargetTag,
                b"directory" => {
                    self.directories.push(self.names.len());
                    self.state = State::EntryOrClose;
                    return Ok(Some(Step::Plain(Event::Directory)));
                }
                _ => return Err(unexpected(bytes, "regular, directory or symlink", offset)),
            },
            State::ExecutableOrContents => match bytes {
                b"contents" => self.state = State::Size { executable: false },
                b"executable" => self.state = State::ExecutableMarker,
                _ => return Err(unexpected(bytes, "executable or contents", offset)),
            },
            // Its length was found to be zero.
            State::ExecutableMarker => self.state = State::Contents,
            State::FileClose => {
                tag(")")?;
                self.end_node();
                return Ok(Some(Step::Plain(Event::EndFile)));
            }
            State::Target => {
                if !is_symlink_target(bytes) {
                    return Err(NarError::Target {
                        offset,
                        target: quote(bytes),
                    });
                }
                self.state = State::SymlinkClose;
                return Ok(Some(Step::Symlink(string)));
            }
            State::SymlinkClose => {
                tag(")")?;
                self.end_node();
            }
            State::EntryOrClose => match bytes {
                b"entry" => self.state = State::EntryOpen,
                b")" => {
                    self.names
                        .truncate(self.directories.pop().unwrap_or_default());
                    self.end_node();
                    return Ok(Some(Step::Plain(Event::EndDirectory)));
                }
                _ => return Err(unexpected(bytes, "entry or )", offset)),
            },
            State::Name => {
                let start = self.directories.last().copied().unwrap_or_default();
                let before = self.names.get(start..).unwrap_or_default();
                check_name(bytes, before, offset)?;
                self.names.truncate(start);
                self.names.extend_from_slice(bytes);
                self.state = State::NodeTag;
                return Ok(Some(Step::Entry(string)));
            }
            State::NodeTag => {
                tag("node")?;
                if self.directories.len() >= DEPTH_MAX {
                    return Err(NarError::TooDeep {
                        offset: self.position,
                    });
                }
                self.state = State::Open;
            }
            // The other states expect a single word, or read no strings.
            _ => {}
        }
        Ok(None)
    }

    /// What comes after a node: another one in the same directory, or the end.
    fn end_node(&mut self) {
        self.state = if self.directories.is_empty() {
            State::RootDone
        } else {
            State::EntryClose
        };
    }
}

#[inline]
fn expect(found: &[u8], expected: &'static str, offset: u64) -> Result<(), NarError> {
    if found == expected.as_bytes() {
        Ok(())
    } else {
        Err(unexpected(found, expected, offset))
    }
}

#[cold]
fn unexpected(found: &[u8], expected: &'static str, offset: u64) -> NarError {
    NarError::Tag {
        offset,
        expected,
        found: quote(found),
    }
}

fn check_name(name: &[u8], before: &[u8], offset: u64) -> Result<(), NarError> {
    if !is_entry_name(name) {
        return Err(NarError::Name {
            offset,
            name: quote(name),
        });
    }
    // Before the first name stands the empty one, which is less than all others.
    if name <= before {
        return Err(NarError::Order {
            offset,
            name: quote(name),
        });
    }
    Ok(())
}

fn quote(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
