//! The requests of name sources, which their program sends.

use floe_cache::{DocumentRequest, Fetched};
use floe_format::{NarInfo, StorePath};
use floe_transfer::Error;

/// Requests of name sources. A function that fetches documents is one without caches.
pub trait Access {
    /// Fetches documents, all at once.
    fn fetch(&self, requests: Vec<DocumentRequest>) -> Fetched;

    /// Queries the binary caches for paths, all at once. Returns the narinfos in the order of the
    /// paths; `None` for a path that no cache has.
    ///
    /// Errors: no cache replies.
    fn narinfos(&self, paths: &[StorePath]) -> Result<Vec<Option<NarInfo>>, Error> {
        Ok(paths.iter().map(|_| None).collect())
    }

    /// Gets the pins of a cache, all at once. Returns the objects in the order of the names; `None`
    /// for a name that the cache has not pinned.
    fn pins(&self, _cache: &str, names: &[&str]) -> Vec<Result<Option<Vec<u8>>, Error>> {
        names.iter().map(|_| Ok(None)).collect()
    }

    /// Returns the names of all pins of a cache; `None` if the cache has no list of them.
    ///
    /// Errors: those of the cache.
    fn pin_names(&self, _cache: &str) -> Result<Option<Vec<String>>, Error> {
        Ok(None)
    }

    /// Returns the system of the first program or library in the NAR of a path, such as
    /// `x86_64-linux`; `None` if it has no program.
    ///
    /// Errors: those of the cache.
    fn system(&self, _narinfo: &NarInfo) -> Result<Option<String>, Error> {
        Ok(None)
    }
}

impl<F: Fn(Vec<DocumentRequest>) -> Fetched> Access for F {
    fn fetch(&self, requests: Vec<DocumentRequest>) -> Fetched {
        self(requests)
    }
}
