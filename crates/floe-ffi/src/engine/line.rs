//! Requests that wait for a worker, by the kind of their work.

use std::collections::VecDeque;

use floe_messages::Method;

use crate::limits::Limits;
use crate::pool::{Job, Pool};

/// Requests of one kind: those that wait for a worker, and the workers.
pub(super) struct Line {
    pub(super) pool: Pool,
    pub(super) waiting: VecDeque<Box<Job>>,
}

/// The lines of an engine.
pub(super) struct Lines([Line; LineKind::ALL.len()]);

/// What the requests of a line have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LineKind {
    Queries,
    Moves,
}

impl LineKind {
    pub(super) const ALL: [LineKind; 2] = [LineKind::Queries, LineKind::Moves];

    /// The kind of a request.
    pub(super) fn of(method: Method) -> LineKind {
        match method {
            Method::Resolve
            | Method::Install
            | Method::Copy
            | Method::Verify
            | Method::Nar
            | Method::Serve
            | Method::Stop => LineKind::Moves,
            _ => LineKind::Queries,
        }
    }
}

impl Lines {
    pub(super) fn new(limits: &Limits) -> Lines {
        Lines(LineKind::ALL.map(|kind| Line {
            pool: match kind {
                LineKind::Queries => Pool::new("query", limits.query_workers),
                LineKind::Moves => Pool::new("move", limits.move_workers),
            },
            waiting: VecDeque::new(),
        }))
    }

    pub(super) fn of(&mut self, kind: LineKind) -> &mut Line {
        &mut self.0[kind as usize]
    }

    /// Whether no request waits for a worker.
    pub(super) fn are_empty(&self) -> bool {
        self.0.iter().all(|line| line.waiting.is_empty())
    }

    /// Ends all workers. Their work has ended already.
    pub(super) fn end(self) {
        self.0.into_iter().for_each(|line| line.pool.end());
    }
}
