//! The largest closure that floe accepts from a source, so that one that invents paths does not
//! fill the memory.

use floe_format::NarInfo;

use crate::error::Error;
use crate::path_spec::CLOSURE_MAX;

/// The size of the largest closure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClosureLimit {
    /// The number of paths (`max-closure-paths`).
    paths: usize,
    /// The memory that the paths may need, in bytes, beside that of the requested ones.
    memory: u64,
}

impl ClosureLimit {
    /// Returns the limit for sources all of which are stores. Their closures may be those of
    /// derivations, and they invent no paths.
    pub fn of_stores(self) -> ClosureLimit {
        ClosureLimit {
            memory: u64::MAX,
            ..self
        }
    }

    /// Makes the limit of a number of paths, all of which may have many references.
    pub fn of_paths(paths: usize) -> ClosureLimit {
        ClosureLimit {
            paths,
            memory: (paths as u64).saturating_mul(REQUESTED_MEMORY),
        }
    }
}

impl Default for ClosureLimit {
    fn default() -> ClosureLimit {
        ClosureLimit {
            paths: CLOSURE_MAX,
            memory: CLOSURE_MEMORY_MAX,
        }
    }
}

/// The rest of the limit of one closure.
#[derive(Debug)]
pub struct ClosureBudget {
    limit: ClosureLimit,
    paths: usize,
    memory: u64,
}

impl ClosureBudget {
    /// Makes the budget of a closure of `requested` paths. The user has named these, so each of
    /// them has memory of its own.
    pub fn new(limit: ClosureLimit, requested: usize) -> ClosureBudget {
        let of_requested = (requested as u64).saturating_mul(REQUESTED_MEMORY);
        ClosureBudget {
            limit,
            paths: 0,
            memory: limit.memory.saturating_add(of_requested),
        }
    }

    /// Counts paths that were not known before.
    ///
    /// Errors: [`Error::ClosureTooLarge`].
    pub fn add_paths(&mut self, count: usize) -> Result<(), Error> {
        self.paths += count;
        if self.paths > self.limit.paths {
            return Err(Error::ClosureTooLarge {
                what: "paths",
                limit: self.limit.paths as u64,
            });
        }
        self.take((count as u64).saturating_mul(PATH_MEMORY))
    }

    /// Counts the narinfo of a path.
    ///
    /// Errors: [`Error::ClosureTooLarge`].
    pub fn add_narinfo(&mut self, narinfo: &NarInfo) -> Result<(), Error> {
        let info = &narinfo.info;
        let parts = info.references.len() + info.signatures.len();
        let needed = (parts as u64).saturating_mul(PATH_MEMORY);
        self.take(NARINFO_MEMORY + narinfo.url.len() as u64 + needed)
    }

    fn take(&mut self, needed: u64) -> Result<(), Error> {
        match self.memory.checked_sub(needed) {
            Some(left) => {
                self.memory = left;
                Ok(())
            }
            None => Err(Error::ClosureTooLarge {
                what: "bytes of metadata",
                limit: self.limit.memory,
            }),
        }
    }
}

/// The memory of the closure of a few paths: about 35,000 narinfos with ten references each, twice
/// as many as the largest systems have.
pub const CLOSURE_MEMORY_MAX: u64 = 96 * 1024 * 1024;

/// The memory of a path in a set or in the references of another one, in bytes.
const PATH_MEMORY: u64 = 200;

/// The memory of a narinfo without its references and signatures, in bytes.
const NARINFO_MEMORY: u64 = 600;

/// The memory that each requested path adds, in bytes: that of a narinfo with 30 references.
const REQUESTED_MEMORY: u64 = 8 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_and_memory_are_limited() {
        let mut few = ClosureBudget::new(ClosureLimit::of_paths(10), 0);
        few.add_paths(10).unwrap();
        let error = few.add_paths(1).unwrap_err().to_string();
        assert!(error.contains("more than 10 paths"), "{error}");

        let mut memory = ClosureBudget::new(ClosureLimit::default(), 1);
        let count = usize::try_from(CLOSURE_MEMORY_MAX / PATH_MEMORY).unwrap();
        assert!(count < CLOSURE_MAX);
        memory.add_paths(count).unwrap();
        let error = memory.add_paths(count / 2).unwrap_err().to_string();
        assert!(error.contains("bytes of metadata"), "{error}");
    }

    #[test]
    fn all_paths_of_a_large_cache_may_be_requested() {
        let mut all = ClosureBudget::new(ClosureLimit::default(), 500_000);
        all.add_paths(500_000).unwrap();
        all.take(500_000 * (NARINFO_MEMORY + 20 * PATH_MEMORY))
            .unwrap();
    }
}
