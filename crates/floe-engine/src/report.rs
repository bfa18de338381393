//! What a move tells whoever watches it. The engine itself never prints.

use std::path::Path;

use floe_format::StorePath;

use crate::error::Error;
use crate::mover::Shortage;

/// Something happened.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// The closure is being explored: paths known so far, questions not yet answered.
    Resolving {
        /// Paths that are missing in the target, as far as is known.
        known: usize,
        /// Questions under way.
        pending: usize,
    },
    /// The sources are being asked for a path.
    Asked {
        /// Its base name, or its hash part where no more of it is known.
        wanted: &'a str,
    },
    /// A source has a path that was asked for, and is trusted with it.
    Resolved {
        /// The path.
        path: &'a StorePath,
        /// The size of its NAR, in bytes.
        nar_size: u64,
        /// The size of what has to be fetched, in bytes, if the source tells.
        download_size: Option<u64>,
    },
    /// The work is known.
    Planned {
        /// Paths to be moved.
        paths: usize,
        /// The sum of their NAR sizes, in bytes.
        nar_bytes: u64,
        /// The sum of what has to be fetched, in bytes, as far as the source tells.
        download_bytes: u64,
    },
    /// What is to be written may not fit.
    Scarce {
        /// What there is too little of, and where.
        shortage: &'a Shortage,
    },
    /// The transfer of a path begins.
    Started {
        /// The path.
        path: &'a StorePath,
        /// The size of its NAR, in bytes.
        nar_size: u64,
    },
    /// So many more bytes have arrived for a path, as they are in the cache.
    Fetched {
        /// The path.
        path: &'a StorePath,
        /// How many bytes more.
        bytes: u64,
    },
    /// So many more bytes of a path's NAR have gone through.
    Progress {
        /// The path.
        path: &'a StorePath,
        /// How many bytes more; negative when a transfer starts again.
        nar_bytes: i64,
    },
    /// The transfer of a path has ended well, though it is not registered yet.
    Finished {
        /// The path.
        path: &'a StorePath,
    },
    /// The transfer of a path has ended badly, and is not tried again.
    Abandoned {
        /// The path.
        path: &'a StorePath,
    },
    /// A transfer broke and is tried again.
    Retrying {
        /// The path.
        path: &'a StorePath,
        /// What broke.
        error: &'a Error,
    },
    /// Another store has a path, but not as it should be.
    NotReused {
        /// The path, which is looked for elsewhere or fetched.
        path: &'a StorePath,
        /// Where it lies.
        place: &'a Path,
        /// What is wrong with it.
        error: &'a Error,
    },
    /// A link of the target's `.links` had other contents than its name says, and was replaced.
    DamagedLink {
        /// The path whose file was to be linked to it, and is good.
        path: &'a StorePath,
        /// Its name.
        link: &'a str,
    },
    /// A path will not be moved.
    Failed {
        /// Why not; names the path.
        error: &'a Error,
    },
    /// Somebody else has locked what is to be committed, and is waited for.
    Waiting {
        /// The path, or the first of several.
        path: &'a StorePath,
    },
    /// A path goes into the batch that is about to be committed.
    Committing {
        /// The path.
        path: &'a StorePath,
    },
    /// A path is valid in the target.
    Valid {
        /// The path.
        path: &'a StorePath,
    },
    /// A batch was committed: so many paths are valid in the target since the move began.
    Registered {
        /// How many.
        paths: usize,
    },
}

/// Receives events, from several threads.
pub trait Reporter: Send + Sync {
    /// Something happened. Called often; must be quick.
    fn event(&self, event: Event<'_>);
}

/// Nobody watches.
impl Reporter for () {
    fn event(&self, _: Event<'_>) {}
}
