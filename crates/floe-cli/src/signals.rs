//! Signals that end a command in an orderly way.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;
use std::{fs, io, thread};

use floe_transfer::Cancel;
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::exfiltrator::raw::WithRawSiginfo;

use crate::display::eprint_error;

/// Makes the first SIGINT, SIGTERM or SIGHUP cancel the work, and the second one end the process.
pub(crate) fn cancel_on_signals(cancel: &Cancel) -> anyhow::Result<()> {
    raise_on_signals(&cancel.flag())
}

/// Makes the first of these signals raise a flag, and the second one end the process.
pub(crate) fn raise_on_signals(flag: &Arc<AtomicBool>) -> anyhow::Result<()> {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    let signals = [SIGINT, SIGTERM, SIGHUP];
    // A process that `nohup` has started ignores SIGHUP; one in the background of a script ignores
    // SIGINT.
    let signals = signals.into_iter().filter(|it| !ignores_signal(*it));
    let signals: Vec<i32> = signals.collect();
    let is_watched = end_at_second_signal(&signals, flag.clone()).is_ok();
    for signal in signals {
        if !is_watched {
            signal_hook::flag::register_conditional_shutdown(signal, INTERRUPTED, flag.clone())?;
        }
        signal_hook::flag::register(signal, flag.clone())?;
    }
    Ok(())
}

/// Starts a thread that ends the process at the second signal, and says so. It raises the flag at
/// the first one, which may come before the flag is registered.
fn end_at_second_signal(signals: &[i32], flag: Arc<AtomicBool>) -> io::Result<()> {
    // The default kind would count two signals that arrive together as one.
    let mut received = SignalsInfo::<WithRawSiginfo>::new(signals)?;
    let thread = thread::Builder::new().name("signals".into());
    thread.spawn(move || {
        let mut received = received.forever();
        if received.next().is_some() {
            flag.store(true, Ordering::SeqCst);
        }
        if received.next().is_some() {
            say_that_it_ends();
            signal_hook::low_level::exit(INTERRUPTED);
        }
    })?;
    Ok(())
}

/// Prints the last line. If no process reads stderr, it gives up after a short time.
fn say_that_it_ends() {
    let (printed, ended) = mpsc::channel();
    let thread = thread::Builder::new().name("last line".into());
    let spawned = thread.spawn(move || {
        eprint_error("interrupted at once");
        // The other thread may have stopped waiting.
        let _ = printed.send(());
    });
    if spawned.is_ok() {
        let _ = ended.recv_timeout(LAST_LINE_WAIT);
    }
}

/// The exit code after a signal.
const INTERRUPTED: i32 = 130;

/// Long enough for a terminal.
const LAST_LINE_WAIT: Duration = Duration::from_millis(200);

/// Whether this process ignores a signal, as its parent has decided.
fn ignores_signal(signal: i32) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}
