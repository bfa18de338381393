//! The lines of `-v` and `-vv`.

use std::collections::VecDeque;

use floe_format::StorePath;
use floe_transfer::{Event, Size};
use parking_lot::Mutex;

use super::stderr::is_verbose;
use super::verbosity::Verbosity;

/// Makes a line for each received path, and with `-vv` for each query and transfer.
#[derive(Debug, Default)]
pub(super) struct VerboseLines(Mutex<Counts>);

#[derive(Debug, Default)]
struct Counts {
    planned: usize,
    received: usize,
    /// Paths without a line. Those that are received before the plan is complete get theirs after
    /// it.
    waiting: VecDeque<StorePath>,
}

impl VerboseLines {
    /// Returns the lines about an event.
    pub(super) fn lines(&self, event: &Event<'_>) -> Vec<String> {
        if !is_verbose(Verbosity::Paths) {
            return Vec::new();
        }
        let mut lines = match event {
            _ if !is_verbose(Verbosity::Requests) => Vec::new(),
            event => request_line(event).into_iter().collect(),
        };
        let mut counts = self.0.lock();
        match event {
            Event::Planned { paths, .. } => counts.planned += paths,
            Event::Staged { path } => counts.waiting.push_back((*path).clone()),
            _ => return lines,
        }
        while counts.received < counts.planned
            && let Some(path) = counts.waiting.pop_front()
        {
            counts.received += 1;
            lines.push(format!("[{}/{}] {path}", counts.received, counts.planned));
        }
        lines
    }
}

/// Returns the line about a query or a transfer.
fn request_line(event: &Event<'_>) -> Option<String> {
    Some(match event {
        Event::Querying { requested } => format!("querying {requested}"),
        Event::Resolved { path, nar_size, .. } => {
            format!("found {path}, {} unpacked", Size(*nar_size))
        }
        Event::Started { path, .. } => format!("receiving {path}"),
        Event::Committing { path } => format!("registering {path}"),
        Event::Valid { path } => format!("registered {path}"),
        _ => return None,
    })
}
