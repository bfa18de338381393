//! Signals end a server in order.

use std::io::Read as _;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread;

use anyhow::Context as _;
use floe_server::ShutdownHandle;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTTIN, SIGTTOU};
use signal_hook::low_level::{emulate_default_handler, pipe};

/// The first SIGINT or SIGTERM stops the server, the second does not wait for answers under way,
/// and the third kills. Must come before any other thread starts to serve.
pub(crate) fn stop_on_signals(server: ShutdownHandle, starman_signals: bool) -> anyhow::Result<()> {
    let attempt = "preparing for signals";
    let (mut receiver, sender) = UnixStream::pair().context(attempt)?;
    let mut ending = vec![SIGINT, SIGTERM];
    if starman_signals {
        // What starman's QUIT does, floe does anyway: it finishes the answers under way.
        ending.push(SIGQUIT);
        // There they restart and count workers. floe has none, and the defaults of the system
        // would kill or suspend it.
        for signal in [SIGHUP, SIGTTIN, SIGTTOU] {
            let unread = Arc::new(AtomicBool::new(false));
            signal_hook::flag::register(signal, unread).context(attempt)?;
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
                server.shutdown();
            }
            if receiver.read_exact(&mut byte).is_ok() {
                // Should even this fail, SIGKILL is left.
                let _: std::io::Result<()> = emulate_default_handler(SIGTERM);
            }
        })
        .context(attempt)?;
    Ok(())
}
