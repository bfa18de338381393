//! The requests of a client.

use std::collections::BTreeSet;

use floe_format::{HashPart, PathInfo, StoreDir, StorePath};

use super::path_info::{read_info, read_path, read_paths, write_info, write_paths};
use super::reply::ReplyKind;
use crate::error::WireError;
use crate::input::{Input, TEXT_LEN_MAX};
use crate::output;

/// A request of a client: an operation of `WorkerProto::Op` with its arguments.
///
/// The parts of a request are the same in all versions that floe speaks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Protects a path from collections until the connection ends (`AddTempRoot`).
    AddTempRoot(StorePath),
    /// Registers a symlink outside of the store as an indirect root (`AddIndirectRoot`).
    AddIndirectRoot(String),
    /// Waits until no collection runs, and deletes nothing. This is `CollectGarbage` with the
    /// action `gcReturnLive` and zero bytes to free: the daemon acquires the lock of the collector.
    WaitForGc,
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
    /// Verifies the whole store (`VerifyStore`).
    VerifyStore {
        /// Whether contents are compared with NAR hashes.
        check_contents: bool,
        /// Whether the daemon repairs what it can. It obeys only a client that it trusts.
        repair: bool,
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
}

impl Request {
    /// Returns the kind of the reply.
    pub fn reply_kind(&self) -> ReplyKind {
        match self {
            Request::AddTempRoot(_) | Request::AddIndirectRoot(_) => ReplyKind::Done,
            Request::WaitForGc => ReplyKind::Collected,
            Request::QueryAllValidPaths
            | Request::QueryClosure(_)
            | Request::QueryValidPaths { .. } => ReplyKind::Paths,
            Request::QueryPathInfo(path) => ReplyKind::PathInfo(path.clone()),
            Request::QueryPathFromHashPart(_) => ReplyKind::Path,
            Request::VerifyStore { .. } => ReplyKind::Verified,
            Request::NarFromPath(path) => ReplyKind::Nar(path.clone()),
            Request::AddToStoreNar { info, .. } => ReplyKind::Added(info.path.clone()),
        }
    }

    /// Appends the request.
    ///
    /// Returns `false` for a request that the protocol does not have.
    #[must_use]
    pub fn write(&self, output: &mut Vec<u8>, dir: &StoreDir) -> bool {
        let Some(operation) = self.operation() else {
            return false;
        };
        output::number(output, operation);
        match self {
            Request::QueryAllValidPaths | Request::QueryClosure(_) => {}
            Request::AddTempRoot(path)
            | Request::QueryPathInfo(path)
            | Request::NarFromPath(path) => output::text(output, dir.full_path(path)),
            Request::AddIndirectRoot(link) => output::text(output, link),
            Request::WaitForGc => COLLECT_NOTHING
                .into_iter()
                .for_each(|word| output::number(output, word)),
            Request::QueryPathFromHashPart(part) => output::text(output, part.as_str()),
            Request::VerifyStore {
                check_contents,
                repair,
            } => {
                output::boolean(output, *check_contents);
                output::boolean(output, *repair);
            }
            Request::QueryValidPaths {
                paths, substitute, ..
            } => {
                write_paths(output, dir, paths);
                output::boolean(output, *substitute);
            }
            Request::AddToStoreNar {
                info,
                repair,
                dont_check_sigs,
            } => {
                output::text(output, dir.full_path(&info.path));
                write_info(output, info, dir);
                output::boolean(output, *repair);
                output::boolean(output, *dont_check_sigs);
            }
        }
        true
    }

    /// Parses a request without its frames.
    ///
    /// Errors: [`WireError::Value`] also for an operation that floe does not know.
    pub fn parse(input: &mut Input<'_>, dir: &StoreDir) -> Result<Request, WireError> {
        Ok(match input.number()? {
            11 => Request::AddTempRoot(read_path(input, dir)?),
            12 => Request::AddIndirectRoot(input.text("a root", TEXT_LEN_MAX)?.to_owned()),
            20 => {
                for expected in COLLECT_NOTHING {
                    let word = input.number()?;
                    if word != expected {
                        let text = word.to_string();
                        return Err(WireError::value("a collection", text, "it deletes paths"));
                    }
                }
                Request::WaitForGc
            }
            23 => Request::QueryAllValidPaths,
            26 => Request::QueryPathInfo(read_path(input, dir)?),
            29 => {
                let text = input.text(HASH_PART, TEXT_LEN_MAX)?;
                let part = HashPart::parse(text);
                let invalid = || WireError::value(HASH_PART, text, "it is invalid");
                Request::QueryPathFromHashPart(part.ok_or_else(invalid)?)
            }
            31 => Request::QueryValidPaths {
                paths: read_paths(input, dir)?,
                substitute: input.boolean()?,
                lock: false,
            },
            35 => Request::VerifyStore {
                check_contents: input.boolean()?,
                repair: input.boolean()?,
            },
            38 => Request::NarFromPath(read_path(input, dir)?),
            39 => {
                let path = read_path(input, dir)?;
                Request::AddToStoreNar {
                    info: Box::new(read_info(input, path, dir)?),
                    repair: input.boolean()?,
                    dont_check_sigs: input.boolean()?,
                }
            }
            other => {
                return Err(WireError::value(
                    "the operation",
                    other.to_string(),
                    "floe does not know it",
                ));
            }
        })
    }

    fn operation(&self) -> Option<u64> {
        Some(match self {
            Request::AddTempRoot(_) => 11,
            Request::AddIndirectRoot(_) => 12,
            Request::WaitForGc => 20,
            Request::QueryAllValidPaths => 23,
            Request::QueryPathInfo(_) => 26,
            Request::QueryPathFromHashPart(_) => 29,
            Request::QueryValidPaths { .. } => 31,
            Request::VerifyStore { .. } => 35,
            Request::QueryClosure(_) => return None,
            Request::NarFromPath(_) => 38,
            Request::AddToStoreNar { .. } => 39,
        })
    }
}

/// The arguments of a collection that deletes nothing: the action `gcReturnLive`, no paths,
/// liveness not ignored, zero bytes to free, and three numbers without a meaning.
const COLLECT_NOTHING: [u64; 7] = [0; 7];

const HASH_PART: &str = "a hash part";
