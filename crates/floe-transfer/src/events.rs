//! The events of a copy. The libraries themselves never print.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use floe_format::{StoreDir, StorePath};
use floe_store::DamagedRow;

use crate::disk_space::Shortage;
use crate::error::Error;
use crate::receive_times::ReceiveTimes;

/// An event of a copy. The network may also send events before [`Event::Begun`] and after
/// [`Event::Ended`].
#[derive(Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// The copy begins. Slow sources may still be opening.
    Begun {
        /// The store directory of the target.
        store_dir: &'a StoreDir,
    },
    /// The copy has ended, or has failed.
    Ended,
    /// A file with user names and passwords cannot be used. The copy continues without it.
    UnusableNetrc {
        /// The reason, which names the file.
        error: &'a Error,
    },
    /// The copy resolves the closure.
    Resolving {
        /// The missing paths that are known so far.
        known: usize,
        /// The queries in flight.
        pending: usize,
    },
    /// The copy queries the sources for a path.
    Querying {
        /// Its base name, or its hash part if only that is known.
        requested: &'a str,
    },
    /// A source has a requested path, and the path passed the trust check.
    Resolved {
        /// The path.
        path: &'a StorePath,
        /// The size of its NAR, in bytes.
        nar_size: u64,
        /// The size of the download in bytes, if the source knows it.
        download_size: Option<u64>,
    },
    /// The copy does not keep all signatures of a path.
    DroppedSignatures {
        /// The path.
        path: &'a StorePath,
        /// The number of signatures that it drops.
        count: usize,
    },
    /// The target keeps no realisations, so the copy leaves them out.
    SkippedRealisations {
        /// The number of realisations.
        count: usize,
    },
    /// The listing of a NAR cannot be used. The NAR is read instead.
    UnusableListing {
        /// The URL of the listing.
        url: &'a str,
        /// The reason.
        reason: &'a str,
    },
    /// The plan is complete.
    Planned {
        /// The number of paths to copy.
        paths: usize,
        /// The sum of their NAR sizes, in bytes.
        nar_bytes: u64,
        /// The sum of the known download sizes, in bytes.
        download_bytes: u64,
    },
    /// The target may have too little space.
    LowSpace {
        /// The resource and the file system.
        shortage: &'a Shortage,
    },
    /// The transfer of a path begins.
    Started {
        /// The path.
        path: &'a StorePath,
        /// The size of its NAR, in bytes.
        nar_size: u64,
        /// The source that is asked first.
        source: &'a str,
    },
    /// More bytes of a path's body have arrived, still compressed.
    Fetched {
        /// The path.
        path: &'a StorePath,
        /// The number of new bytes.
        bytes: u64,
    },
    /// More bytes of a path's NAR were written.
    Progress {
        /// The path.
        path: &'a StorePath,
        /// The number of new bytes; negative if the transfer restarts.
        nar_bytes: i64,
        /// Whether the bytes come from files of this machine, which the copy reuses.
        is_reused: bool,
    },
    /// A connection to a server is open.
    Connected {
        /// The time from the lookup of the host to the end of the TLS handshake.
        time: Duration,
    },
    /// A worker has received the whole NAR of a path.
    Received {
        /// The path.
        path: &'a StorePath,
        /// The times that the worker needed.
        times: ReceiveTimes,
    },
    /// The transfer of a path succeeded. The path is not valid yet.
    Staged {
        /// The path.
        path: &'a StorePath,
    },
    /// The transfer of a path failed for good.
    TransferFailed {
        /// The path.
        path: &'a StorePath,
    },
    /// The program at the other end of a connection reports something, such as a warning of ssh or
    /// of the Nix daemon.
    RemoteMessage {
        /// The URI of the store.
        store: &'a str,
        /// One line, without characters that control a terminal.
        text: &'a str,
    },
    /// A request or a transfer failed and is repeated.
    Retrying {
        /// The path whose NAR is transferred again from its beginning. `None` for the rest of a
        /// body, for `nix-cache-info` and for narinfos; the error names the URL.
        path: Option<&'a StorePath>,
        /// The failure.
        error: &'a Error,
    },
    /// A server is away for some seconds, or demands a pause of more than a minute.
    WaitingForServer {
        /// Its scheme, name and port.
        server: &'a str,
        /// How long floe waits.
        wait: ServerWait,
        /// The failure.
        error: &'a Error,
    },
    /// Transfers from a source failed several times in a row. The copy uses other sources from now
    /// on, as long as they have the paths.
    AvoidedSource {
        /// The name of the source.
        source: &'a str,
        /// The last failure.
        error: &'a Error,
    },
    /// A source gave no usable narinfo for a path that another source has, or is no source for the
    /// target. Once for each source.
    PassedOverSource {
        /// The name of the source.
        source: &'a str,
        /// The reason.
        error: &'a Error,
    },
    /// A present path gets no signature, because the target has other facts about it than the
    /// source.
    NotSigned {
        /// The path.
        path: &'a StorePath,
        /// The fact that differs, such as `NAR hash`.
        what: &'static str,
    },
    /// A local store has rows that do not parse. The copy goes on without them.
    SkippedRows {
        /// The rows, at least one.
        rows: &'a [DamagedRow],
    },
    /// A list of a cache has narinfos that cannot be used. The copy goes on without them.
    SkippedNarInfos {
        /// Their number, at least one.
        count: usize,
        /// The reason of the first one.
        first: &'a Error,
    },
    /// The log of a build cannot be read. The paths that the build made are pushed without it.
    SkippedBuildLog {
        /// The derivation.
        derivation: &'a StorePath,
        /// The directory of the logs.
        log_dir: &'a Path,
        /// The reason.
        error: &'a std::io::Error,
    },
    /// A cache takes no lease. A collection may delete paths that the copy counts on.
    LeaseRefused {
        /// The reason.
        error: &'a Error,
    },
    /// The copy waits for the end of a collection that deletes paths of a cache which it needs.
    WaitingForCollection,
    /// Another store has a path, but its contents cannot be reused.
    NotReused {
        /// The path. The copy tries the next store, or fetches the path.
        path: &'a StorePath,
        /// The place in the other store.
        place: &'a Path,
        /// The reason.
        error: &'a Error,
    },
    /// A file in the target's `.links` did not match the hash in its name and was replaced.
    DamagedLink {
        /// The path with the correct file.
        path: &'a StorePath,
        /// The name in `.links`.
        link: &'a str,
    },
    /// The target has unusable objects of a path. The copy replaces them.
    DamagedPath {
        /// The path.
        path: &'a StorePath,
        /// The defect.
        reason: &'a str,
    },
    /// A path cannot be copied.
    Failed {
        /// The reason, which names the path.
        error: &'a Error,
    },
    /// Complete paths could not be registered, because of an interrupt or missing references. The
    /// target keeps them for the next run.
    KeptForResume {
        /// The number of paths.
        paths: usize,
    },
    /// The commit waits for a path lock of another process.
    WaitingForLock {
        /// The path, or the first of several.
        path: &'a StorePath,
        /// After how long without a lock the path fails, in seconds.
        seconds: u64,
    },
    /// A reader waits for a locked database. Sent once, after a second.
    WaitingForDatabase {
        /// The operation that waits.
        what: &'a str,
    },
    /// The next commit includes a path.
    Committing {
        /// The path.
        path: &'a StorePath,
    },
    /// A path is valid in the target.
    Valid {
        /// The path.
        path: &'a StorePath,
    },
    /// A batch was committed.
    Registered {
        /// The number of paths that the copy has made valid so far.
        paths: usize,
    },
}

/// How long floe waits for a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerWait {
    /// Until it answers, and at most for this time.
    AtMost(Duration),
    /// For this time, because the server or the user demands it.
    Demanded(Duration),
}

/// Receives events, from several threads.
pub trait EventSink: Send + Sync {
    /// Receives one event. The copy calls this often, so it must be quick.
    fn event(&self, event: Event<'_>);
}

/// A recipient of events that several owners share. The default drops all events.
#[derive(Clone)]
pub struct Events(Arc<dyn EventSink>);

impl Events {
    /// Sends the events to `sink`.
    pub fn new(sink: Arc<dyn EventSink>) -> Events {
        Events(sink)
    }
}

impl Default for Events {
    fn default() -> Events {
        Events(Arc::new(()))
    }
}

impl EventSink for Events {
    fn event(&self, event: Event<'_>) {
        self.0.event(event);
    }
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Events")
    }
}

/// Drops all events.
impl EventSink for () {
    fn event(&self, _: Event<'_>) {}
}
