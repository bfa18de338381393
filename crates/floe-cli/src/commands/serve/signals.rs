//! Signals that end a server, reopen its access log, or make it read its files again.

use std::io::Read as _;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::Duration;

use anyhow::Context as _;
use floe_server::ShutdownHandle;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTTIN, SIGTTOU, SIGUSR1};
use signal_hook::low_level::{emulate_default_handler, pipe};

use super::{messages, service_manager};

/// Makes the first SIGINT or SIGTERM stop the server, and the second one drop unfinished responses.
/// [`END_GRACE`] after the second one, or at the third one, the process dies of SIGTERM: a worker
/// may wait for a file system that does not answer.
///
/// Must be called before any thread starts to serve.
///
/// Errors: the system refuses a handler or the thread.
pub(crate) fn stop_on_signals(server: ShutdownHandle, starman_signals: bool) -> anyhow::Result<()> {
    let attempt = messages::SIGNAL_HANDLERS;
    let (mut receiver, sender) = UnixStream::pair().context(attempt)?;
    let mut ending = vec![SIGINT, SIGTERM];
    if starman_signals {
        // starman finishes unfinished responses at SIGQUIT. floe does so at each of these signals.
        ending.push(SIGQUIT);
        // starman restarts and counts its workers at these signals. floe has no workers, and the
        // default actions would end or suspend the process.
        for signal in [SIGHUP, SIGTTIN, SIGTTOU] {
            let ignored = Arc::new(AtomicBool::new(false));
            signal_hook::flag::register(signal, ignored).context(attempt)?;
        }
    }
    for signal in ending {
        let sender = sender.try_clone().context(attempt)?;
        pipe::register(signal, sender).context(attempt)?;
    }
    thread::Builder::new()
        .name("signals".into())
        .spawn(move || {
            let mut byte = [0];
            for _ in 0..2 {
                if receiver.read_exact(&mut byte).is_err() {
                    return;
                }
                service_manager::notify_stopping();
                server.shutdown();
            }
            // Both a third signal and the end of the grace end this wait.
            let _: std::io::Result<()> = receiver
                .set_read_timeout(Some(END_GRACE))
                .and_then(|()| receiver.read_exact(&mut byte));
            // If this fails too, only SIGKILL ends the process.
            let _: std::io::Result<()> = emulate_default_handler(SIGTERM);
        })
        .context(attempt)?;
    Ok(())
}

/// A signal with a task that does not end the server.
pub(crate) struct TaskSignal {
    receiver: UnixStream,
}

impl TaskSignal {
    /// SIGUSR1, which reopens the access log.
    ///
    /// Errors: the system refuses the handler.
    pub(crate) fn reopen() -> anyhow::Result<TaskSignal> {
        TaskSignal::catch(SIGUSR1)
    }

    /// SIGHUP, which reads settings and files anew.
    ///
    /// Errors: the system refuses the handler.
    pub(crate) fn reload() -> anyhow::Result<TaskSignal> {
        TaskSignal::catch(SIGHUP)
    }

    /// Catches a signal from now on. Its default action would end the process: a tool that rotates
    /// logs may send it to a server without a log, or while the server opens the store.
    fn catch(signal: i32) -> anyhow::Result<TaskSignal> {
        let attempt = messages::SIGNAL_HANDLERS;
        let (receiver, sender) = UnixStream::pair().context(attempt)?;
        pipe::register(signal, sender).context(attempt)?;
        Ok(TaskSignal { receiver })
    }

    /// Runs a task at each signal, including those that were caught before.
    ///
    /// Errors: the system refuses the thread.
    pub(crate) fn run(mut self, task: impl Fn() + Send + 'static) -> anyhow::Result<()> {
        thread::Builder::new()
            .name("signal task".into())
            .spawn(move || {
                let mut byte = [0];
                while self.receiver.read_exact(&mut byte).is_ok() {
                    task();
                }
            })
            .context(messages::SIGNAL_HANDLERS)?;
        Ok(())
    }
}

/// How long the process may take to end after the second signal.
const END_GRACE: Duration = Duration::from_secs(1);
