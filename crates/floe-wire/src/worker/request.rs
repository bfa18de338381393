//! The requests of a client.

mod parse;
mod write;

use std::collections::{BTreeMap, BTreeSet};

use floe_format::{HashPart, PathInfo, Signature, StorePath};

use super::reply::ReplyKind;

/// A request of a client: an operation of `WorkerProto::Op` with its arguments.
///
/// The parts of a request are the same in all versions that floe speaks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Protects a path from collections until the connection ends (`AddTempRoot`).
    AddTempRoot(StorePath),
    /// Registers a symlink outside of the store as an indirect root (`AddIndirectRoot`).
    AddIndirectRoot(String),
    /// Makes a symlink to a path, and registers it as a root (`AddPermRoot`).
    AddPermRoot {
        /// The path.
        path: StorePath,
        /// The symlink.
        link: String,
    },
    /// Lists the roots (`FindRoots`).
    FindRoots,
    /// Has no meaning since Nix 2.4 (`SyncWithGC`).
    SyncWithGc,
    /// Waits until no collection runs, and deletes nothing. This is `CollectGarbage` with the
    /// action `gcReturnLive` and zero bytes to free: the daemon acquires the lock of the collector.
    WaitForGc,
    /// Collects garbage, or lists live or dead paths (`CollectGarbage`).
    CollectGarbage {
        /// The kind of the collection.
        action: GcAction,
        /// The paths to delete, for [`GcAction::DeleteSpecific`].
        paths: BTreeSet<StorePath>,
        /// Whether live paths are deleted, too. No daemon allows that.
        ignore_liveness: bool,
        /// The number of bytes after which the collection ends.
        max_freed: u64,
    },
    /// Replaces equal files by hard links (`OptimiseStore`).
    OptimiseStore,
    /// Verifies the whole store (`VerifyStore`).
    VerifyStore {
        /// Whether contents are compared with NAR hashes.
        check_contents: bool,
        /// Whether the daemon repairs what it can. It obeys only a client that it trusts.
        repair: bool,
    },
    /// Queries a fact of a path.
    QueryPath(PathQuery, StorePath),
    /// Queries every valid path (`QueryAllValidPaths`).
    QueryAllValidPaths,
    /// Queries the metadata of a path (`QueryPathInfo`).
    QueryPathInfo(StorePath),
    /// Queries the path with a hash part (`QueryPathFromHashPart`).
    QueryPathFromHashPart(HashPart),
    /// Queries which of some paths are valid (`QueryValidPaths`).
    QueryValidPaths {
        /// The paths.
        paths: BTreeSet<StorePath>,
        /// Whether the daemon first substitutes the missing ones.
        substitute: bool,
        /// Whether the paths become temporary roots. Only the serve protocol has this.
        lock: bool,
    },
    /// Queries the closure of some paths (`QueryClosure`). Only the serve protocol has this.
    QueryClosure(BTreeSet<StorePath>),
    /// Queries which of some paths substituters have (`QuerySubstitutablePaths`).
    QuerySubstitutablePaths(BTreeSet<StorePath>),
    /// Queries what substituters know of paths, each with its content address or an empty text
    /// (`QuerySubstitutablePathInfos`).
    QuerySubstitutablePathInfos(BTreeMap<StorePath, String>),
    /// Queries what a build of some paths would do (`QueryMissing`).
    QueryMissing(Vec<String>),
    /// Queries the realisation of an output: `HASH!OUTPUT` (`QueryRealisation`).
    QueryRealisation(String),
    /// Registers a realisation, in JSON (`RegisterDrvOutput`).
    RegisterDrvOutput(String),
    /// Substitutes a path if it is not valid (`EnsurePath`).
    EnsurePath(StorePath),
    /// Builds or substitutes paths, or outputs of derivations as `DERIVATION!OUTPUT,…`
    /// (`BuildPaths`).
    BuildPaths(Vec<String>, BuildMode),
    /// The same, with the result for each of them (`BuildPathsWithResults`).
    BuildPathsWithResults(Vec<String>, BuildMode),
    /// Builds a derivation that the store need not have (`BuildDerivation`).
    BuildDerivation {
        /// The derivation.
        path: StorePath,
        /// The names and the paths of its outputs, as far as they are known.
        outputs: Vec<(String, String)>,
    },
    /// Reads the NAR of a path (`NarFromPath`).
    NarFromPath(StorePath),
    /// Adds a path (`AddToStoreNar`). The NAR follows as frames.
    AddToStoreNar {
        /// The path with its metadata.
        info: Box<PathInfo>,
        /// Whether a valid path is replaced.
        repair: bool,
        /// Whether the path needs no signature. The daemon obeys only a client that it trusts.
        dont_check_sigs: bool,
    },
    /// Adds paths (`AddMultipleToStore`). They follow as frames: see [`super::PathStream`].
    AddMultipleToStore {
        /// Whether valid paths are replaced.
        repair: bool,
        /// Whether the paths need no signatures. The daemon obeys only a client that it trusts.
        dont_check_sigs: bool,
    },
    /// Adds a file or a tree by its contents (`AddToStore`), which follow as frames: the NAR of a
    /// tree, or the bytes of a file.
    AddToStore {
        /// The name of the path, without its hash part.
        name: String,
        /// The kind of the content address, such as `text:sha256` or `fixed:r:sha256`.
        method: String,
        /// The references.
        references: BTreeSet<StorePath>,
        /// Whether a valid path is replaced.
        repair: bool,
    },
    /// Adds signatures to a valid path (`AddSignatures`).
    AddSignatures {
        /// The path.
        path: StorePath,
        /// The signatures.
        signatures: BTreeSet<Signature>,
    },
    /// Adds the log of a build, which follows as frames (`AddBuildLog`).
    AddBuildLog(String),
    /// Sets options of the daemon for this connection (`SetOptions`).
    SetOptions(Box<ClientOptions>),
    /// Compresses all bytes after this request, and all bytes after its reply, with zstd. Only floe
    /// has this operation.
    Compress,
    /// Adds the closures of some paths as temporary roots, and queries their metadata. Only floe
    /// has this operation.
    QueryClosureInfos(BTreeSet<StorePath>),
}

/// A query about one path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathQuery {
    /// Whether it is valid (`IsValidPath`).
    IsValid,
    /// The valid paths that refer to it (`QueryReferrers`).
    Referrers,
    /// Its derivation (`QueryDeriver`).
    Deriver,
    /// Its facts in substituters (`QuerySubstitutablePathInfo`).
    SubstitutableInfo,
    /// The paths of the outputs of a derivation (`QueryDerivationOutputs`).
    DerivationOutputs,
    /// The names of the outputs of a derivation (`QueryDerivationOutputNames`).
    DerivationOutputNames,
    /// The valid derivations with this output (`QueryValidDerivers`).
    ValidDerivers,
    /// The paths of the outputs of a derivation by their names (`QueryDerivationOutputMap`).
    DerivationOutputMap,
}

impl PathQuery {
    /// All queries with the numbers of their operations.
    pub(super) const ALL: [(u64, PathQuery); 8] = [
        (1, PathQuery::IsValid),
        (6, PathQuery::Referrers),
        (18, PathQuery::Deriver),
        (21, PathQuery::SubstitutableInfo),
        (22, PathQuery::DerivationOutputs),
        (28, PathQuery::DerivationOutputNames),
        (33, PathQuery::ValidDerivers),
        (41, PathQuery::DerivationOutputMap),
    ];

    fn reply_kind(self) -> ReplyKind {
        match self {
            PathQuery::IsValid => ReplyKind::Boolean,
            PathQuery::Referrers | PathQuery::DerivationOutputs | PathQuery::ValidDerivers => {
                ReplyKind::Paths
            }
            PathQuery::Deriver => ReplyKind::Path,
            PathQuery::SubstitutableInfo => ReplyKind::SubstitutableInfo,
            PathQuery::DerivationOutputNames => ReplyKind::Texts,
            PathQuery::DerivationOutputMap => ReplyKind::OutputMap,
        }
    }
}

/// The kinds of a collection (`GCOptions::GCAction`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GcAction {
    /// Lists live paths.
    ReturnLive = 0,
    /// Lists dead paths.
    ReturnDead = 1,
    /// Deletes dead paths.
    DeleteDead = 2,
    /// Deletes some paths if they are dead.
    DeleteSpecific = 3,
}

/// The kinds of a build (`BuildMode`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BuildMode {
    /// Builds what is missing.
    Normal = 0,
    /// Builds damaged paths again.
    Repair = 1,
    /// Builds again what is there, and compares.
    Check = 2,
}

/// The options of a client, as far as floe knows a use for them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientOptions {
    /// Whether missing paths may be substituted.
    pub use_substitutes: bool,
    /// The other settings of the client by their names in nix.conf.
    pub overrides: BTreeMap<String, String>,
}

impl Request {
    /// Returns the kind of the reply.
    pub fn reply_kind(&self) -> ReplyKind {
        match self {
            Request::AddTempRoot(_)
            | Request::AddIndirectRoot(_)
            | Request::SyncWithGc
            | Request::OptimiseStore
            | Request::EnsurePath(_)
            | Request::BuildPaths(..)
            | Request::AddSignatures { .. }
            | Request::AddBuildLog(_) => ReplyKind::Done,
            Request::AddPermRoot { .. } => ReplyKind::Text,
            Request::FindRoots => ReplyKind::Roots,
            Request::WaitForGc => ReplyKind::Collected,
            Request::CollectGarbage { .. } => ReplyKind::Garbage,
            Request::QueryPath(query, _) => query.reply_kind(),
            Request::QueryAllValidPaths
            | Request::QueryClosure(_)
            | Request::QuerySubstitutablePaths(_)
            | Request::QueryValidPaths { .. } => ReplyKind::Paths,
            Request::QuerySubstitutablePathInfos(_) => ReplyKind::SubstitutableInfos,
            Request::QueryMissing(_) => ReplyKind::Missing,
            Request::QueryRealisation(_) => ReplyKind::Texts,
            Request::QueryPathInfo(path) => ReplyKind::PathInfo(path.clone()),
            Request::QueryPathFromHashPart(_) => ReplyKind::Path,
            Request::VerifyStore { .. } => ReplyKind::Verified,
            Request::NarFromPath(path) => ReplyKind::Nar(path.clone()),
            Request::AddToStoreNar { info, .. } => ReplyKind::Added(info.path.clone()),
            Request::AddMultipleToStore { .. }
            | Request::RegisterDrvOutput(_)
            | Request::SetOptions(_) => ReplyKind::Nothing,
            Request::AddToStore { .. } => ReplyKind::AddedInfo,
            Request::BuildPathsWithResults(..) => ReplyKind::BuildResults,
            Request::BuildDerivation { .. } => ReplyKind::BuildResult,
            Request::Compress => ReplyKind::Compressed,
            Request::QueryClosureInfos(_) => ReplyKind::PathInfos,
        }
    }

    /// Whether frames follow the request.
    pub fn has_frames(&self) -> bool {
        matches!(
            self,
            Request::AddToStoreNar { .. }
                | Request::AddMultipleToStore { .. }
                | Request::AddToStore { .. }
                | Request::AddBuildLog(_)
        )
    }

    /// Returns the number of the operation; `None` if the protocol does not have it.
    fn operation(&self) -> Option<u64> {
        Some(match self {
            Request::QueryPath(query, _) => {
                let all = PathQuery::ALL.iter();
                all.clone().find(|(_, known)| known == query)?.0
            }
            Request::AddToStore { .. } => 7,
            Request::BuildPaths(..) => 9,
            Request::EnsurePath(_) => 10,
            Request::AddTempRoot(_) => 11,
            Request::AddIndirectRoot(_) => 12,
            Request::SyncWithGc => 13,
            Request::FindRoots => 14,
            Request::SetOptions(_) => 19,
            Request::WaitForGc | Request::CollectGarbage { .. } => 20,
            Request::QueryAllValidPaths => 23,
            Request::QueryPathInfo(_) => 26,
            Request::QueryPathFromHashPart(_) => 29,
            Request::QuerySubstitutablePathInfos(_) => 30,
            Request::QueryValidPaths { .. } => 31,
            Request::QuerySubstitutablePaths(_) => 32,
            Request::OptimiseStore => 34,
            Request::VerifyStore { .. } => 35,
            Request::BuildDerivation { .. } => 36,
            Request::AddSignatures { .. } => 37,
            Request::NarFromPath(_) => 38,
            Request::AddToStoreNar { .. } => 39,
            Request::QueryMissing(_) => 40,
            Request::RegisterDrvOutput(_) => 42,
            Request::QueryRealisation(_) => 43,
            Request::AddMultipleToStore { .. } => 44,
            Request::AddBuildLog(_) => 45,
            Request::BuildPathsWithResults(..) => 46,
            Request::AddPermRoot { .. } => 47,
            Request::Compress => COMPRESS,
            Request::QueryClosureInfos(_) => QUERY_CLOSURE_INFOS,
            Request::QueryClosure(_) => return None,
        })
    }
}

/// The number of [`Request::Compress`]. Nix's operations have small numbers.
const COMPRESS: u64 = FLOE | 1;

/// The number of [`Request::QueryClosureInfos`].
const QUERY_CLOSURE_INFOS: u64 = FLOE | 2;

/// The upper half of the numbers of floe's own operations: its name.
const FLOE: u64 = 0x666c_6f65 << 32;

/// The arguments of a collection that deletes nothing: the action `gcReturnLive`, no paths,
/// liveness not ignored, zero bytes to free, and three numbers without a meaning.
const COLLECT_NOTHING: [u64; 7] = [0; 7];
