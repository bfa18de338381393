//! A thread that writes the access log.
//!
//! The output may block, such as a full pipe or a slow disk. The writer then drops lines and counts
//! them, so that no client waits for the log.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use crate::config::{LogOutput, Warn};
use crate::error::ServeError;

/// Takes lines from all threads, and never blocks them.
#[derive(Debug)]
pub(crate) struct LogWriter {
    /// `None` ends the thread.
    batches: SyncSender<Option<String>>,
    dropped: Arc<AtomicU64>,
    /// Closed by the thread when it ends.
    ended: Mutex<Receiver<()>>,
}

impl LogWriter {
    /// Starts the thread.
    ///
    /// Errors: the system refuses another thread.
    pub(crate) fn start(output: LogOutput, warn: Warn) -> Result<LogWriter, ServeError> {
        let (batches, coming) = sync_channel(BATCHES_MAX);
        let (ending, ended) = channel();
        let dropped = Arc::new(AtomicU64::new(0));
        let counted = dropped.clone();
        thread::Builder::new()
            .name("access log".into())
            .spawn(move || {
                // To drop it at the end of the thread wakes `finish`.
                let _ending = ending;
                write_all(&coming, &output, &counted, &*warn);
            })
            .map_err(|source| ServeError::System {
                action: "start the thread of the access log",
                source,
            })?;
        Ok(LogWriter {
            batches,
            dropped,
            ended: Mutex::new(ended),
        })
    }

    /// Queues whole lines, or drops them if the queue is full.
    pub(crate) fn write(&self, lines: &str) {
        if self.batches.try_send(Some(lines.to_owned())).is_err() {
            let count = lines.lines().count() as u64;
            self.dropped.fetch_add(count, Ordering::Relaxed);
        }
    }

    /// Ends the thread, and waits up to [`FINISH_TIMEOUT`] until it has written all lines.
    pub(crate) fn finish(&self) {
        let ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        if self.batches.try_send(None).is_ok() {
            // No message is ever sent: the channel is closed, or the time is over.
            let _: Result<(), _> = ended.recv_timeout(FINISH_TIMEOUT);
        }
    }
}

fn write_all(
    coming: &Receiver<Option<String>>,
    output: &LogOutput,
    dropped: &AtomicU64,
    warn: &dyn Fn(&str),
) {
    while let Ok(Some(lines)) = coming.recv() {
        let mut output = output.lock().unwrap_or_else(PoisonError::into_inner);
        // The server continues without its log.
        let _: io::Result<()> = output
            .write_all(lines.as_bytes())
            .and_then(|()| output.flush());
        drop(output);
        match dropped.swap(0, Ordering::Relaxed) {
            0 => {}
            dropped => warn(&format!(
                "dropping {dropped} lines of the access log: its output is too slow"
            )),
        }
    }
}

/// A batch has the lines of one turn of an event loop. This is about a second of a busy server.
const BATCHES_MAX: usize = 4096;

/// How long a server that stops waits for its last lines.
const FINISH_TIMEOUT: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    /// Blocks until the channel is closed.
    struct BlockedWriter(Receiver<()>, Arc<Mutex<Vec<u8>>>);

    impl Write for BlockedWriter {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let _: Result<(), _> = self.0.recv();
            self.1.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn blocked_log_drops_lines_and_reports_their_number() {
        let (go, wait) = channel();
        let written = Arc::new(Mutex::new(Vec::new()));
        let warnings = Arc::new(Mutex::new(Vec::new()));
        let (output, said) = (BlockedWriter(wait, written.clone()), warnings.clone());
        let warn = Arc::new(move |text: &str| said.lock().unwrap().push(text.to_owned()));
        let log = LogWriter::start(Arc::new(Mutex::new(output)), warn).unwrap();
        for _ in 0..2 * BATCHES_MAX {
            log.write("a line\nanother\n");
        }
        assert!(
            written.lock().unwrap().is_empty(),
            "the output did not block"
        );
        drop(go);
        while log.batches.try_send(None).is_err() {
            thread::yield_now();
        }
        let _: Result<(), _> = log.ended.lock().unwrap().recv();
        let kept = written.lock().unwrap().len() / "a line\nanother\n".len();
        assert!((BATCHES_MAX..2 * BATCHES_MAX).contains(&kept), "{kept}");
        let dropped = 2 * (2 * BATCHES_MAX - kept);
        assert!(
            warnings.lock().unwrap()[0].starts_with(&format!("dropping {dropped} lines")),
            "{warnings:?}"
        );
    }

    #[test]
    fn finish_writes_the_last_lines() {
        let written = Arc::new(Mutex::new(Vec::new()));
        let log = LogWriter::start(written.clone(), Arc::new(|_: &str| {})).unwrap();
        (0..100).for_each(|_| log.write("line\n"));
        log.finish();
        assert_eq!(written.lock().unwrap().len(), 500);
    }
}
