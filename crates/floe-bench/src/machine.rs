//! The machine and the programs on it; figures are only valid together with them.

use std::fs;
use std::process::{Command, Stdio};
use std::thread;

use serde_json::{Value, json};

/// Describes the machine and its current load as a JSON object.
pub fn machine() -> Value {
    json!({
        "cpu": field("/proc/cpuinfo", "model name", ':'),
        "cores": thread::available_parallelism().map(usize::from).ok(),
        "memory": field("/proc/meminfo", "MemTotal", ':'),
        "kernel": read("/proc/sys/kernel/osrelease"),
        "system": field("/etc/os-release", "PRETTY_NAME", '='),
        "loadAtStart": read("/proc/loadavg"),
        "date": first_line(Command::new("date").args(["-u", "+%Y-%m-%d"])),
    })
}

/// The machine, from [`machine`], in a sentence.
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

/// The value of a field in a file of lines.
pub(crate) fn field(file: &str, name: &str, separator: char) -> Option<String> {
    value(&read(file)?, name, separator)
}

/// The value in the first line of the form `name separator value`, without quotes.
fn value(text: &str, name: &str, separator: char) -> Option<String> {
    let fields = text.lines().filter_map(|line| line.split_once(separator));
    let mut values = fields.filter(|(key, _)| key.trim() == name);
    let (_, value) = values.next()?;
    Some(value.trim().trim_matches('"').to_string())
}

/// The first line that a program prints, on stdout or, like nginx, on stderr. The exit status is
/// ignored, because `wrk -v` fails.
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
    fn value_is_the_first_one_without_quotes() {
        let text = "model\t: 3\nmodel name\t: A CPU\nmodel name\t: B\n";
        assert_eq!(value(text, "model name", ':').as_deref(), Some("A CPU"));
        let quoted = value("PRETTY_NAME=\"Debian\"", "PRETTY_NAME", '=');
        assert_eq!(quoted.as_deref(), Some("Debian"));
        assert_eq!(value(text, "other", ':'), None);
    }

    #[test]
    fn machine_has_cores_and_kernel() {
        let machine = machine();
        assert!(machine["cores"].is_number(), "{machine}");
        assert!(describe(&machine).contains("Linux"), "{machine}");
    }
}
