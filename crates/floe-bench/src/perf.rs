//! Command lines that run another command under Linux perf.

use std::path::Path;

/// A command line that runs `command` under `perf stat` and writes the counters to `output`.
pub fn stat(output: &Path, command: &[String]) -> Vec<String> {
    let output = output.display().to_string();
    let options = ["perf", "stat", "-e", EVENTS, "-o", &output, "--"];
    prefixed(&options, command)
}

/// A command line that runs `command` under `perf record` and writes a profile to `output`, for
/// `perf report -i`.
pub fn record(output: &Path, command: &[String]) -> Vec<String> {
    let output = output.display().to_string();
    // Virtual machines have the event cpu-clock too. Call graphs by frame pointers cost nothing,
    // whereas unwinding by DWARF data would write gigabytes.
    let options = [
        "perf",
        "record",
        "-q",
        "-e",
        "cpu-clock",
        "-F",
        FREQUENCY,
        "-g",
        "-o",
        &output,
        "--",
    ];
    prefixed(&options, command)
}

fn prefixed(options: &[&str], command: &[String]) -> Vec<String> {
    let options = options.iter().map(|option| (*option).to_owned());
    options.chain(command.iter().cloned()).collect()
}

/// Software events, which every machine with perf has, and the two most useful hardware events. If
/// a machine does not count those, perf says so in its output.
const EVENTS: &str = "task-clock,context-switches,cpu-migrations,page-faults,instructions,cycles";

/// A prime number, so that samples do not coincide with periodic work.
const FREQUENCY: &str = "997";
