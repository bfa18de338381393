//! What nim-ffi reached, case by case, and what is asked of libfloe because of it.
//!
//! It was measured on another day, on a machine of the same kind as floe's (2 cores). So the
//! figures orient and prove nothing: a comparison would have to run both side by side.

/// A case of the benchmark, by its name in `call.cpp`, beside the same case of nim-ffi.
#[derive(Debug)]
pub(crate) struct Case {
    pub(crate) name: &'static str,
    /// Messages a second, with as many threads as [`THREADS`] says.
    rates: [f64; THREADS.len()],
    /// Half of the calls of one thread took at most so many µs, where that is known.
    p50: Option<f64>,
    pub(crate) aim: Aim,
}

/// What a case has to reach.
#[derive(Debug)]
pub(crate) enum Aim {
    /// It is only shown.
    None,
    /// So many times as many messages a second, at every number of threads.
    Rate(f64),
    /// The p50 of one thread, so many times as short.
    P50(f64),
}

impl Case {
    /// Messages a second of nim-ffi, where they were measured.
    pub(crate) fn rate(&self, threads: usize) -> Option<f64> {
        let index = THREADS.iter().position(|known| *known == threads)?;
        Some(self.rates[index])
    }

    /// In µs, where it was measured.
    pub(crate) fn p50(&self, threads: usize) -> Option<f64> {
        self.p50.filter(|_| threads == 1)
    }

    const fn sync(name: &'static str, rates: [f64; 3], p50: f64, aim: Aim) -> Case {
        Case {
            name,
            rates,
            p50: Some(p50),
            aim,
        }
    }

    const fn other(name: &'static str, rates: [f64; 3], aim: Aim) -> Case {
        Case {
            name,
            rates,
            p50: None,
            aim,
        }
    }
}

/// In the order in which they are shown.
pub(crate) const CASES: [Case; 10] = [
    Case::sync(
        "sync scalar",
        [56104.0, 154872.0, 184788.0],
        16.8,
        Aim::P50(SYNC_MIN),
    ),
    Case::sync(
        "sync 64 B",
        [81656.0, 165163.0, 175431.0],
        12.4,
        Aim::P50(SYNC_MIN),
    ),
    Case::sync("sync 512 B", [79216.0, 92019.0, 100318.0], 10.9, Aim::None),
    Case::sync("sync 4 KiB", [27442.0, 34404.0, 33776.0], 35.4, Aim::None),
    Case::sync("sync 64 KiB", [2796.0, 2665.0, 2702.0], 337.0, Aim::None),
    Case::other(
        "async scalar",
        [54840.0, 55041.0, 48426.0],
        Aim::Rate(ASYNC_MIN),
    ),
    Case::other(
        "async 64 B",
        [31000.0, 57000.0, 38000.0],
        Aim::Rate(ASYNC_MIN),
    ),
    Case::other("async 4 KiB", [22000.0, 25000.0, 19000.0], Aim::None),
    Case::other("async 64 KiB", [2370.0, 2674.0, 2549.0], Aim::None),
    Case::other("event 512 B", [42936.0, 63230.0, 106319.0], Aim::None),
];

/// Numbers of threads with which nim-ffi was measured.
pub(crate) const THREADS: [usize; 3] = [1, 2, 8];

/// Small asynchronous messages are what a case without locks and futures without threads are for.
/// It is far enough above 1 to be no accident of the day.
const ASYNC_MIN: f64 = 5.0;

/// A single call is two wake-ups of a thread in both, so there is less to win.
const SYNC_MIN: f64 = 1.5;
