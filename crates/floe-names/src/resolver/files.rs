//! Sources that are files on this machine.

use std::collections::BTreeMap;
use std::path::Path;

use crate::file_source::FileSource;
use crate::lock::LockFile;
use crate::name_spec::NameSpec;
use crate::package::{Candidate, QueryResult, SourceError, SourceReply};

/// Asks a file.
pub(super) fn ask_file(path: &Path, specs: &[&NameSpec]) -> Vec<QueryResult> {
    let file = FileSource::read(path);
    let replies = specs.iter().map(|spec| {
        let found = match &file {
            Ok(file) => file.find(&spec.name),
            Err(reason) => Err(reason.clone()),
        };
        let found = found.map_err(|reason| SourceError::Reply {
            place: path.display().to_string(),
            reason,
        })?;
        Ok(found.map(SourceReply::from))
    });
    replies.collect()
}

/// Asks a lock file.
pub(super) fn ask_lock(path: &Path, specs: &[&NameSpec]) -> Vec<QueryResult> {
    let lock = LockFile::read(path).map_err(|reason| SourceError::Reply {
        place: path.display().to_string(),
        reason,
    });
    let replies = specs.iter().map(|spec| {
        let lock = lock.as_ref().map_err(Clone::clone)?;
        let locked = lock.find(spec);
        Ok(locked.map(|locked| {
            SourceReply::from(Candidate {
                outputs: BTreeMap::from([("out".into(), locked.path.clone())]),
                nar_hash: Some(locked.nar_hash.clone()),
                ..Candidate::default()
            })
        }))
    });
    replies.collect()
}
