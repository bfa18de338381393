//! The words for copying: a command installs, copies, pushes or adds paths.

/// The kind of a copy, for its messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CopyAction {
    Install,
    Copy,
    Push,
    Add,
    Import,
}

impl CopyAction {
    /// The name of the command.
    pub(super) fn name(self) -> &'static str {
        match self {
            CopyAction::Install => "install",
            CopyAction::Copy => "copy",
            CopyAction::Push => "push",
            CopyAction::Add => "add",
            CopyAction::Import => "import",
        }
    }

    /// The participle: such as `installed`.
    pub(super) fn participle(self) -> &'static str {
        match self {
            CopyAction::Install => "installed",
            CopyAction::Copy => "copied",
            CopyAction::Push => "pushed",
            CopyAction::Add => "added",
            CopyAction::Import => "imported",
        }
    }

    /// The options that keep the paths in a local store.
    pub(super) fn root_options(self) -> &'static str {
        match self {
            CopyAction::Add => "--out-link",
            _ => "--out-link or --profile",
        }
    }
}
