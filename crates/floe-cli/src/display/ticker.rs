//! A thread that does something at regular times.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Calls a function at each interval, until it is dropped.
pub(super) struct Ticker {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Ticker {
    /// Starts the thread. Returns `None` if the system has no room for it: then nothing is shown.
    pub(super) fn start(
        interval: Duration,
        mut tick: impl FnMut() + Send + 'static,
    ) -> Option<Ticker> {
        let (stop, stopped) = channel();
        let run = move || {
            while stopped.recv_timeout(interval) == Err(RecvTimeoutError::Timeout) {
                tick();
            }
        };
        let thread = thread::Builder::new()
            .name("floe-display".into())
            .spawn(run);
        Some(Ticker {
            stop: Some(stop),
            thread: Some(thread.ok()?),
        })
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            // A panic has been reported, and only the display is lost.
            let _: thread::Result<()> = thread.join();
        }
    }
}
