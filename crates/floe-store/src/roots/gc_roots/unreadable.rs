//! The places that may hold roots and that a search could not read.

use std::path::PathBuf;

/// Something that may hold roots and could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unreadable {
    /// A link, or a directory or file with roots, that this user may not read.
    Link(PathBuf),
    /// A link that leads through too many links, or to a name that is too long, so it is not a
    /// root.
    NoRoot(PathBuf),
    /// A link in `gcroots` to a directory, whose links are not roots.
    LinkToDirectory(PathBuf),
    /// The beginning of the path of a directory that is nested too deeply.
    TooDeep(PathBuf),
    /// A root on a file system that fails, with the message of the error.
    Failed(String),
    /// Roots on file systems that are not mounted. Their records tell which paths they keep, so
    /// they are among the roots.
    NotMounted {
        /// The roots.
        roots: HiddenRoots,
        /// Where the file system of the first one was mounted.
        mount_point: PathBuf,
    },
    /// Roots without records below an empty directory, on which a file system may have been
    /// mounted. They keep nothing, and their registrations stay.
    BelowEmptyDirectory {
        /// The roots.
        roots: HiddenRoots,
        /// The directory of the first one.
        directory: PathBuf,
    },
    /// The record of a root could not be written, with the message of the error.
    NotRecorded(String),
    /// Several files of temporary roots.
    TemporaryRoots {
        /// Their number.
        files: usize,
        /// The first one.
        first: PathBuf,
    },
    /// Parts of `/proc` of this many processes.
    Processes(usize),
    /// `/proc` hides the processes of other users (its mount option `hidepid`).
    HiddenProcesses,
    /// There is no `/proc`.
    NoProc,
}

/// Roots whose file systems may return.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HiddenRoots {
    /// The number of the roots.
    pub count: usize,
    /// The place of the first one.
    pub first: PathBuf,
    /// The link in the directories of roots that names it.
    pub link: PathBuf,
}
