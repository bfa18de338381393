//! The words for copying: a command installs, copies or pushes paths.

/// The kind of a copy, for its messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CopyAction {
    Install,
    Copy,
    Push,
}

impl CopyAction {
    /// The name of the command.
    pub(super) fn name(self) -> &'static str {
        match self {
            CopyAction::Install => "install",
            CopyAction::Copy => "copy",
            CopyAction::Push => "push",
        }
    }

    /// The participle: `installed`, `copied` or `pushed`.
    pub(super) fn participle(self) -> &'static str {
        match self {
            CopyAction::Install => "installed",
            CopyAction::Copy => "copied",
            CopyAction::Push => "pushed",
        }
    }
}
