//! Requests that wait for a worker, by the kind of their work.

use std::collections::VecDeque;

use floe_messages::Method;

use super::pool::{Job, Pool};
use crate::limits::Limits;

/// The waiting requests of one kind, and their workers.
pub(super) struct WorkQueue {
    pub(super) pool: Pool,
    pub(super) waiting: VecDeque<Box<Job>>,
}

/// The work queues of an engine.
pub(super) struct WorkQueues([WorkQueue; WorkKind::ALL.len()]);

/// The kind of work of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WorkKind {
    Queries,
    Copies,
}

impl WorkKind {
    pub(super) const ALL: [WorkKind; 2] = [WorkKind::Queries, WorkKind::Copies];

    /// Returns the kind of work of a method.
    pub(super) fn of(method: Method) -> WorkKind {
        match method {
            Method::Resolve
            | Method::Install
            | Method::Copy
            | Method::Verify
            | Method::Nar
            | Method::Serve
            | Method::Stop => WorkKind::Copies,
            _ => WorkKind::Queries,
        }
    }
}

impl WorkQueues {
    pub(super) fn new(limits: &Limits) -> WorkQueues {
        WorkQueues(WorkKind::ALL.map(|kind| WorkQueue {
            pool: match kind {
                WorkKind::Queries => Pool::new("query", limits.query_workers),
                WorkKind::Copies => Pool::new("copy", limits.copy_workers),
            },
            waiting: VecDeque::new(),
        }))
    }

    pub(super) fn of(&mut self, kind: WorkKind) -> &mut WorkQueue {
        &mut self.0[kind as usize]
    }

    /// Returns whether no request waits for a worker.
    pub(super) fn are_empty(&self) -> bool {
        self.0.iter().all(|queue| queue.waiting.is_empty())
    }

    /// Ends all workers. Their jobs must have ended.
    pub(super) fn end(self) {
        self.0.into_iter().for_each(|queue| queue.pool.end());
    }
}
