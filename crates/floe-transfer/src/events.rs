//! What a move tells whoever watches it. The engine itself never prints.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use floe_format::StorePath;

use crate::disk_space::Shortage;
use crate::error::Error;

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
    Querying {
        /// Its base name, or its hash part where no more of it is known.
        requested: &'a str,
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
    LowSpace {
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
    Staged {
        /// The path.
        path: &'a StorePath,
    },
    /// The transfer of a path has ended badly, and is not tried again.
    TransferFailed {
        /// The path.
        path: &'a StorePath,
    },
    /// A request or a transfer failed and is tried again.
    Retrying {
        /// The path whose NAR begins anew; `None` for the rest of a body, and for what a cache says
        /// of itself and of paths. The error names the URL.
        path: Option<&'a StorePath>,
        /// What failed.
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
    /// So many paths have come whole and cannot be valid, after an interrupt or for want of others.
    /// They are left in the store for the next run.
    KeptForResume {
        /// How many.
        paths: usize,
    },
    /// Somebody else has locked what is to be committed, and is waited for.
    WaitingForLock {
        /// The path, or the first of several.
        path: &'a StorePath,
    },
    /// The database of a store that is read is locked, and waited for. Said once, after a second.
    WaitingForDatabase {
        /// For what.
        what: &'a str,
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
pub trait EventSink: Send + Sync {
    /// Something happened. Called often; must be quick.
    fn event(&self, event: Event<'_>);
}

/// Who hears of what happens while sources are asked, from threads of their own and also before a
/// move begins: [`Event::Retrying`] without a path, and [`Event::WaitingForDatabase`].
/// [`Default`] is nobody.
#[derive(Clone, Default)]
pub struct NetworkEvents(Option<Arc<dyn EventSink>>);

impl NetworkEvents {
    /// Tells this one.
    pub fn new(sink: Arc<dyn EventSink>) -> NetworkEvents {
        NetworkEvents(Some(sink))
    }

    /// Sends [`Event::Retrying`] without a path.
    pub fn retrying(&self, error: &Error) {
        if let Some(sink) = &self.0 {
            sink.event(Event::Retrying { path: None, error });
        }
    }

    /// Sends [`Event::WaitingForDatabase`].
    pub fn waiting_for(&self, what: &str) {
        if let Some(sink) = &self.0 {
            sink.event(Event::WaitingForDatabase { what });
        }
    }
}

impl PartialEq for NetworkEvents {
    fn eq(&self, other: &NetworkEvents) -> bool {
        match (&self.0, &other.0) {
            (Some(own), Some(other)) => Arc::ptr_eq(own, other),
            (own, other) => own.is_none() && other.is_none(),
        }
    }
}

impl Eq for NetworkEvents {}

impl fmt::Debug for NetworkEvents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let who = if self.0.is_some() {
            "somebody"
        } else {
            "nobody"
        };
        write!(f, "NetworkEvents({who})")
    }
}

/// Nobody watches.
impl EventSink for () {
    fn event(&self, _: Event<'_>) {}
}
