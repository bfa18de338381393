//! `--trace`: the timeline of a copy as Chrome trace events, which Perfetto opens.
//!
//! Each thread has a row. The row of the main thread shows resolving and commits, and the row of a
//! worker shows the paths that it receives. Each path has a row with its stages, which overlap the
//! stages of other paths. Spans are written when they end. Only the open stages are kept in memory.

mod file;

use std::collections::HashMap;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use floe_format::{HashPart, StorePath};
use floe_transfer::Event;
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::stderr::warn;
use file::TraceFile;

/// A trace, written until it is dropped.
pub(crate) struct Trace(Mutex<State>);

struct State {
    began: Instant,
    file: TraceFile,
    /// The rows of threads by name.
    threads: HashMap<String, u64>,
    /// The rows of paths by hash part, since more is not known of every path.
    paths: HashMap<HashPart, Track>,
    /// The start of resolving.
    resolving: Option<Micros>,
    /// The start of the commit in progress, and its number of paths so far.
    committing: Option<(Micros, u64)>,
    /// The number of tracks so far.
    tracks: u64,
    /// Downloaded bytes.
    fetched: u64,
    /// Bytes of unpacked NARs.
    unpacked: i64,
    counters_written_at: Option<Micros>,
}

/// The row of a path that is not valid yet.
struct Track {
    /// The number of the row.
    id: u64,
    name: String,
    stage: &'static str,
    since: Micros,
    nar_size: Option<u64>,
    /// Bytes downloaded in this attempt.
    fetched: u64,
    /// The row of the thread that receives the path.
    thread: Option<u64>,
}

/// Microseconds since the trace began, the unit of trace events.
type Micros = u64;

impl Trace {
    /// Begins a trace in a new file.
    ///
    /// Errors: the file cannot be created.
    pub(crate) fn create(path: &Path, command: &str) -> anyhow::Result<Trace> {
        let process = json!({
            "ph": "M", "pid": PID, "name": "process_name", "args": { "name": command },
        });
        let file = TraceFile::create(path, &process)?;
        Ok(Trace(Mutex::new(State {
            began: Instant::now(),
            file,
            threads: HashMap::new(),
            paths: HashMap::new(),
            resolving: None,
            committing: None,
            tracks: 0,
            fetched: 0,
            unpacked: 0,
            counters_written_at: None,
        })))
    }

    /// Adds an event to the trace.
    pub(crate) fn event(&self, event: &Event<'_>) {
        let mut state = self.0.lock();
        // The time is taken under the lock, so that times increase in the file.
        let now = state.now();
        state.event(event, now);
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        let state = self.0.get_mut();
        state.finish();
        if let Err(error) = state.file.finish() {
            warn(format_args!("ending the trace early: {error:#}"));
        }
    }
}

impl State {
    fn now(&self) -> Micros {
        u64::try_from(self.began.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    fn event(&mut self, event: &Event<'_>, now: Micros) {
        match event {
            Event::Querying { requested } => {
                self.resolving.get_or_insert(now);
                self.start_track(requested, now);
            }
            Event::Resolved { path, nar_size, .. } => {
                if let Some(track) = self.track(path) {
                    track.name = path.to_string();
                    track.nar_size = Some(*nar_size);
                }
                self.enter_stage(path, "wait", now);
            }
            Event::Planned { .. } => self.end_resolving(now),
            Event::Started { path, .. } => {
                self.enter_stage(path, "receive", now);
                let thread = self.thread_row();
                if let Some(track) = self.track(path) {
                    track.thread = Some(thread);
                }
            }
            Event::Fetched { path, bytes } => {
                self.fetched += bytes;
                if let Some(track) = self.track(path) {
                    track.fetched += bytes;
                }
                self.write_counters(now, COUNTER_INTERVAL);
            }
            Event::Progress { nar_bytes, .. } => {
                self.unpacked += nar_bytes;
                self.write_counters(now, COUNTER_INTERVAL);
            }
            Event::Retrying { path, error } => {
                if let Some(track) = path.and_then(|path| self.track(path)) {
                    track.fetched = 0;
                }
                self.instant_event("retry", &error.to_string(), now);
            }
            Event::Staged { path } => {
                self.end_receive(path, "finished", now);
                self.enter_stage(path, "wait for references", now);
            }
            Event::TransferFailed { path } => {
                self.end_receive(path, "failed", now);
                self.end_track(path.hash_part(), "failed", now);
            }
            Event::Committing { path } => {
                let (_, paths) = self.committing.get_or_insert((now, 0));
                *paths += 1;
                self.enter_stage(path, "commit", now);
            }
            Event::Valid { path } => self.end_track(path.hash_part(), "valid", now),
            Event::Registered { .. } => self.end_committing(now),
            Event::Failed { error } => {
                self.instant_event("failed", &error.to_string(), now);
                if let Some(part) = error.path_name().and_then(hash_part) {
                    self.end_track(part, "failed", now);
                }
            }
            _ => {}
        }
    }

    fn track(&mut self, path: &StorePath) -> Option<&mut Track> {
        self.paths.get_mut(&path.hash_part())
    }

    /// Starts the row of a path, in the stage `resolve`.
    fn start_track(&mut self, requested: &str, now: Micros) {
        let Some(part) = hash_part(requested) else {
            return;
        };
        self.end_track(part, "queried again", now);
        self.tracks += 1;
        let track = Track {
            id: self.tracks,
            name: requested.to_owned(),
            stage: "resolve",
            since: now,
            nar_size: None,
            fetched: 0,
            thread: None,
        };
        self.file
            .write(&track.event("b", requested, now, json!({})));
        self.paths.insert(part, track);
    }

    /// Ends the stage of a path, and starts the next one.
    fn enter_stage(&mut self, path: &StorePath, stage: &'static str, now: Micros) {
        if let Some(track) = self.paths.get_mut(&path.hash_part()) {
            track.end_stage(&mut self.file, now);
            track.stage = stage;
            track.since = now;
        }
    }

    /// Ends the row of a path.
    fn end_track(&mut self, part: HashPart, outcome: &str, now: Micros) {
        if let Some(track) = self.paths.remove(&part) {
            track.end(&mut self.file, outcome, now);
        }
    }

    /// Ends the span of the worker that has received a path.
    fn end_receive(&mut self, path: &StorePath, outcome: &str, now: Micros) {
        if let Some(track) = self.paths.get(&path.hash_part()) {
            track.end_receive(&mut self.file, outcome, now);
            self.write_counters(now, Duration::ZERO);
        }
    }

    fn end_resolving(&mut self, now: Micros) {
        if let Some(since) = self.resolving.take() {
            let event = span(self.thread_row(), "resolve", (since, now), json!({}));
            self.file.write(&event);
        }
    }

    fn end_committing(&mut self, now: Micros) {
        if let Some((since, paths)) = self.committing.take() {
            let (thread, args) = (self.thread_row(), json!({ "paths": paths }));
            self.file.write(&span(thread, "commit", (since, now), args));
        }
    }

    /// Returns the row of the current thread.
    fn thread_row(&mut self) -> u64 {
        let thread = thread::current();
        let name = thread.name().unwrap_or("unnamed");
        if let Some(id) = self.threads.get(name) {
            return *id;
        }
        let id = self.threads.len() as u64 + 1;
        self.file.write(&json!({
            "ph": "M", "pid": PID, "tid": id, "name": "thread_name", "args": { "name": name },
        }));
        self.threads.insert(name.to_owned(), id);
        id
    }

    /// Adds an event without a duration to the row of the current thread.
    fn instant_event(&mut self, name: &str, message: &str, now: Micros) {
        let tid = self.thread_row();
        self.file.write(&json!({
            "ph": "i", "s": "t", "pid": PID, "tid": tid, "ts": now, "name": name,
            "args": { "message": message },
        }));
    }

    /// Writes the counters, unless they were written less than `pause` ago.
    fn write_counters(&mut self, now: Micros, pause: Duration) {
        let pause = u64::try_from(pause.as_micros()).unwrap_or(u64::MAX);
        let is_due = |last| now >= pause.saturating_add(last);
        if self.counters_written_at.is_none_or(is_due) {
            self.counters_written_at = Some(now);
            let (downloaded, unpacked) = (json!(self.fetched), json!(self.unpacked));
            for (name, bytes) in [("downloaded", downloaded), ("unpacked", unpacked)] {
                self.file.write(&json!({
                    "ph": "C", "pid": PID, "ts": now, "name": name, "args": { "bytes": bytes },
                }));
            }
        }
    }

    /// Ends everything that an error or an interrupt has left open.
    fn finish(&mut self) {
        let now = self.now();
        self.end_resolving(now);
        self.end_committing(now);
        self.write_counters(now, Duration::ZERO);
        for track in self.paths.values() {
            if track.stage == "receive" {
                track.end_receive(&mut self.file, "unfinished", now);
            }
            track.end(&mut self.file, "unfinished", now);
        }
    }
}

impl Track {
    /// Returns an event in the row of this path.
    fn event(&self, phase: &str, name: &str, at: Micros, args: Value) -> Value {
        json!({
            "ph": phase, "cat": "path", "id": format!("{:#x}", self.id), "pid": PID, "ts": at,
            "name": name, "args": args,
        })
    }

    /// Ends the current stage.
    fn end_stage(&self, file: &mut TraceFile, now: Micros) {
        let args = json!({ "path": self.name });
        file.write(&self.event("b", self.stage, self.since, args));
        file.write(&self.event("e", self.stage, now, json!({})));
    }

    /// Ends the current stage and the row.
    fn end(&self, file: &mut TraceFile, outcome: &str, now: Micros) {
        self.end_stage(file, now);
        let args = json!({ "outcome": outcome, "narSize": self.nar_size });
        file.write(&self.event("e", &self.name, now, args));
    }

    /// Ends the span of the worker that has received this path.
    fn end_receive(&self, file: &mut TraceFile, outcome: &str, now: Micros) {
        let Some(thread) = self.thread else { return };
        let args = json!({
            "path": self.name, "narSize": self.nar_size, "downloadBytes": self.fetched,
            "outcome": outcome,
        });
        let name = self.name.get(HashPart::LEN + 1..).unwrap_or(&self.name);
        file.write(&span(thread, name, (self.since, now), args));
    }
}

/// Returns the hash part at the start of a base name.
fn hash_part(name: &str) -> Option<HashPart> {
    HashPart::parse(name.get(..HashPart::LEN)?)
}

/// Returns the span of a thread from one time to another.
fn span(thread: u64, name: &str, (since, now): (Micros, Micros), args: Value) -> Value {
    json!({
        "ph": "X", "pid": PID, "tid": thread, "ts": since, "dur": now.saturating_sub(since),
        "name": name, "args": args,
    })
}

/// The process of all events. Its real number would only make traces differ.
const PID: u64 = 1;

/// The interval of counters: enough points for a smooth line, and few compared with the spans.
const COUNTER_INTERVAL: Duration = Duration::from_millis(10);
