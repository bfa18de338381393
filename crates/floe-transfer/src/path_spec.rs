//! A path as the user names it.

use floe_format::HashPart;
use floe_format::{StoreDir, StorePath};
use floe_store::StoreReader;

use crate::error::Error;

/// A requested path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PathSpec {
    /// A store path.
    Path(StorePath),
    /// Only the hash part of a store path.
    HashPart(String),
}

impl PathSpec {
    /// Parses a full store path (or a file inside one), a base name or a hash part.
    pub fn parse(text: &str, store_dir: &StoreDir) -> Result<PathSpec, Error> {
        if HashPart::parse(text).is_some() {
            return Ok(PathSpec::HashPart(text.to_owned()));
        }
        let parsed = if text.starts_with('/') {
            let prefix = format!("{}/", store_dir.as_str());
            let base_name = text
                .strip_prefix(&prefix)
                .and_then(|rest| rest.split('/').next());
            base_name.map_or_else(|| store_dir.parse(text), StorePath::parse)
        } else {
            StorePath::parse(text)
        };
        parsed
            .map(PathSpec::Path)
            .map_err(|error| Error::InvalidStorePath {
                text: text.to_owned(),
                reason: error.to_string(),
                store_dir: store_dir.as_str().to_owned(),
            })
    }

    /// Returns the store path. A hash part stands for the valid path of the store that has it.
    ///
    /// Errors: [`Error::NotFound`], and those of the database.
    pub fn find_in_store(self, store: &StoreReader) -> Result<StorePath, Error> {
        let part = match self {
            PathSpec::Path(path) => return Ok(path),
            PathSpec::HashPart(part) => part,
        };
        let found = store.query_path_from_hash_part(&part)?;
        found.ok_or_else(|| Error::NotFound {
            path: part,
            sources: vec![store.layout().real_store_dir.display().to_string()],
        })
    }

    /// Returns the hash part.
    pub fn hash_part(&self) -> &str {
        match self {
            PathSpec::Path(path) => path.hash_part(),
            PathSpec::HashPart(part) => part,
        }
    }

    /// Returns the base name of the path, or the hash part if only that is known.
    pub fn text(&self) -> String {
        match self {
            PathSpec::Path(path) => path.to_string(),
            PathSpec::HashPart(part) => part.clone(),
        }
    }
}

/// The largest number of paths in a closure. The largest known closures have less than half. A
/// source that exceeds it invents paths.
pub const CLOSURE_MAX: usize = 1_000_000;
