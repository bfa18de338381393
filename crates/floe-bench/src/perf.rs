//! What perf can add to a benchmark, where the machine has it.

use std::path::Path;

/// A command line that counts what the command after it does, and writes the figures to `output`.
pub fn stat(output: &Path, command: &[String]) -> Vec<String> {
    let output = output.display().to_string();
    let options = ["perf", "stat", "-e", EVENTS, "-o", &output, "--"];
    wrapped(&options, command)
}

/// A command line that samples what the command after it does, and writes a profile to `output`,
/// to be read with `perf report -i`.
pub fn record(output: &Path, command: &[String]) -> Vec<String> {
    let output = output.display().to_string();
    // The clock of the CPU is an event that virtual machines have too. Frame pointers cost the
    // profiled program nothing; unwinding by its debug data would need as much disk as time.
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
    wrapped(&options, command)
}

fn wrapped(options: &[&str], command: &[String]) -> Vec<String> {
    let options = options.iter().map(|option| (*option).to_owned());
    options.chain(command.iter().cloned()).collect()
}

/// Software events, which every machine that allows perf has, and the two hardware events that
/// say most; perf itself says where a machine does not count them.
const EVENTS: &str = "task-clock,context-switches,cpu-migrations,page-faults,instructions,cycles";

/// A prime, so that no periodic work hides behind it.
const FREQUENCY: &str = "997";
