//! The warnings of a server. A thread writes them, so that a stderr without a reader stops
//! no request and no signal.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, channel, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use floe_server::config::Warn;

use crate::display::warn;

/// Returns the [`Config::warn`](floe_server::Config::warn) of every server.
pub(crate) fn warning_sink() -> Warn {
    let (sender, receiver) = sync_channel(WAITING_MAX);
    let writer = thread::Builder::new().name("floe-warnings".into());
    match writer.spawn(move || write_warnings(&receiver)) {
        Ok(_) => Arc::new(move |warning| queue(&sender, warning)),
        // The server will not start either.
        Err(_) => Arc::new(|warning| warn(one_line(warning))),
    }
}

/// Waits a moment for the warnings, and then runs a function that may write to stderr. Does not
/// wait for a stderr without a reader.
pub(super) fn finish(last: impl FnOnce() + Send + 'static) {
    let (sender, ended) = channel();
    let finish = move || {
        let began = Instant::now();
        while WAITING.load(Ordering::Relaxed) > 0 && began.elapsed() < FINISH_WAIT {
            thread::sleep(Duration::from_millis(1));
        }
        last();
        // The receiver does not wait any more.
        let _: Result<(), _> = sender.send(());
    };
    if thread::Builder::new().spawn(finish).is_ok() {
        let _: Result<(), _> = ended.recv_timeout(2 * FINISH_WAIT);
    }
}

fn queue(sender: &SyncSender<String>, warning: &str) {
    WAITING.fetch_add(1, Ordering::Relaxed);
    if sender.try_send(one_line(warning)).is_err() {
        WAITING.fetch_sub(1, Ordering::Relaxed);
        LEFT_OUT.fetch_add(1, Ordering::Relaxed);
    }
}

fn write_warnings(receiver: &Receiver<String>) {
    for warning in receiver {
        warn(warning);
        let left_out = LEFT_OUT.swap(0, Ordering::Relaxed);
        if left_out > 0 {
            warn(format_args!(
                "left out {left_out} warnings, because no program read the earlier ones"
            ));
        }
        WAITING.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Keeps a warning in one line: the names of files in the store may have line ends, and the rest of
/// such a name would look like a line of the server.
fn one_line(warning: &str) -> String {
    warning.replace('\n', "\u{fffd}")
}

/// The warnings that are not written yet.
static WAITING: AtomicUsize = AtomicUsize::new(0);

/// The warnings for which there was no room.
static LEFT_OUT: AtomicUsize = AtomicUsize::new(0);

/// How many warnings wait at most.
const WAITING_MAX: usize = 256;

/// How long the end of a server waits for its warnings.
const FINISH_WAIT: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warning_of_a_server_is_one_line() {
        let warning = "cannot open a\nfloe: b: no such file";
        assert_eq!(
            one_line(warning),
            "cannot open a\u{fffd}floe: b: no such file"
        );
    }

    #[test]
    fn warnings_beyond_the_queue_are_counted_without_a_wait() {
        let (sender, receiver) = sync_channel(WAITING_MAX);
        for _ in 0..2 * WAITING_MAX {
            queue(&sender, "a warning");
        }
        assert_eq!(receiver.try_iter().count(), WAITING_MAX);
        assert_eq!(LEFT_OUT.swap(0, Ordering::Relaxed), WAITING_MAX);
        WAITING.fetch_sub(WAITING_MAX, Ordering::Relaxed);
    }
}
