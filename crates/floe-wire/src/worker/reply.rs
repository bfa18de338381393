//! The replies of a daemon.

mod parse;
mod write;

use std::collections::{BTreeMap, BTreeSet};

use floe_format::{PathInfo, StorePath};

/// The reply to a request that did not fail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// The daemon has done what was requested.
    Done,
    /// The daemon has added the path, or had it.
    Added,
    /// The daemon has done what was requested, and sends nothing.
    Nothing,
    /// Yes or no.
    Boolean(bool),
    /// A text, such as the place of a root.
    Text(String),
    /// Some texts, such as the names of outputs.
    Texts(Vec<String>),
    /// A path, if there is one.
    Path(Option<StorePath>),
    /// Some paths.
    Paths(BTreeSet<StorePath>),
    /// The metadata of a path; `None` if it is not valid.
    PathInfo(Option<Box<PathInfo>>),
    /// A path that was added by its contents, with its metadata.
    AddedInfo(Box<PathInfo>),
    /// The paths of the outputs of a derivation, as far as they are known.
    OutputMap(BTreeMap<String, Option<StorePath>>),
    /// The facts of a path in substituters; `None` if they do not have it.
    SubstitutableInfo(Option<SubstitutableInfo>),
    /// The facts of those paths that substituters have.
    SubstitutableInfos(BTreeMap<StorePath, SubstitutableInfo>),
    /// The plan of a build.
    Missing(Box<MissingPaths>),
    /// The roots: each link with its path.
    Roots(Vec<(String, StorePath)>),
    /// The daemon has verified its store.
    Verified {
        /// Whether problems remain. The log names them.
        has_problems: bool,
    },
    /// A collection that deletes nothing has ended.
    Collected,
    /// The outcome of a collection.
    Garbage {
        /// The paths that were listed or deleted, with the store directory.
        paths: Vec<String>,
        /// The number of bytes that were freed.
        bytes: u64,
    },
    /// The result of a build.
    BuildResult(BuildResult),
    /// The result of each build, with what was requested.
    BuildResults(Vec<(String, BuildResult)>),
    /// The NAR of a path follows.
    Nar,
    /// All bytes that follow are compressed.
    Compressed,
    /// The metadata of some paths.
    PathInfos(Vec<PathInfo>),
}

/// The facts of a path in a substituter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SubstitutableInfo {
    /// The derivation that built it.
    pub deriver: Option<StorePath>,
    /// Its references.
    pub references: BTreeSet<StorePath>,
    /// The size of the download in bytes; 0 if it is not known.
    pub download_size: u64,
    /// The size of its NAR in bytes.
    pub nar_size: u64,
}

/// The plan of a build with paths that are missing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MissingPaths {
    /// The derivations that would be built.
    pub will_build: BTreeSet<StorePath>,
    /// The paths that would be substituted.
    pub will_substitute: BTreeSet<StorePath>,
    /// The paths that no substituter has.
    pub unknown: BTreeSet<StorePath>,
    /// The size of all downloads in bytes.
    pub download_size: u64,
    /// The size of all their NARs in bytes.
    pub nar_size: u64,
}

/// The result of a build.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BuildResult {
    /// The kind of the result (`BuildResult::Status`).
    pub status: u64,
    /// Why it failed.
    pub message: String,
    /// The outputs: `HASH!OUTPUT` with the path. The hash identifies the derivation, as
    /// [`floe_format::Derivation::output_hashes`] returns it.
    pub outputs: BTreeMap<String, StorePath>,
}

/// The kind of a reply, which follows from the request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReplyKind {
    /// [`Reply::Done`]
    Done,
    /// [`Reply::Added`] of this path.
    Added(StorePath),
    /// [`Reply::Nothing`]
    Nothing,
    /// [`Reply::Boolean`]
    Boolean,
    /// [`Reply::Text`]
    Text,
    /// [`Reply::Texts`]
    Texts,
    /// [`Reply::Path`]
    Path,
    /// [`Reply::Paths`]
    Paths,
    /// [`Reply::PathInfo`] of this path.
    PathInfo(StorePath),
    /// [`Reply::AddedInfo`]
    AddedInfo,
    /// [`Reply::OutputMap`]
    OutputMap,
    /// [`Reply::SubstitutableInfo`]
    SubstitutableInfo,
    /// [`Reply::SubstitutableInfos`]
    SubstitutableInfos,
    /// [`Reply::Missing`]
    Missing,
    /// [`Reply::Roots`]
    Roots,
    /// [`Reply::Verified`]
    Verified,
    /// [`Reply::Collected`]
    Collected,
    /// [`Reply::Garbage`]
    Garbage,
    /// [`Reply::BuildResult`]
    BuildResult,
    /// [`Reply::BuildResults`]
    BuildResults,
    /// [`Reply::Nar`] of this path.
    Nar(StorePath),
    /// [`Reply::Compressed`]
    Compressed,
    /// [`Reply::PathInfos`]
    PathInfos,
}
