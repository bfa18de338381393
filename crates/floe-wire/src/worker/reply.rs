//! The replies of a daemon.

use std::collections::BTreeSet;

use floe_format::{PathInfo, StoreDir, StorePath};

use super::path_info::{
    read_info, read_optional_path, read_paths, write_info, write_optional_path, write_paths,
};
use crate::error::WireError;
use crate::input::Input;
use crate::output;

/// The reply to a request that did not fail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// The daemon has done what was requested.
    Done,
    /// The daemon has added the path, or had it.
    Added,
    /// A path, if there is one.
    Path(Option<StorePath>),
    /// Some paths.
    Paths(BTreeSet<StorePath>),
    /// The metadata of a path; `None` if it is not valid.
    PathInfo(Option<Box<PathInfo>>),
    /// The daemon has verified its store.
    Verified {
        /// Whether problems remain. The log names them.
        has_problems: bool,
    },
    /// A collection has ended.
    Collected,
    /// The NAR of a path follows.
    Nar,
}

/// The kind of a reply, which follows from the request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReplyKind {
    /// [`Reply::Done`]
    Done,
    /// [`Reply::Added`] of this path.
    Added(StorePath),
    /// [`Reply::Path`]
    Path,
    /// [`Reply::Paths`]
    Paths,
    /// [`Reply::PathInfo`] of this path.
    PathInfo(StorePath),
    /// [`Reply::Verified`]
    Verified,
    /// [`Reply::Collected`]
    Collected,
    /// [`Reply::Nar`] of this path.
    Nar(StorePath),
}

impl Reply {
    /// Appends the reply. A NAR follows apart.
    pub fn write(&self, output: &mut Vec<u8>, dir: &StoreDir) {
        match self {
            Reply::Done => output::number(output, 1),
            Reply::Added | Reply::Nar => {}
            Reply::Collected => {
                write_paths(output, dir, &BTreeSet::new());
                output::number(output, 0);
                output::number(output, 0);
            }
            Reply::Verified { has_problems } => output::boolean(output, *has_problems),
            Reply::Path(path) => write_optional_path(output, dir, path.as_ref()),
            Reply::Paths(paths) => write_paths(output, dir, paths),
            Reply::PathInfo(info) => {
                output::boolean(output, info.is_some());
                if let Some(info) = info {
                    write_info(output, info, dir);
                }
            }
        }
    }

    /// Parses the reply of a kind, without its NAR.
    pub fn parse(
        input: &mut Input<'_>,
        kind: &ReplyKind,
        dir: &StoreDir,
    ) -> Result<Reply, WireError> {
        Ok(match kind {
            ReplyKind::Done => {
                input.number()?;
                Reply::Done
            }
            ReplyKind::Added(_) => Reply::Added,
            ReplyKind::Path => Reply::Path(read_optional_path(input, dir)?),
            ReplyKind::Paths => Reply::Paths(read_paths(input, dir)?),
            ReplyKind::PathInfo(path) => Reply::PathInfo(if input.boolean()? {
                Some(Box::new(read_info(input, path.clone(), dir)?))
            } else {
                None
            }),
            ReplyKind::Verified => Reply::Verified {
                has_problems: input.boolean()?,
            },
            ReplyKind::Collected => {
                read_paths(input, dir)?;
                // The freed bytes, and a number without a meaning.
                input.number()?;
                input.number()?;
                Reply::Collected
            }
            ReplyKind::Nar(_) => Reply::Nar,
        })
    }
}
