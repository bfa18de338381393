//! The inbox of the engine thread.

use std::sync::mpsc::Sender;

use crate::completion::JobOutcome;

/// Everything that other threads pass to the engine thread, except requests, which come through
/// `Shared::submit`.
#[derive(Default)]
pub(super) struct Inbox {
    pub(super) cancelled: Vec<u64>,
    /// The requests that workers have finished, with their outcomes.
    pub(super) finished: Vec<(u64, JobOutcome)>,
    /// Dropped when the engine thread has processed the inbox, which ends the waits of other
    /// threads.
    pub(super) acknowledge: Vec<Sender<()>>,
    pub(super) closes: bool,
    /// The engine thread has ended.
    pub(super) is_over: bool,
}
