//! CPU time and memory of a server from /proc: of its processes, their groups and all descendants.

use std::collections::BTreeSet;
use std::fs;
use std::thread;
use std::time::{Duration, Instant};

/// The unit of the times in /proc/PID/stat: USER_HZ, which is 100 on every Linux.
const TICKS_PER_SECOND: f64 = 100.0;

/// A server that uses less than a tenth of this interval is idle.
const IDLE_INTERVAL: Duration = Duration::from_millis(30);
/// A server that never becomes idle is measured anyway.
const IDLE_TIMEOUT: Duration = Duration::from_secs(2);

/// The fields of /proc/PID/stat that are used.
#[derive(Debug, PartialEq)]
struct Process {
    pid: u32,
    parent: u32,
    group: u32,
    /// Its own time, in user mode and in the kernel.
    own_ticks: u64,
    /// The time of its children that ended.
    children_ticks: u64,
}

impl Process {
    fn parse(line: &str) -> Option<Process> {
        let (pid, _) = line.split_once(' ')?;
        // The name of the program may contain spaces and parentheses; all other fields are numbers.
        let (_, rest) = line.rsplit_once(") ")?;
        let field: Vec<&str> = rest.split_ascii_whitespace().collect();
        let number = |at: usize| field.get(at)?.parse::<u64>().ok();
        Some(Process {
            pid: pid.parse().ok()?,
            parent: number(1)?.try_into().ok()?,
            group: number(2)?.try_into().ok()?,
            own_ticks: number(11)? + number(12)?,
            children_ticks: number(13)? + number(14)?,
        })
    }

    /// The larger of two counts: the scheduler's, which is exact but lacks threads that ended, and
    /// the clock ticks, which include them.
    fn cpu_seconds(&self) -> f64 {
        let threads = fs::read_dir(format!("/proc/{}/task", self.pid));
        let seconds = threads
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|thread| {
                let text = fs::read_to_string(thread.path().join("schedstat")).ok()?;
                let nanoseconds: u64 = text.split(' ').next()?.parse().ok()?;
                Some(nanoseconds as f64 / 1e9)
            });
        let ticks = self.own_ticks as f64 / TICKS_PER_SECOND;
        seconds.sum::<f64>().max(ticks) + self.children_ticks as f64 / TICKS_PER_SECOND
    }
}

/// Memory in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Memory {
    /// The sum of the peak resident sets since [`reset_peak_memory`]; shared pages count for each
    /// process.
    pub(super) peak_rss: u64,
    /// The sum of the proportional set sizes: shared pages are divided among their processes.
    pub(super) pss: u64,
}

/// The processes of `roots`, of their groups, and all their descendants.
fn family(roots: &[u32]) -> Vec<Process> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let all: Vec<Process> = entries
        .filter_map(|entry| {
            let name = entry.file_name();
            name.to_str()?.parse::<u32>().ok()?;
            Process::parse(&fs::read_to_string(entry.path().join("stat")).ok()?)
        })
        .collect();
    members(all, roots)
}

fn members(all: Vec<Process>, roots: &[u32]) -> Vec<Process> {
    let mut known: BTreeSet<u32> = roots.iter().copied().collect();
    loop {
        let before = known.len();
        for process in &all {
            if roots.contains(&process.group) || known.contains(&process.parent) {
                known.insert(process.pid);
            }
        }
        if known.len() == before {
            break;
        }
    }
    let belongs = |process: &Process| known.contains(&process.pid);
    all.into_iter().filter(belongs).collect()
}

/// CPU seconds of the family so far; `None` if there are no such processes.
pub(super) fn cpu_seconds(roots: &[u32]) -> Option<f64> {
    let family = family(roots);
    (!family.is_empty()).then(|| family.iter().map(Process::cpu_seconds).sum())
}

/// Waits until the family is idle, or until a timeout.
pub(super) fn wait_until_idle(roots: &[u32]) {
    let deadline = Instant::now() + IDLE_TIMEOUT;
    let mut before = cpu_seconds(roots);
    while before.is_some() && Instant::now() < deadline {
        thread::sleep(IDLE_INTERVAL);
        let now = cpu_seconds(roots);
        let used = now.zip(before).map(|(now, before)| now - before);
        if used.is_none_or(|used| used < IDLE_INTERVAL.as_secs_f64() / 10.0) {
            break;
        }
        before = now;
    }
}

/// Resets the peaks to the current use, where the kernel allows it.
pub(super) fn reset_peak_memory(roots: &[u32]) {
    for process in family(roots) {
        let _ = fs::write(format!("/proc/{}/clear_refs", process.pid), "5");
    }
}

/// Memory of the family; `None` if there are no such processes, or only of another user.
pub(super) fn memory(roots: &[u32]) -> Option<Memory> {
    let mut sum = None;
    for process in family(roots) {
        let read = |file: &str, field: &str| {
            let text = fs::read_to_string(format!("/proc/{}/{file}", process.pid)).ok()?;
            bytes(&text, field)
        };
        let (Some(peak_rss), Some(pss)) = (read("status", "VmHWM:"), read("smaps_rollup", "Pss:"))
        else {
            continue;
        };
        let sum: &mut Memory = sum.get_or_insert_default();
        sum.peak_rss += peak_rss;
        sum.pss += pss;
    }
    sum
}

/// The value of a field that /proc gives in KiB.
fn bytes(text: &str, field: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(field))?;
    let kibibytes: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kibibytes * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_name_may_contain_spaces_and_parentheses() {
        let line = "42 (a ) b) S 7 40 40 0 -1 4194560 1 2 3 4 100 20 3 1 20 0 1 0 9 9 9";
        let process = Process::parse(line).unwrap();
        let expected = Process {
            pid: 42,
            parent: 7,
            group: 40,
            own_ticks: 120,
            children_ticks: 4,
        };
        assert_eq!(process, expected);
        assert_eq!(Process::parse("42 (short) S 7"), None);
    }

    #[test]
    fn family_is_the_group_and_all_descendants() {
        let process = |pid, parent, group| Process {
            pid,
            parent,
            group,
            own_ticks: 1,
            children_ticks: 0,
        };
        let all = vec![
            process(13, 12, 13),
            process(10, 1, 10),
            process(11, 1, 10),
            process(12, 11, 12),
            process(20, 1, 20),
        ];
        let pids: Vec<u32> = members(all, &[10]).iter().map(|p| p.pid).collect();
        assert_eq!(pids, [13, 10, 11, 12]);
    }

    #[test]
    fn own_process_has_time_and_memory() {
        let own = [std::process::id()];
        assert!(cpu_seconds(&own).is_some());
        assert!(memory(&own).is_some_and(|memory| memory.peak_rss >= memory.pss));
        assert_eq!(bytes("Pss:      12 kB\n", "Pss:"), Some(12 << 10));
    }
}
