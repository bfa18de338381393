//! The standard error of a program at the other end. Until the program serves, its last lines are
//! held back for a moment: if it ends with them, the error has them, and users do not read them
//! twice.

use std::collections::VecDeque;
use std::io::Read;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use crate::remote_log::RemoteLog;

/// The lines of one program.
#[derive(Clone, Debug)]
pub(crate) struct ProgramLog(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    lines: Mutex<Lines>,
    /// Tells that no line is held back any more.
    released: Condvar,
}

#[derive(Debug)]
struct Lines {
    log: RemoteLog,
    /// The last lines, at most [`LAST_LINES_MAX`].
    last: VecDeque<String>,
    /// How many of them, at the end, are held back.
    held: usize,
    /// Whether no line is held back any more.
    is_open: bool,
}

impl ProgramLog {
    pub(crate) fn new(log: RemoteLog) -> ProgramLog {
        ProgramLog(Arc::new(Shared {
            lines: Mutex::new(Lines {
                log,
                last: VecDeque::new(),
                held: 0,
                is_open: false,
            }),
            released: Condvar::new(),
        }))
    }

    /// Returns the last lines for an error, which shows them: those that are held back, which then
    /// do not become events, else the last one.
    pub(crate) fn take_last_lines(&self) -> Vec<String> {
        let mut lines = self.0.lines.lock();
        let shown = lines.last.len() - lines.held.max(1).min(lines.last.len());
        lines.held = 0;
        self.0.released.notify_all();
        lines.last.iter().skip(shown).cloned().collect()
    }

    /// Shows the lines that are held back, and those that come later at once.
    pub(crate) fn show_from_now_on(&self) {
        let mut lines = self.0.lines.lock();
        lines.is_open = true;
        lines.show();
        self.0.released.notify_all();
    }

    /// Reads lines until the end. `at_end` is dropped when all lines were read.
    pub(crate) fn read(&self, mut errors: impl Read + AsFd, at_end: Sender<()>) {
        let mut rest = Vec::new();
        let mut buffer = [0; 4096];
        let add = |line: &[u8]| self.0.lines.lock().add(&String::from_utf8_lossy(line));
        loop {
            if !is_readable(&errors, HOLD) {
                self.0.lines.lock().show();
            }
            let Ok(len @ 1..) = errors.read(&mut buffer) else {
                break;
            };
            rest.extend_from_slice(&buffer[..len]);
            while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
                add(&rest[..end]);
                rest.drain(..=end);
            }
            if rest.len() > LINE_LEN_MAX {
                add(&std::mem::take(&mut rest));
            }
        }
        add(&rest);
        drop(at_end);
        let mut lines = self.0.lines.lock();
        if lines.held > 0 {
            self.0.released.wait_for(&mut lines, HOLD);
        }
        lines.show();
    }
}

impl Lines {
    fn add(&mut self, line: &str) {
        let Some(text) = RemoteLog::text(line) else {
            return;
        };
        if self.last.len() == LAST_LINES_MAX {
            // The error will not have this line.
            if self.held == LAST_LINES_MAX
                && let Some(first) = self.last.front()
            {
                self.log.send(first);
                self.held -= 1;
            }
            self.last.pop_front();
        }
        self.last.push_back(text);
        self.held += 1;
        if self.is_open {
            self.show();
        }
    }

    fn show(&mut self) {
        let shown = self.last.len() - self.held;
        for text in self.last.iter().skip(shown) {
            self.log.send(text);
        }
        self.held = 0;
    }
}

/// Waits until there are bytes, or the end, at most for a time.
fn is_readable(file: &impl AsFd, time: Duration) -> bool {
    let mut descriptors = [PollFd::new(file, PollFlags::IN)];
    let Ok(time) = time.try_into() else {
        return true;
    };
    match poll(&mut descriptors, Some(&time)) {
        Ok(ready) => ready > 0,
        Err(Errno::INTR) => false,
        // The read has the error.
        Err(_) => true,
    }
}

/// How long a line is held back: a program that fails ends soon after its last words.
const HOLD: Duration = Duration::from_millis(300);

/// The lines that an error repeats: enough for the last words of ssh.
const LAST_LINES_MAX: usize = 3;

/// A longer line is reported in parts, so that a line without end needs no memory.
const LINE_LEN_MAX: usize = 4096;

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;
    use std::sync::mpsc;
    use std::{io::Write as _, thread};

    use floe_transfer::{Event, EventSink, Events};

    use super::*;

    #[derive(Debug, Default)]
    struct Shown(Mutex<Vec<String>>);

    impl EventSink for Shown {
        fn event(&self, event: Event<'_>) {
            if let Event::RemoteMessage { text, .. } = event {
                self.0.lock().push(text.to_owned());
            }
        }
    }

    /// Returns a log, and the lines that it shows.
    fn log() -> (ProgramLog, Arc<Shown>) {
        let shown = Arc::new(Shown::default());
        let log = RemoteLog::new("ssh://host", &Events::new(shown.clone()));
        (ProgramLog::new(log), shown)
    }

    /// Starts to read lines. Returns the end that writes, that which is dropped at the end, and the
    /// thread.
    fn start(log: &ProgramLog) -> (UnixStream, mpsc::Receiver<()>, thread::JoinHandle<()>) {
        let (here, there) = UnixStream::pair().unwrap();
        let (at_end, end) = mpsc::channel();
        let log = log.clone();
        (here, end, thread::spawn(move || log.read(there, at_end)))
    }

    /// Sends lines, and ends the stream. Returns the lines that were shown and those of the error.
    fn lines(sent: &[&str], is_failed: bool) -> (Vec<String>, Vec<String>) {
        let (log, shown) = log();
        let (mut here, end, reader) = start(&log);
        for line in sent {
            writeln!(here, "{line}").unwrap();
        }
        drop(here);
        assert!(end.recv().is_err(), "the reader drops its end");
        let last = if is_failed {
            log.take_last_lines()
        } else {
            Vec::new()
        };
        reader.join().unwrap();
        let shown = shown.0.lock().clone();
        (shown, last)
    }

    #[test]
    fn each_line_is_shown_once() {
        let all = ["a", "b", "c", "d", "e"];
        assert_eq!(lines(&all, false), (all.map(String::from).to_vec(), vec![]));
        let (shown, last) = lines(&all, true);
        assert_eq!(
            (shown, last),
            (
                vec!["a".into(), "b".into()],
                vec!["c".into(), "d".into(), "e".into()]
            )
        );
        assert_eq!(lines(&["a"], true), (vec![], vec!["a".into()]));
        assert_eq!(lines(&[], true), (vec![], vec![]));
    }

    #[test]
    fn line_is_shown_while_the_program_runs() {
        let (log, shown) = log();
        let (mut here, end, reader) = start(&log);
        writeln!(here, "waiting for a lock").unwrap();
        floe_testkit::wait_until("the line is shown", || shown.0.lock().len() == 1);
        drop(here);
        assert!(end.recv().is_err(), "the reader drops its end");
        // The error of a program that ends later has only the last line again.
        assert_eq!(log.take_last_lines(), ["waiting for a lock"]);
        reader.join().unwrap();
        assert_eq!(*shown.0.lock(), ["waiting for a lock"]);
    }

    #[test]
    fn lines_of_a_program_that_serves_are_shown_at_once() {
        let (log, shown) = log();
        log.0.lines.lock().add("a warning");
        assert_eq!(shown.0.lock().len(), 0);
        log.show_from_now_on();
        log.0.lines.lock().add("another one");
        assert_eq!(*shown.0.lock(), ["a warning", "another one"]);
    }
}
