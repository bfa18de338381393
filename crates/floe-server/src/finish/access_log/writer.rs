//! A thread that writes the access log.
//!
//! The output may block, such as a full pipe or a slow disk. The writer then drops lines and counts
//! them, so that no client waits for the log.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, channel, sync_channel};
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;

use crate::config::{LogOutput, Warn};
use crate::error::ServeError;

/// Takes lines from all threads, and never blocks them.
#[derive(Debug)]
pub(crate) struct LogWriter {
    /// `None` ends the thread.
    batches: SyncSender<Option<String>>,
    dropped: Arc<AtomicU64>,
    /// Whether the output has to be opened anew before the next lines.
    must_reopen: Arc<AtomicBool>,
    /// Closed by the thread when it ends.
    ended: Mutex<Receiver<()>>,
}

impl LogWriter {
    /// Starts the thread.
    ///
    /// Errors: the system refuses another thread.
    pub(crate) fn start(output: Box<dyn LogOutput>, warn: Warn) -> Result<LogWriter, ServeError> {
        let (batches, coming) = sync_channel(BATCHES_MAX);
        let (ending, ended) = channel();
        let dropped = Arc::new(AtomicU64::new(0));
        let must_reopen = Arc::new(AtomicBool::new(false));
        let mut thread = WriterThread {
            coming,
            output,
            dropped: dropped.clone(),
            must_reopen: must_reopen.clone(),
            is_failing: false,
            warn,
        };
        thread::Builder::new()
            .name("access log".into())
            .spawn(move || {
                // To drop it at the end of the thread wakes `finish`.
                let _ending = ending;
                thread.run();
            })
            .map_err(|source| ServeError::System {
                action: "start the thread of the access log",
                source,
            })?;
        Ok(LogWriter {
            batches,
            dropped,
            must_reopen,
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

    /// Opens the output anew, before any line that is queued from now on. Does not wait.
    pub(crate) fn reopen(&self) {
        self.must_reopen.store(true, Ordering::Release);
        // If the queue is full, the next batch wakes the thread.
        let _: Result<(), _> = self.batches.try_send(Some(String::new()));
    }

    /// Ends the thread, and waits up to [`FINISH_TIMEOUT`] until it has written all lines.
    pub(crate) fn finish(&self) {
        let ended = self.ended.lock();
        if self.batches.try_send(None).is_ok() {
            // No message is ever sent: the channel is closed, or the time is over.
            let _: Result<(), _> = ended.recv_timeout(FINISH_TIMEOUT);
        }
    }
}

/// The other end of a [`LogWriter`].
struct WriterThread {
    coming: Receiver<Option<String>>,
    output: Box<dyn LogOutput>,
    dropped: Arc<AtomicU64>,
    must_reopen: Arc<AtomicBool>,
    /// Whether the latest lines could not be written.
    is_failing: bool,
    warn: Warn,
}

impl WriterThread {
    fn run(&mut self) {
        let mut is_over = false;
        while !is_over && let Ok(Some(mut lines)) = self.coming.recv() {
            // More batches come in this time. To be woken for each of them would cost more than the
            // lines.
            thread::sleep(GATHERING_TIME);
            while lines.len() < WRITE_LEN_MAX && !is_over {
                match self.coming.try_recv() {
                    Ok(Some(more)) => lines.push_str(&more),
                    Ok(None) => is_over = true,
                    Err(_) => break,
                }
            }
            if self.must_reopen.swap(false, Ordering::Acquire)
                && let Err(error) = self.output.reopen()
            {
                (self.warn)(&format!("keeping the old file of the access log: {error}"));
            }
            let written = self.output.write_all(lines.as_bytes());
            let flushed = written.and_then(|()| self.output.flush());
            self.note_write(flushed);
            match self.dropped.swap(0, Ordering::Relaxed) {
                0 => {}
                dropped => (self.warn)(&format!(
                    "dropping {dropped} lines of the access log: its output is too slow"
                )),
            }
        }
    }

    /// Warns of the first of several failures. The server continues without its log.
    fn note_write(&mut self, written: io::Result<()>) {
        if let Err(error) = &written
            && !self.is_failing
        {
            (self.warn)(&format!("dropping lines of the access log: {error}"));
        }
        self.is_failing = written.is_err();
    }
}

/// A batch has the lines of one turn of an event loop. This is about a second of a busy server.
const BATCHES_MAX: usize = 4096;

/// How long the thread waits for further lines.
const GATHERING_TIME: Duration = Duration::from_millis(1);

/// With so many bytes, the thread waits no longer for further lines.
const WRITE_LEN_MAX: usize = 256 * 1024;

/// How long a server that stops waits for its last lines.
const FINISH_TIMEOUT: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use std::io::Write;

    use floe_testkit::wait_until;

    use super::*;

    /// Collects the bytes of each file that was open.
    #[derive(Clone)]
    struct Files(Arc<Mutex<Vec<Vec<u8>>>>);

    impl Files {
        fn new() -> Files {
            Files(Arc::new(Mutex::new(vec![Vec::new()])))
        }

        fn texts(&self) -> Vec<String> {
            let files = self.0.lock();
            let texts = files.iter().map(|file| String::from_utf8_lossy(file));
            texts.map(String::from).collect()
        }
    }

    impl Write for Files {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().last_mut().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl LogOutput for Files {
        fn reopen(&mut self) -> io::Result<()> {
            let mut files = self.0.lock();
            if files.len() == 2 {
                return Err(io::Error::other("no third file"));
            }
            files.push(Vec::new());
            Ok(())
        }
    }

    /// Blocks until the channel is closed.
    struct BlockedWriter(Receiver<()>, Arc<Mutex<Vec<u8>>>);

    impl LogOutput for BlockedWriter {
        fn reopen(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Write for BlockedWriter {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let _: Result<(), _> = self.0.recv();
            self.1.lock().write(bytes)
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
        let warn = Arc::new(move |text: &str| said.lock().push(text.to_owned()));
        let log = LogWriter::start(Box::new(output), warn).unwrap();
        for _ in 0..2 * BATCHES_MAX {
            log.write("a line\nanother\n");
        }
        assert!(written.lock().is_empty(), "the output did not block");
        drop(go);
        while log.batches.try_send(None).is_err() {
            thread::yield_now();
        }
        let _: Result<(), _> = log.ended.lock().recv();
        let kept = written.lock().len() / "a line\nanother\n".len();
        assert!((BATCHES_MAX..2 * BATCHES_MAX).contains(&kept), "{kept}");
        let dropped = 2 * (2 * BATCHES_MAX - kept);
        assert!(
            warnings.lock()[0].starts_with(&format!("dropping {dropped} lines")),
            "{warnings:?}"
        );
    }

    #[test]
    fn finish_writes_the_last_lines() {
        let files = Files::new();
        let log = LogWriter::start(Box::new(files.clone()), Arc::new(|_: &str| {})).unwrap();
        (0..100).for_each(|_| log.write("line\n"));
        log.finish();
        assert_eq!(files.texts(), ["line\n".repeat(100)]);
    }

    #[test]
    fn failing_log_warns_once_until_it_is_written_again() {
        let warnings = Arc::new(Mutex::new(Vec::new()));
        let said = warnings.clone();
        let mut thread = WriterThread {
            coming: sync_channel(1).1,
            output: Box::new(Files::new()),
            dropped: Arc::default(),
            must_reopen: Arc::default(),
            is_failing: false,
            warn: Arc::new(move |text: &str| said.lock().push(text.to_owned())),
        };
        for is_full in [true, true, false, true] {
            thread.note_write(if is_full {
                Err(io::ErrorKind::StorageFull.into())
            } else {
                Ok(())
            });
        }
        let warning = "dropping lines of the access log: no storage space";
        assert_eq!(*warnings.lock(), [warning; 2]);
    }

    #[test]
    fn reopened_log_loses_no_line() {
        let files = Files::new();
        let log = LogWriter::start(Box::new(files.clone()), Arc::new(|_: &str| {})).unwrap();
        log.write("before\n");
        log.reopen();
        log.write("after\n");
        log.finish();
        let texts = files.texts();
        assert_eq!(texts.concat(), "before\nafter\n");
        assert!(texts[1].ends_with("after\n"), "{texts:?}");
    }

    #[test]
    fn log_that_cannot_be_reopened_keeps_its_file() {
        let (files, warnings) = (Files::new(), Arc::new(Mutex::new(Vec::new())));
        let said = warnings.clone();
        let warn = Arc::new(move |text: &str| said.lock().push(text.to_owned()));
        let log = LogWriter::start(Box::new(files.clone()), warn).unwrap();
        for _ in 0..2 {
            log.reopen();
            wait_until("the log is not reopened", || {
                !log.must_reopen.load(Ordering::Acquire)
            });
        }
        log.write("line\n");
        log.finish();
        assert_eq!(files.texts(), ["", "line\n"]);
        let warnings = warnings.lock();
        assert_eq!(warnings.len(), 1, "{warnings:?}");
        assert!(warnings[0].ends_with("no third file"), "{warnings:?}");
    }
}
