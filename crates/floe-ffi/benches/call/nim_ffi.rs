//! The results of nim-ffi, case by case, and the aims of libfloe derived from them.
//!
//! nim-ffi was measured on another day, on a machine of the same kind (2 cores). The figures
//! therefore give an orientation and prove nothing. A proof would need both in one run.

/// A case of the benchmark, named as in `call.cpp`, with the results of nim-ffi.
#[derive(Debug)]
pub(crate) struct Case {
    pub(crate) name: &'static str,
    /// Messages per second, by number of threads as in [`THREADS`].
    rates: [f64; THREADS.len()],
    /// The median time of a call with one thread in µs, if known.
    p50: Option<f64>,
    pub(crate) aim: Aim,
}

/// The aim of a case.
#[derive(Debug)]
pub(crate) enum Aim {
    /// No aim; the case is only shown.
    None,
    /// A multiple of nim-ffi's messages per second, at every number of threads.
    Rate(f64),
    /// A fraction of nim-ffi's p50 with one thread, as its inverse.
    P50(f64),
}

impl Case {
    /// Returns nim-ffi's messages per second, if measured.
    pub(crate) fn rate(&self, threads: usize) -> Option<f64> {
        let index = THREADS.iter().position(|known| *known == threads)?;
        Some(self.rates[index])
    }

    /// Returns nim-ffi's p50 in µs, if measured.
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

/// All cases, in the order of the table.
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

/// The numbers of threads with which nim-ffi was measured.
pub(crate) const THREADS: [usize; 3] = [1, 2, 8];

/// Small asynchronous messages profit most from queues without locks and from futures without
/// threads. Far enough above 1 to exclude chance.
const ASYNC_MIN: f64 = 5.0;

/// Both need two wake-ups of a thread per synchronous call, so there is less to gain.
const SYNC_MIN: f64 = 1.5;
