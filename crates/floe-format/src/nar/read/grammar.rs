//! The grammar of NARs: the state machine that accepts strings.

use crate::nar::read::state::ParseState;
use crate::nar::read::strings::StringRef;
use crate::nar::read::{NarError, NarEvent, NarReader, Step};
use crate::nar::{DEPTH_MAX, MAGIC, is_valid_entry_name, is_valid_symlink_target, padding_len};

impl NarReader {
    /// Accepts a string and changes the state. Returns the event of the string, if any.
    #[inline]
    pub(super) fn accept<'input>(
        &mut self,
        string: StringRef<'input>,
    ) -> Result<Option<Step<'input>>, NarError> {
        let bytes = string.resolve(&self.assembled);
        let offset = self.position - 8 - (bytes.len() + padding_len(bytes.len() as u64)) as u64;
        let tag = |expected: &'static str| expect(bytes, expected, offset);
        if let Some((expected, next)) = self.state.expected_tag() {
            tag(expected)?;
            self.state = next;
            return Ok(None);
        }
        match self.state {
            ParseState::Magic if bytes == MAGIC => self.state = ParseState::Open,
            ParseState::Magic => return Err(NarError::Magic),
            ParseState::Kind => match bytes {
                b"regular" => self.state = ParseState::ExecutableOrContents,
                b"symlink" => self.state = ParseState::TargetTag,
                b"directory" => return Ok(Some(self.begin_directory())),
                _ => return Err(unexpected(bytes, "regular, directory or symlink", offset)),
            },
            ParseState::ExecutableOrContents => match bytes {
                b"contents" => self.state = ParseState::Size { executable: false },
                b"executable" => self.state = ParseState::ExecutableMarker,
                _ => return Err(unexpected(bytes, "executable or contents", offset)),
            },
            // Its maximum length is zero, so it is empty.
            ParseState::ExecutableMarker => self.state = ParseState::Contents,
            ParseState::FileClose => {
                tag(")")?;
                self.end_node();
                return Ok(Some(Step::Plain(NarEvent::EndFile)));
            }
            ParseState::Target => {
                if !is_valid_symlink_target(bytes) {
                    return Err(NarError::Target {
                        offset,
                        target: quote(bytes),
                    });
                }
                self.state = ParseState::SymlinkClose;
                return Ok(Some(Step::Symlink(string)));
            }
            ParseState::SymlinkClose => {
                tag(")")?;
                self.end_node();
            }
            ParseState::EntryOrClose => match bytes {
                b"entry" => self.state = ParseState::EntryOpen,
                b")" => return Ok(Some(self.end_directory())),
                _ => return Err(unexpected(bytes, "entry or )", offset)),
            },
            ParseState::Name => {
                let start = self.directories.last().copied().unwrap_or_default();
                replace_name(&mut self.names, start, bytes, offset)?;
                self.state = ParseState::NodeTag;
                return Ok(Some(Step::Entry(string)));
            }
            ParseState::NodeTag => {
                tag("node")?;
                if self.directories.len() >= DEPTH_MAX {
                    return Err(NarError::TooDeep {
                        offset: self.position,
                    });
                }
                self.state = ParseState::Open;
            }
            // The other states have a single valid tag, or read no strings.
            _ => {}
        }
        Ok(None)
    }

    fn begin_directory(&mut self) -> Step<'static> {
        self.directories.push(self.names.len());
        self.state = ParseState::EntryOrClose;
        Step::Plain(NarEvent::Directory)
    }

    fn end_directory(&mut self) -> Step<'static> {
        let names = self.directories.pop().unwrap_or_default();
        self.names.truncate(names);
        self.end_node();
        Step::Plain(NarEvent::EndDirectory)
    }

    /// Sets the state after a node: the end of its entry, or the end of the NAR.
    fn end_node(&mut self) {
        self.state = if self.directories.is_empty() {
            ParseState::RootDone
        } else {
            ParseState::EntryClose
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

/// Replaces the previous name of a directory, which begins at `start`, by the next one.
fn replace_name(
    names: &mut Vec<u8>,
    start: usize,
    name: &[u8],
    offset: u64,
) -> Result<(), NarError> {
    check_name(name, names.get(start..).unwrap_or_default(), offset)?;
    names.truncate(start);
    names.extend_from_slice(name);
    Ok(())
}

fn check_name(name: &[u8], previous: &[u8], offset: u64) -> Result<(), NarError> {
    if !is_valid_entry_name(name) {
        return Err(NarError::Name {
            offset,
            name: quote(name),
        });
    }
    // Before the first entry, the previous name is empty, which sorts before every valid name.
    if name <= previous {
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
