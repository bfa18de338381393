//! The figures of the process, under the names that all Prometheus clients use.

use std::fs;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::process::{Resource, getrlimit};
use rustix::time::{ClockId, clock_gettime};

use super::families::Families;

/// Reads the figures of the process, at most once in [`AGE_MAX`].
#[derive(Debug)]
pub(super) struct ProcessFigures {
    /// The start of the process in seconds since 1970.
    start: Option<f64>,
    latest: Mutex<Option<(Instant, Figures)>>,
}

/// The figures of one moment. The system may refuse each of them.
#[derive(Clone, Copy, Debug)]
struct Figures {
    cpu_seconds: f64,
    resident_bytes: Option<u64>,
    virtual_bytes: Option<u64>,
    open_files: Option<usize>,
    open_files_max: Option<u64>,
}

impl ProcessFigures {
    pub(super) fn new() -> ProcessFigures {
        ProcessFigures {
            start: start_time(),
            latest: Mutex::default(),
        }
    }

    /// Returns the start of the process in seconds since 1970.
    pub(super) fn start(&self) -> Option<f64> {
        self.start
    }

    pub(super) fn add_to(&self, families: &mut Families) {
        let figures = self.read(Instant::now());
        families.single_counter(
            "process_cpu_seconds_total",
            "Processor time of the process in seconds.",
            figures.cpu_seconds,
        );
        let gauges = [
            (
                "process_resident_memory_bytes",
                "Resident memory of the process.",
                figures.resident_bytes.map(|bytes| bytes as f64),
            ),
            (
                "process_virtual_memory_bytes",
                "Virtual memory of the process.",
                figures.virtual_bytes.map(|bytes| bytes as f64),
            ),
            (
                "process_open_fds",
                "Open file descriptors.",
                figures.open_files.map(|files| files as f64),
            ),
            (
                "process_max_fds",
                "The limit of open file descriptors.",
                figures.open_files_max.map(|files| files as f64),
            ),
            (
                "process_start_time_seconds",
                "The start of the process in seconds since 1970.",
                self.start,
            ),
        ];
        for (name, help, value) in gauges {
            if let Some(value) = value {
                families.single_gauge(name, help, value);
            }
        }
    }

    /// Returns recent figures. To count the descriptors of thousands of connections takes
    /// milliseconds, in which a network thread serves no client.
    fn read(&self, now: Instant) -> Figures {
        let mut latest = self.latest.lock();
        match *latest {
            Some((at, figures)) if now.duration_since(at) < AGE_MAX => figures,
            _ => {
                let figures = Figures::read();
                *latest = Some((now, figures));
                figures
            }
        }
    }
}

impl Figures {
    fn read() -> Figures {
        let cpu = clock_gettime(ClockId::ProcessCPUTime);
        let (virtual_bytes, resident_bytes) = memory().unzip();
        Figures {
            cpu_seconds: cpu.tv_sec as f64 + cpu.tv_nsec as f64 / 1e9,
            resident_bytes,
            virtual_bytes,
            open_files: fs::read_dir("/proc/self/fd").ok().map(Iterator::count),
            open_files_max: getrlimit(Resource::Nofile).current,
        }
    }
}

/// Returns the virtual and the resident memory in bytes.
fn memory() -> Option<(u64, u64)> {
    let text = fs::read_to_string("/proc/self/statm").ok()?;
    let page = u64::try_from(rustix::param::page_size()).ok()?;
    let mut pages = text.split(' ').map_while(|field| field.parse::<u64>().ok());
    Some((pages.next()? * page, pages.next()? * page))
}

/// Returns the start of this process in seconds since 1970.
fn start_time() -> Option<f64> {
    let boot = fs::read_to_string("/proc/stat").ok()?;
    let boot = boot.lines().find_map(|line| line.strip_prefix("btime "))?;
    let own = fs::read_to_string("/proc/self/stat").ok()?;
    // The name of the program, in parentheses, may have spaces.
    let (_, fields) = own.rsplit_once(") ")?;
    let ticks: f64 = fields.split(' ').nth(START_FIELD)?.parse().ok()?;
    let boot: f64 = boot.trim().parse().ok()?;
    Some(boot + ticks / rustix::param::clock_ticks_per_second() as f64)
}

/// The place of `starttime`, field 22 of /proc/self/stat, behind the name, which is field 2.
const START_FIELD: usize = 19;

/// How old the figures may be.
const AGE_MAX: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;

    #[test]
    fn figures_of_this_process_are_plausible() {
        let process = ProcessFigures::new();
        let figures = process.read(Instant::now());
        let (virtual_bytes, resident_bytes) = (
            figures.virtual_bytes.unwrap(),
            figures.resident_bytes.unwrap(),
        );
        assert!((1 << 20..virtual_bytes).contains(&resident_bytes));
        let open = figures.open_files.unwrap();
        assert!((3..100_000).contains(&open), "{open}");
        assert!(figures.open_files_max.is_none_or(|max| max >= open as u64));
        assert!(figures.cpu_seconds > 0.0);
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let age = now.unwrap().as_secs_f64() - process.start.unwrap();
        // The time of the boot is known in seconds.
        assert!((-2.0..3600.0).contains(&age), "{age}");
    }

    #[test]
    fn figures_are_read_again_after_a_second() {
        let (process, start) = (ProcessFigures::new(), Instant::now());
        let first = process.read(start).cpu_seconds;
        assert_eq!(process.read(start + AGE_MAX / 2).cpu_seconds, first);
        assert!(process.read(start + AGE_MAX).cpu_seconds > first);
    }
}
