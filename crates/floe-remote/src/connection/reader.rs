//! The thread that reads the replies of a daemon.

use std::io::{self, ErrorKind, Read as _};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use floe_transfer::{CANCEL_POLL, Events, plain_text};
use floe_wire::worker::{DaemonError, LogMessage, Reply, ReplyKind};
use floe_wire::{ClientEvent, ClientSession, WireError};

use super::nar_body::NarFeed;
use super::{Pending, Recipient, Shared};
use crate::error::RemoteError;
use crate::remote_log::RemoteLog;
use crate::stream::Output;

/// The thread that reads the replies of a daemon.
pub(super) struct Reader {
    shared: Arc<Shared>,
    client: ClientSession,
    log: RemoteLog,
    /// Called when the connection is open, or has failed before.
    opened: Option<Box<dyn FnOnce() + Send>>,
    /// The receiver of the NAR that arrives.
    nar: Option<NarFeed>,
    /// How many pending requests the session expects.
    expected: usize,
    /// When the last bytes arrived, or the daemon last owed no reply.
    silent_since: Instant,
}

impl Reader {
    pub(super) fn new(
        shared: Arc<Shared>,
        client: ClientSession,
        events: &Events,
        opened: impl FnOnce() + Send + 'static,
    ) -> Reader {
        let log = RemoteLog::new(&shared.name, events);
        Reader {
            shared,
            client,
            log,
            opened: Some(Box::new(opened)),
            nar: None,
            expected: 0,
            silent_since: Instant::now(),
        }
    }

    /// Reads until the connection ends.
    pub(super) fn run(mut self, mut output: Output) {
        let failure = loop {
            match self.read(&mut output) {
                Ok(true) => {}
                Ok(false) => break self.ended(),
                Err(error) => break error,
            }
        };
        // An interrupt from the terminal also ends ssh.
        let failure = if self.shared.cancel.is_raised() {
            RemoteError::Cancelled
        } else {
            failure
        };
        // After its owner, a program ends by itself.
        if !self.shared.is_closing.load(Ordering::Relaxed) {
            self.shared.peer.close();
        }
        let mut state = self.shared.state.lock();
        state.failure = Some(failure.clone());
        let pending = std::mem::take(&mut state.pending);
        drop(state);
        self.shared.changed.notify_all();
        if let Some(nar) = self.nar.take() {
            nar.fail(failure.clone());
        }
        for pending in pending {
            pending.recipient.fail(failure.clone());
        }
        self.report_opened();
    }

    /// Reads and handles some bytes. Returns `false` at the end.
    fn read(&mut self, output: &mut Output) -> Result<bool, RemoteError> {
        loop {
            if self.shared.cancel.is_raised() {
                return Err(RemoteError::Cancelled);
            }
            if self.shared.is_closing.load(Ordering::Relaxed) {
                return Ok(false);
            }
            if output
                .wait(CANCEL_POLL)
                .map_err(|error| self.broken(&error))?
            {
                break;
            }
            self.check_silence()?;
        }
        let len = match output.read(self.client.space()) {
            Ok(len) => len,
            Err(error) if error.kind() == ErrorKind::Interrupted => return Ok(true),
            // A daemon that refuses the user closes the socket without reading.
            Err(error) if error.kind() == ErrorKind::ConnectionReset => 0,
            Err(error) => return Err(self.broken(&error)),
        };
        // Bytes of a reply follow its request, so all requests that matter are here.
        let state = self.shared.state.lock();
        for pending in state.pending.iter().skip(self.expected) {
            self.client.expect(pending.kind.clone());
        }
        self.expected = state.pending.len();
        drop(state);
        self.client.fill(len);
        self.handle_events()?;
        // A slow worker may have stopped the reading.
        self.silent_since = Instant::now();
        Ok(len > 0)
    }

    /// Ends the wait for a daemon that sends nothing although it owes a reply.
    fn check_silence(&mut self) -> Result<(), RemoteError> {
        let state = self.shared.state.lock();
        let limit = match state.pending.front() {
            _ if state.info.is_none() => Some(SILENCE_MAX),
            Some(pending) => silence_limit(&pending.kind),
            None => None,
        };
        drop(state);
        let Some(limit) = limit else {
            self.silent_since = Instant::now();
            return Ok(());
        };
        if self.silent_since.elapsed() < limit {
            return Ok(());
        }
        let (uri, seconds) = (self.shared.name.clone(), limit.as_secs());
        let reason = format!("it sent nothing for {seconds} seconds");
        Err(RemoteError::Ended { uri, reason })
    }

    fn handle_events(&mut self) -> Result<(), RemoteError> {
        loop {
            let fault = |fault| protocol_error(&self.shared, fault);
            let event = match self.client.next_event() {
                Ok(Some(ClientEvent::NarData(data))) => {
                    if self.nar.as_mut().is_none_or(|nar| nar.add(data)) {
                        continue;
                    }
                    return Err(self.fail_endless_nar());
                }
                Ok(Some(event)) => event,
                Ok(None) => return Ok(()),
                Err(error) => return Err(fault(error)),
            };
            match event {
                ClientEvent::Opened(info) => {
                    let compresses = self.shared.wants_compression && info.is_floe();
                    let begins = &self.shared.begins_compression;
                    begins.store(compresses, Ordering::Relaxed);
                    self.shared.state.lock().info = Some(info);
                    self.shared.changed.notify_all();
                    self.report_opened();
                }
                ClientEvent::Log(LogMessage::Next(line)) => {
                    if let Some(text) = RemoteLog::text(&line) {
                        self.log.send(&text);
                    }
                }
                ClientEvent::Log(_) | ClientEvent::NarData(_) => {}
                ClientEvent::Replied(reply) => self.handle_reply(reply),
                ClientEvent::Failed(error) => self.handle_failure(&error)?,
                ClientEvent::NarEnd => {
                    if let Some(nar) = self.nar.take() {
                        nar.end();
                    }
                }
            }
        }
    }

    /// Ends a NAR that is longer than announced. The other NARs behind it never come.
    fn fail_endless_nar(&mut self) -> RemoteError {
        let uri = self.shared.name.clone();
        if let Some(nar) = self.nar.take() {
            nar.fail_read(&uri, ENDLESS.into());
        }
        RemoteError::Ended {
            uri,
            reason: ENDLESS.into(),
        }
    }

    fn take_pending(&mut self) -> Option<Pending> {
        let pending = self.shared.state.lock().pending.pop_front();
        self.expected = self.expected.saturating_sub(1);
        pending
    }

    fn handle_reply(&mut self, reply: Reply) {
        match self.take_pending().map(|pending| pending.recipient) {
            Some(Recipient::Reply(callback)) => callback(Ok(reply)),
            Some(Recipient::Nar(feed)) => self.nar = Some(feed),
            None => {}
        }
    }

    /// Handles the failure of a request, or of the start.
    fn handle_failure(&mut self, error: &DaemonError) -> Result<(), RemoteError> {
        let uri = self.shared.name.clone();
        let reason = plain_text(&error.message);
        if self.shared.state.lock().info.is_none() {
            return Err(RemoteError::Connect { uri, reason });
        }
        if let Some(nar) = self.nar.take() {
            nar.fail_read(&uri, reason);
            return Ok(());
        }
        let Some(pending) = self.take_pending() else {
            return Ok(());
        };
        let error = match pending.kind {
            ReplyKind::Added(path) => RemoteError::Add {
                uri,
                path,
                reason: format!("{reason}{}", advice(&reason)),
            },
            ReplyKind::Nar(path) => RemoteError::Read { uri, path, reason },
            _ => RemoteError::Query { uri, reason },
        };
        pending.recipient.fail(error);
        Ok(())
    }

    fn broken(&self, reason: &io::Error) -> RemoteError {
        RemoteError::Ended {
            uri: self.shared.name.clone(),
            reason: reason.to_string(),
        }
    }

    fn ended(&self) -> RemoteError {
        if self.shared.is_closing.load(Ordering::Relaxed) {
            return RemoteError::Cancelled;
        }
        let uri = self.shared.name.clone();
        let reason = self.shared.peer.end_reason();
        match self.client.error_at_end() {
            // Without a byte, the end itself is the cause.
            Some(WireError::Magic { beginning }) if beginning.is_empty() => {
                let reason = format!("{reason}{}", self.shared.peer.advice_at_start());
                RemoteError::Connect { uri, reason }
            }
            Some(fault) => protocol_error(&self.shared, fault),
            None => RemoteError::Ended { uri, reason },
        }
    }

    fn report_opened(&mut self) {
        self.shared.peer.show_lines();
        if let Some(opened) = self.opened.take() {
            opened();
        }
    }
}

fn protocol_error(shared: &Shared, fault: WireError) -> RemoteError {
    let advice = match fault {
        WireError::Magic { .. } => shared.peer.advice_about_text(),
        _ => "",
    };
    let uri = shared.name.clone();
    RemoteError::Protocol { uri, fault, advice }
}

/// The fault of a NAR that is longer than the metadata of its path says.
const ENDLESS: &str = "a NAR is longer than announced, and may be endless";

/// Returns how long a daemon may send nothing before a reply, if there is a limit.
fn silence_limit(kind: &ReplyKind) -> Option<Duration> {
    match kind {
        ReplyKind::Path | ReplyKind::PathInfo(_) | ReplyKind::Nar(_) => Some(SILENCE_MAX),
        // The daemon may fetch the paths first.
        ReplyKind::Paths => Some(LONG_SILENCE_MAX),
        // It may wait for a lock, or work through the whole store.
        _ => None,
    }
}

/// How long a daemon may send nothing before the reply to a query: as long as a server may
/// (`stalled-download-timeout`).
const SILENCE_MAX: Duration = Duration::from_secs(300);

/// The same before the reply to a query for which it may fetch paths.
const LONG_SILENCE_MAX: Duration = Duration::from_secs(3600);

/// Returns what the user can do about the refusal of a path.
fn advice(reason: &str) -> &'static str {
    let is_unsigned =
        ["lacks a signature", "lacks a valid signature"].map(|it| reason.contains(it));
    if is_unsigned.contains(&true) {
        "; add the key of its cache to trusted-public-keys in nix.conf there as root and restart \
         the daemon, or sign the path, or try --no-check-sigs as a user that the store trusts"
    } else {
        ""
    }
}
