//! Queries for the pages of a server about its store.

use floe_format::StorePath;

use super::Database;
use crate::error::StoreError;

/// A number of paths, and the bytes of their NARs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathTotals {
    /// The number of paths.
    pub paths: u64,
    /// The sum of the sizes of their NARs in bytes.
    pub nar_bytes: u64,
}

impl Database {
    /// Returns the totals of all valid paths.
    pub(crate) fn totals(&self) -> Result<PathTotals, StoreError> {
        let text = "select count(*), cast(total(narSize) as integer) from ValidPaths";
        self.query_totals(text, None)
    }

    /// Returns the totals of the closure of a path.
    pub(crate) fn closure_totals(&self, path: &StorePath) -> Result<PathTotals, StoreError> {
        let text = "with recursive closure(id) as (\
             select id from ValidPaths where path = ?1 \
             union select r.reference from Refs r join closure c on r.referrer = c.id) \
             select count(*), cast(total(v.narSize) as integer) \
             from closure c join ValidPaths v on v.id = c.id";
        self.query_totals(text, Some(path))
    }

    fn query_totals(&self, text: &str, path: Option<&StorePath>) -> Result<PathTotals, StoreError> {
        let path = path.map(|path| self.layout.store_dir.full_path(path));
        self.query("sum up paths of", text, |query| {
            query.query_row(rusqlite::params_from_iter(path), |row| {
                Ok(PathTotals {
                    paths: row.get::<_, i64>(0)?.unsigned_abs(),
                    nar_bytes: row.get::<_, i64>(1)?.unsigned_abs(),
                })
            })
        })
    }

    /// Returns the number of other paths that refer to a path, and the first `max` of them.
    pub(crate) fn first_referrers(
        &self,
        path: &StorePath,
        max: usize,
    ) -> Result<(u64, Vec<StorePath>), StoreError> {
        let own = "(select id from ValidPaths where path = ?1)";
        let path = self.layout.store_dir.full_path(path);
        let count =
            format!("select count(*) from Refs where reference = {own} and referrer != {own}");
        let count = self.query("count referrers in", &count, |query| {
            query.query_row([&path], |row| row.get::<_, i64>(0))
        })?;
        let first = format!(
            "select v.id, v.path from Refs r join ValidPaths v on r.referrer = v.id \
             where r.reference = {own} and r.referrer != {own} order by v.path limit ?2"
        );
        let max = i64::try_from(max).unwrap_or(i64::MAX);
        let found = self.query_paths("look up referrers in", &first, (&path, max))?;
        let found = found.into_iter().map(|(_, path)| path).collect();
        Ok((count.unsigned_abs(), found))
    }

    /// Returns up to `max` valid paths whose base names have a text, in any case of its letters,
    /// sorted by their base names.
    pub(crate) fn find_paths(&self, text: &str, max: usize) -> Result<Vec<StorePath>, StoreError> {
        // A full path begins with the store directory, and a slash.
        let begin = self.layout.store_dir.as_str().len() + 2;
        let [begin, max] = [begin, max].map(|number| i64::try_from(number).unwrap_or(i64::MAX));
        let query = "select id, path from ValidPaths \
             where instr(lower(substr(path, ?1)), lower(?2)) > 0 order by path limit ?3";
        let found = self.query_paths("search", query, (begin, text, max))?;
        Ok(found.into_iter().map(|(_, path)| path).collect())
    }
}
