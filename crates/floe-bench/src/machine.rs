//! The machine and the programs on it: without them a figure says nothing.

use std::fs;
use std::process::{Command, Stdio};
use std::thread;

use serde_json::{Value, json};

/// The machine, and how busy it was already.
pub fn machine() -> Value {
    let memory = field("/proc/meminfo", "MemTotal", ':');
    json!({
        "cpu": field("/proc/cpuinfo", "model name", ':'),
        "cores": thread::available_parallelism().map(usize::from).ok(),
        "memory": memory,
        "kernel": read("/proc/sys/kernel/osrelease"),
        "system": field("/etc/os-release", "PRETTY_NAME", '='),
        "loadAtStart": read("/proc/loadavg"),
        "date": first_line(Command::new("date").args(["-u", "+%Y-%m-%d"])),
    })
}

/// The machine in a sentence.
pub fn describe(machine: &Value) -> String {
    let text = |name: &str| machine[name].as_str().unwrap_or("unknown").to_string();
    format!(
        "Machine: {}, {} cores, {}, Linux {}, {}.",
        text("cpu"),
        machine["cores"],
        text("memory"),
        text("kernel"),
        text("system")
    )
}

fn read(file: &str) -> Option<String> {
    let text = fs::read_to_string(file).ok()?;
    Some(text.trim().to_string())
}

fn field(file: &str, name: &str, separator: char) -> Option<String> {
    value(&read(file)?, name, separator)
}

/// The value of the first line that gives one to `name`.
fn value(text: &str, name: &str, separator: char) -> Option<String> {
    let values = text.lines().filter_map(|line| line.split_once(separator));
    let mut values = values.filter(|(key, _)| key.trim() == name);
    let (_, value) = values.next()?;
    Some(value.trim().trim_matches('"').to_string())
}

/// What a program says first, on stdout or, as nginx does, on stderr. Its status says nothing:
/// wrk fails when it is asked for its version.
pub fn first_line(command: &mut Command) -> Option<String> {
    let output = command.stdin(Stdio::null()).output().ok()?;
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    let line = text.lines().next()?.trim();
    (!line.is_empty()).then(|| line.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_value_counts_without_its_quotes() {
        let text = "model\t: 3\nmodel name\t: A CPU\nmodel name\t: B\n";
        assert_eq!(value(text, "model name", ':').as_deref(), Some("A CPU"));
        let quoted = value("PRETTY_NAME=\"Debian\"", "PRETTY_NAME", '=');
        assert_eq!(quoted.as_deref(), Some("Debian"));
        assert_eq!(value(text, "other", ':'), None);
    }

    #[test]
    fn the_machine_is_known() {
        let machine = machine();
        assert!(machine["cores"].is_number(), "{machine}");
        assert!(describe(&machine).contains("Linux"), "{machine}");
    }
}
