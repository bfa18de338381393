//! The places that may hold roots and that a search could not read.

use std::path::PathBuf;

/// Something that may hold roots and could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unreadable {
    /// A link, or a directory or file with roots, that this user may not read.
    Link(PathBuf),
    /// A link that leads through too many links, or to a name that is too long, so it is no root.
    NoRoot(PathBuf),
    /// A link in `gcroots` to a directory, whose links are no roots.
    LinkToDirectory(PathBuf),
    /// The beginning of the path of a directory that is nested too deeply.
    TooDeep(PathBuf),
    /// A root on a file system that fails, with the message of the error.
    Failed(String),
    /// Parts of `/proc` of this many processes.
    Processes(usize),
    /// `/proc` hides the processes of other users (its mount option `hidepid`).
    HiddenProcesses,
    /// There is no `/proc`.
    NoProc,
}
