//! Command lines that run another command under Linux perf.

use std::path::Path;

/// A command line that runs `command` under `perf stat` and writes the counters to `output`.
pub fn stat(output: &Path, command: &[String]) -> Vec<String> {
    under(&format!("perf stat -e {EVENTS}"), output, command)
}

/// A command line that runs `command` under `perf record` and writes a profile to `output`, for
/// `perf report -i`.
pub fn record(output: &Path, command: &[String]) -> Vec<String> {
    // Virtual machines have the event cpu-clock too. Call graphs by frame pointers cost nothing,
    // whereas unwinding by DWARF data would write gigabytes. The frequency is a prime number, so
    // that samples do not coincide with periodic work.
    under("perf record -q -e cpu-clock -F 997 -g", output, command)
}

fn under(perf: &str, output: &Path, command: &[String]) -> Vec<String> {
    let mut words: Vec<String> = perf.split(' ').map(str::to_owned).collect();
    words.extend(["-o".into(), output.display().to_string(), "--".into()]);
    words.extend_from_slice(command);
    words
}

/// Software events, which every machine with perf has, and the two most useful hardware events. If
/// a machine does not count those, perf says so in its output.
const EVENTS: &str = "task-clock,context-switches,cpu-migrations,page-faults,instructions,cycles";
