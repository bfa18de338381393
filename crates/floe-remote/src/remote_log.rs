//! The messages of the other side: each line becomes an event, up to a limit, so that a flood does
//! not fill a log or a disk.

use floe_transfer::{Event, EventSink as _, Events, plain_text};

/// Passes on the lines of one program.
#[derive(Debug)]
pub(crate) struct RemoteLog {
    /// The URI of the store.
    store: String,
    events: Events,
    lines_left: usize,
    bytes_left: usize,
}

impl RemoteLog {
    pub(crate) fn new(store: &str, events: &Events) -> RemoteLog {
        RemoteLog {
            store: store.to_owned(),
            events: events.clone(),
            lines_left: LINES_MAX,
            bytes_left: BYTES_MAX,
        }
    }

    /// Returns a line without characters that control a terminal; `None` for an empty one.
    pub(crate) fn text(line: &str) -> Option<String> {
        Some(plain_text(line)).filter(|text| !text.is_empty())
    }

    /// Passes on a text, unless there were too many.
    pub(crate) fn send(&mut self, text: &str) {
        if self.lines_left == 0 {
            return;
        }
        self.lines_left -= 1;
        self.bytes_left = self.bytes_left.saturating_sub(text.len());
        if self.bytes_left == 0 {
            self.lines_left = 0;
        }
        self.event(text);
        if self.lines_left == 0 {
            self.event(&format!(
                "leaving out further messages, after {LINES_MAX} lines or {} MiB",
                BYTES_MAX >> 20
            ));
        }
    }

    fn event(&self, text: &str) {
        let store = &self.store;
        self.events.event(Event::RemoteMessage { store, text });
    }
}

/// The lines that are passed on: more than the longest build log that a user would read.
const LINES_MAX: usize = 10_000;

/// Their length, in bytes.
const BYTES_MAX: usize = 2 << 20;

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use floe_transfer::EventSink;

    use super::*;

    #[derive(Debug, Default)]
    struct Counter(AtomicUsize);

    impl EventSink for Counter {
        fn event(&self, _: Event<'_>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn count(line: &str, times: usize) -> usize {
        let counter = Arc::new(Counter::default());
        let mut log = RemoteLog::new("ssh-ng://host", &Events::new(counter.clone()));
        for _ in 0..times {
            log.send(line);
        }
        counter.0.load(Ordering::Relaxed)
    }

    #[test]
    fn flood_of_lines_is_cut_off() {
        assert_eq!(count("a", 100), 100);
        assert_eq!(count("a", 3 * LINES_MAX), LINES_MAX + 1);
        assert!(count(&"a".repeat(1000), 3 * LINES_MAX) < BYTES_MAX / 1000 + 3);
    }
}
