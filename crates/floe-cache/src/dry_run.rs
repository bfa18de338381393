//! A binary cache in a directory as the target of a dry run: it need not exist, and nothing is
//! created.

use floe_format::{NarInfo, StoreDir, StorePath};
use floe_transfer::{CommitOutcome, Error, FileCacheUri, IncomingNar, PlannedPath, Space, Target};

use super::file::read_cache_info;
use super::writer;

/// A binary cache that is only read.
#[derive(Debug)]
pub struct ReadOnlyCache {
    location: FileCacheUri,
    store_dir: StoreDir,
}

impl ReadOnlyCache {
    /// Opens a cache; `store_dir` is the store directory of one that does not exist yet.
    pub fn open(
        location: &FileCacheUri,
        store_dir: Option<&StoreDir>,
    ) -> Result<ReadOnlyCache, Error> {
        let found = read_cache_info(&location.directory)?.map(|info| info.store_dir);
        Ok(ReadOnlyCache {
            location: location.clone(),
            store_dir: found.or(store_dir.cloned()).unwrap_or_default(),
        })
    }
}

impl Target for ReadOnlyCache {
    fn store_dir(&self) -> &StoreDir {
        &self.store_dir
    }

    fn add_temp_roots_and_query_missing(
        &self,
        paths: &[StorePath],
    ) -> Result<Vec<StorePath>, Error> {
        let is_missing = |path: &&StorePath| {
            let name = format!("{}.narinfo", path.hash_part());
            !self.location.directory.join(name).exists()
        };
        Ok(paths.iter().filter(is_missing).cloned().collect())
    }

    /// A dry run transfers nothing.
    fn receive(&self, _: &mut IncomingNar<'_>) -> Result<(), Error> {
        Err(Error::Cancelled)
    }

    fn commit(&self, _: &[StorePath]) -> Result<CommitOutcome, Error> {
        Ok(CommitOutcome::default())
    }

    fn requires_trust(&self) -> bool {
        false
    }

    fn estimate_space(&self, items: &[PlannedPath]) -> Result<Option<Space>, Error> {
        let directory = self.location.directory.join("nar");
        let needs = |narinfo: &NarInfo| writer::needs(narinfo, &self.location);
        Space::estimate(&directory, items, needs).map(Some)
    }
}
