//! The options of the benchmarks, from flags and the environment.

use std::path::PathBuf;
use std::str::FromStr;

/// The options of a benchmark.
#[derive(Debug)]
pub(crate) struct Options {
    /// The numbers of threads, measured one after the other.
    pub(crate) threads: Vec<usize>,
    /// The number of requests per thread, if set.
    pub(crate) each: Option<u64>,
    /// The number of measured rounds.
    pub(crate) iters: usize,
    /// Whether a missed aim is a failure.
    pub(crate) gate: bool,
    /// A part of the names to measure. Empty: all names. If set, gates do not count.
    pub(crate) only: String,
    /// The file for raw samples.
    pub(crate) json: Option<PathBuf>,
}

impl Options {
    /// Reads the options. Flags override `FLOE_<name>_THREADS`, `FLOE_<name>_PER_THREAD` and
    /// `FLOE_<name>_ITERS`.
    pub(crate) fn read(name: &str, threads: &[usize]) -> Result<Options, String> {
        let variable = |end: &str| std::env::var(format!("FLOE_{name}_{end}")).ok();
        let mut options = Options {
            threads: threads.to_vec(),
            each: None,
            iters: 5,
            gate: true,
            only: String::new(),
            json: None,
        };
        for (end, flag) in [
            ("THREADS", "--threads"),
            ("PER_THREAD", "--per-thread"),
            ("ITERS", "--iters"),
        ] {
            if let Some(value) = variable(end) {
                options.set(flag, Some(value))?;
            }
        }
        let mut words = std::env::args().skip(1);
        while let Some(flag) = words.next() {
            match flag.as_str() {
                // cargo adds this flag.
                "--bench" => {}
                "--no-gate" => options.gate = false,
                _ => options.set(&flag, words.next())?,
            }
        }
        Ok(options)
    }

    fn set(&mut self, flag: &str, value: Option<String>) -> Result<(), String> {
        let value = value.ok_or_else(|| format!("{flag} needs a value"))?;
        match flag {
            "--threads" => {
                let counts = value.split(',').map(|count| number(flag, count));
                self.threads = counts.collect::<Result<_, _>>()?;
            }
            "--per-thread" => self.each = Some(number(flag, &value)?),
            "--iters" => self.iters = number(flag, &value)?,
            "--only" => {
                self.only = value;
                self.gate = false;
            }
            "--json" => self.json = Some(value.into()),
            _ => {
                return Err(format!(
                    "unknown option {flag}; use --threads 1,2,4, --per-thread N, --iters N, \
                     --only NAME, --no-gate or --json FILE"
                ));
            }
        }
        Ok(())
    }

    /// Returns the number of requests per thread. Few threads submit more requests each, so that a
    /// run is long enough.
    pub(crate) fn per_thread(&self, threads: usize) -> u64 {
        let enough = TOTAL_MIN / threads as u64;
        self.each.unwrap_or(PER_THREAD.max(enough))
    }
}

fn number<T: FromStr + PartialOrd + From<u8>>(flag: &str, text: &str) -> Result<T, String> {
    let number = text
        .trim()
        .parse()
        .ok()
        .filter(|number| *number >= T::from(1));
    number.ok_or_else(|| format!("invalid value {text:?} of {flag}; use a number above 0"))
}

/// A few milliseconds for the fastest queue.
const PER_THREAD: u64 = 20_000;

/// Enough for several time slices of the scheduler, so that the first running thread does not
/// decide the result.
const TOTAL_MIN: u64 = 400_000;
