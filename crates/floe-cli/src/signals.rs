//! Signals that end a command in an orderly way.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use floe_transfer::Cancel;

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
    for signal in signals
        .into_iter()
        .filter(|signal| !ignores_signal(*signal))
    {
        signal_hook::flag::register_conditional_shutdown(signal, 130, flag.clone())?;
        signal_hook::flag::register(signal, flag.clone())?;
    }
    Ok(())
}

/// Whether this process ignores a signal, as its parent has decided.
fn ignores_signal(signal: i32) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}
