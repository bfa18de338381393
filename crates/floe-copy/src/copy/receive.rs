//! The work of one worker: it transfers one path after the other from a source to the target.

use std::sync::mpsc::Sender;

use floe_format::StorePath;
use floe_hash::hash_pool::WorkerTicket;
use floe_transfer::{Error, Event};

use super::ClosureCopy;
use super::failover::{PathReceiver, ReceivedPath};
use super::fetch::{Queue, QueueEnd};

/// The result of one path.
pub(crate) struct WorkerResult {
    pub(crate) path: StorePath,
    pub(crate) result: Result<ReceivedPath, Error>,
}

/// Transfers paths from the queue until there are no more.
pub(crate) fn run_worker(
    copy: &ClosureCopy<'_>,
    queue: &Queue<'_>,
    place: WorkerTicket,
    results: &Sender<WorkerResult>,
) {
    let worker = place.start();
    let end = if worker.takes_smallest() {
        QueueEnd::Smallest
    } else {
        QueueEnd::Largest
    };
    let mut receiver = PathReceiver::new(copy, queue, &worker);
    while let Some(job) = queue.next(end) {
        let planned = job.planned.clone();
        let info = &planned.narinfo.info;
        let (path, nar_size) = (&info.path, info.nar_size);
        let source = &copy.sources.list[planned.source].name();
        copy.events.event(Event::Started {
            path,
            nar_size,
            source,
        });
        let result = receiver.receive(job);
        if result.is_ok() {
            queue.record_received(path);
        }
        copy.events.event(match &result {
            Ok(_) => Event::Staged { path },
            Err(_) => Event::TransferFailed { path },
        });
        // The receiver is gone if the copy has failed.
        let path = path.clone();
        let send = || results.send(WorkerResult { path, result }).is_ok();
        if !worker.yield_core_while(send) {
            return;
        }
    }
}
