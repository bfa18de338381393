//! What servers cost, as the kernel counts it in /proc: CPU time and memory of a process and all
//! that belong to it.

use std::collections::BTreeSet;
use std::fs;
use std::thread;
use std::time::{Duration, Instant};

/// The unit of the times in /proc/PID/stat: USER_HZ, which is 100 on every Linux.
const TICKS_PER_SECOND: f64 = 100.0;

/// Who works for less than a tenth of this time stands still.
const STILL: Duration = Duration::from_millis(30);
/// A server that is always busy is measured like that.
const STILL_PATIENCE: Duration = Duration::from_secs(2);

/// What one line of /proc/PID/stat says.
#[derive(Debug, PartialEq)]
struct Process {
    pid: u32,
    parent: u32,
    group: u32,
    /// Its own time, as user and in the kernel.
    own_ticks: u64,
    /// That of its children that ended.
    children_ticks: u64,
}

impl Process {
    fn parse(line: &str) -> Option<Process> {
        let (pid, _) = line.split_once(' ')?;
        // The name of the program may hold spaces and parentheses; the rest is numbers.
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
}

impl Process {
    /// The scheduler knows the time of each thread to the nanosecond, but forgets threads that
    /// ended; the ticks remember those. Whichever has seen more is right.
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

/// Memory in KiB.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Memory {
    /// The most that lay in memory since `forget_peaks`; what is shared counts for each process.
    pub(super) peak_rss: u64,
    /// What lies there now, shared pages divided among those who share them.
    pub(super) pss: u64,
}

/// The processes that belong to `roots`: they, their groups, and all their descendants.
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

/// CPU seconds of the family so far; `None` when there is nobody to count.
pub(super) fn cpu_seconds(roots: &[u32]) -> Option<f64> {
    let family = family(roots);
    (!family.is_empty()).then(|| family.iter().map(Process::cpu_seconds).sum())
}

/// Waits until the family stands still, or for as long as is reasonable.
pub(super) fn settle(roots: &[u32]) {
    let deadline = Instant::now() + STILL_PATIENCE;
    let mut before = cpu_seconds(roots);
    while before.is_some() && Instant::now() < deadline {
        thread::sleep(STILL);
        let now = cpu_seconds(roots);
        let worked = now.zip(before).map(|(now, before)| now - before);
        if worked.is_none_or(|worked| worked < STILL.as_secs_f64() / 10.0) {
            break;
        }
        before = now;
    }
}

/// Lets the peaks begin again at what is used now, where the kernel lets us.
pub(super) fn forget_peaks(roots: &[u32]) {
    for process in family(roots) {
        let _ = fs::write(format!("/proc/{}/clear_refs", process.pid), "5");
    }
}

/// `None` when there is nobody to count, or another user's.
pub(super) fn memory(roots: &[u32]) -> Option<Memory> {
    let mut sum = None;
    for process in family(roots) {
        let read = |file: &str, field: &str| {
            let text = fs::read_to_string(format!("/proc/{}/{file}", process.pid)).ok()?;
            kibibytes(&text, field)
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

fn kibibytes(text: &str, field: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(field))?;
    line.trim().strip_suffix(" kB")?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_spaces_and_parentheses_hides_no_number() {
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
    fn a_family_is_group_and_descendants_and_nobody_else() {
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
    fn this_process_has_time_and_memory() {
        let own = [std::process::id()];
        assert!(cpu_seconds(&own).is_some());
        assert!(memory(&own).is_some_and(|memory| memory.peak_rss >= memory.pss));
        assert_eq!(kibibytes("Pss:      12 kB\n", "Pss:"), Some(12));
    }
}
