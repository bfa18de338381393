//! The states of the grammar of NARs.

use crate::nar::{MAGIC, NAME_LEN_MAX, TAG_LEN_MAX, TARGET_LEN_MAX};

/// The state of the reader: the string, size or data that the grammar requires next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ParseState {
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

impl ParseState {
    /// Returns the only tag that is valid here and the state after it.
    ///
    /// Returns `None` if several tags or other strings are valid.
    #[inline]
    pub(super) fn expected_tag(self) -> Option<(&'static str, ParseState)> {
        match self {
            ParseState::Open => Some(("(", ParseState::Type)),
            ParseState::Type => Some(("type", ParseState::Kind)),
            ParseState::Contents => Some(("contents", ParseState::Size { executable: true })),
            ParseState::TargetTag => Some(("target", ParseState::Target)),
            ParseState::EntryOpen => Some(("(", ParseState::NameTag)),
            ParseState::NameTag => Some(("name", ParseState::Name)),
            ParseState::EntryClose => Some((")", ParseState::EntryOrClose)),
            _ => None,
        }
    }

    /// Returns the kind and the maximum length of the string that is valid here.
    #[inline]
    pub(super) fn string_limit(self) -> (&'static str, usize) {
        match self {
            ParseState::Magic => ("magic string", MAGIC.len()),
            ParseState::Name => ("entry name", NAME_LEN_MAX),
            ParseState::Target => ("symlink target", TARGET_LEN_MAX),
            ParseState::ExecutableMarker => ("executable marker", 0),
            _ => ("tag", TAG_LEN_MAX),
        }
    }
}
