//! Whether stderr is a stream of systemd's journal, which reads the priority of a line from its
//! beginning (sd-daemon(3)).

use std::env;

use rustix::fs::fstat;
use rustix::stdio::stderr;

/// Whether a line on stderr reaches the journal. Another file may replace stderr at any time.
pub(super) fn is_stderr() -> bool {
    let stream = env::var("JOURNAL_STREAM").unwrap_or_default();
    // systemd sets the variable, so most processes skip the system call.
    !stream.is_empty()
        && fstat(stderr()).is_ok_and(|stat| is_named(&stream, stat.st_dev, stat.st_ino))
}

/// Puts a priority of syslog before each line of a text: the journal makes an entry of each.
pub(super) fn with_priority(priority: u8, text: &str) -> String {
    let lines = text.split('\n').map(|line| format!("<{priority}>{line}"));
    lines.collect::<Vec<_>>().join("\n")
}

/// Whether `JOURNAL_STREAM` names a file: device and inode in decimal, with a colon between them
/// (systemd.exec(5)).
fn is_named(stream: &str, device: u64, inode: u64) -> bool {
    let numbers = stream.split_once(':');
    let numbers = numbers.and_then(|(device, inode)| {
        Some((device.parse::<u64>().ok()?, inode.parse::<u64>().ok()?))
    });
    numbers == Some((device, inode))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stream_is_named_by_device_and_inode() {
        assert!(is_named("8:5432", 8, 5432));
        for other in ["8:5433", "9:5432", "8", "8:", "8:x", ":", "8:5432:1"] {
            assert!(!is_named(other, 8, 5432), "{other}");
        }
    }

    #[test]
    fn each_line_has_the_priority() {
        assert_eq!(with_priority(4, "one\ntwo"), "<4>one\n<4>two");
    }
}
