//! The references of all paths of a closure, by two queries.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use floe_format::StorePath;
use rusqlite::params_from_iter;

use super::{Database, database_error};
use crate::error::StoreError;

impl Database {
    /// Returns the references of each valid path in the closure of some paths. The
    /// database records the paths that do not parse, and leaves them out.
    pub(crate) fn closure_references(
        &self,
        roots: &[StorePath],
    ) -> Result<BTreeMap<StorePath, BTreeSet<StorePath>>, StoreError> {
        let error = |source| database_error(ACTION, &self.file, source);
        // Both queries see the same state.
        let transaction = self.connection.unchecked_transaction().map_err(error)?;
        let mut paths: HashMap<i64, StorePath> = HashMap::new();
        let mut pairs: BTreeSet<(i64, i64)> = BTreeSet::new();
        for some in roots.chunks(ROOTS_MAX) {
            let texts: Vec<String> = some
                .iter()
                .map(|path| self.layout.store_dir.full_path(path))
                .collect();
            let places = vec!["?"; some.len()].join(", ");
            let closure = CLOSURE.replace("PLACES", &places);
            let query = format!(
                "{closure} select c.id, v.path from closure c join ValidPaths v on v.id = c.id"
            );
            paths.extend(self.query_paths(ACTION, &query, params_from_iter(&texts))?);
            let query = format!(
                "{closure} select r.referrer, r.reference from closure c \
                 join Refs r on r.referrer = c.id"
            );
            let found = self.query(ACTION, &query, |query| {
                let rows = query.query_map(params_from_iter(&texts), |row| {
                    Ok((row.get(0)?, row.get(1)?))
                })?;
                rows.collect::<rusqlite::Result<Vec<(i64, i64)>>>()
            })?;
            pairs.extend(found);
        }
        transaction.finish().map_err(error)?;
        let mut references: BTreeMap<StorePath, BTreeSet<StorePath>> = paths
            .values()
            .map(|path| (path.clone(), BTreeSet::new()))
            .collect();
        for (referrer, reference) in pairs {
            if let (Some(referrer), Some(reference)) = (paths.get(&referrer), paths.get(&reference))
                && let Some(known) = references.get_mut(referrer)
            {
                known.insert(reference.clone());
            }
        }
        Ok(references)
    }
}

const ACTION: &str = "look up a closure in";

/// The row numbers of a closure.
const CLOSURE: &str = "with recursive closure(id) as ( \
     select id from ValidPaths where path in (PLACES) \
     union select r.reference from Refs r join closure c on r.referrer = c.id)";

/// SQLite takes at least 999 parameters.
const ROOTS_MAX: usize = 500;
