//! A target that is only looked at, for dry runs: it need not exist, and nothing is made.

use floe_format::{StoreDir, StorePath};
use floe_store::{StoreError, StoreLayout, StoreReader};

use crate::error::Error;
use crate::store_uri::FileCacheUri;

/// What is known of a target without touching it.
#[derive(Debug)]
pub(crate) enum ReadOnlyTarget {
    /// A store; `None` where there is none yet.
    Store(Option<Box<StoreReader>>, StoreLayout),
    /// A cache in a directory.
    Cache(FileCacheUri, StoreDir),
}

impl ReadOnlyTarget {
    pub(crate) fn open_store(layout: StoreLayout) -> Result<ReadOnlyTarget, Error> {
        match StoreReader::open(layout.clone()) {
            Ok(reader) => Ok(ReadOnlyTarget::Store(Some(Box::new(reader)), layout)),
            Err(StoreError::NoStore { .. }) => Ok(ReadOnlyTarget::Store(None, layout)),
            Err(error) => Err(error.into()),
        }
    }

    pub(crate) fn store_dir(&self) -> &StoreDir {
        match self {
            ReadOnlyTarget::Store(_, layout) => &layout.store_dir,
            ReadOnlyTarget::Cache(_, dir) => dir,
        }
    }

    pub(crate) fn query_path_from_hash_part(&self, part: &str) -> Result<Option<StorePath>, Error> {
        match self {
            ReadOnlyTarget::Store(Some(reader), _) => Ok(reader.query_path_from_hash_part(part)?),
            _ => Ok(None),
        }
    }

    /// Those of `paths` that would have to be moved, in their order.
    pub(crate) fn query_missing(&self, paths: &[StorePath]) -> Result<Vec<StorePath>, Error> {
        let mut missing = Vec::new();
        for path in paths {
            let is_there = match self {
                ReadOnlyTarget::Store(Some(reader), _) => reader.path_info(path)?.is_some(),
                ReadOnlyTarget::Store(None, _) => false,
                ReadOnlyTarget::Cache(cache, _) => cache
                    .directory
                    .join(format!("{}.narinfo", path.hash_part()))
                    .exists(),
            };
            if !is_there {
                missing.push(path.clone());
            }
        }
        Ok(missing)
    }
}
