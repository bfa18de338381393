//! The narinfo disk cache: replies of binary caches, kept on disk between copies.
//!
//! Narinfos are kept unchanged, and a copy checks their signatures again. The file is only an
//! optimization: if anything goes wrong with it, floe queries the caches instead.

use std::fs;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rusqlite::{Connection, ErrorCode, OptionalExtension as _, params};

use crate::options::NarInfoDiskCacheOptions;

/// The open file, and the rows that are not written yet.
#[derive(Debug)]
pub struct NarInfoDiskCache {
    inner: Mutex<Inner>,
    options: NarInfoDiskCacheOptions,
}

#[derive(Debug)]
struct Inner {
    connection: Connection,
    pending: Vec<PendingRow>,
}

/// A row that is not written yet. `text` is `None` if the cache lacks the path.
#[derive(Debug)]
struct PendingRow {
    url: String,
    hash_part: String,
    text: Option<Vec<u8>>,
    answered: i64,
}

impl NarInfoDiskCache {
    /// Opens the file. Creates it if it does not exist, and replaces a corrupt one. Returns `None`
    /// if that fails, or if another process locks the file for too long.
    pub fn open(options: &NarInfoDiskCacheOptions) -> Option<NarInfoDiskCache> {
        let opened = NarInfoDiskCache::try_open(options).or_else(|error| {
            if !is_broken(&error) {
                return Err(error);
            }
            fs::remove_file(&options.file).ok();
            NarInfoDiskCache::try_open(options)
        });
        opened.ok()
    }

    fn try_open(options: &NarInfoDiskCacheOptions) -> rusqlite::Result<NarInfoDiskCache> {
        let connection = connect(&options.file)?;
        let cache = NarInfoDiskCache {
            inner: Mutex::new(Inner {
                connection,
                pending: Vec::new(),
            }),
            options: options.clone(),
        };
        match cache.purge() {
            Err(error) if is_broken(&error) => Err(error),
            // Another process purges the file on another day.
            _ => Ok(cache),
        }
    }

    /// Returns the remembered `nix-cache-info` of a cache, and whether it came over HTTP/2.
    pub(crate) fn cache_info(&self, url: &str) -> Option<(bool, Vec<u8>)> {
        let inner = self.inner();
        let mut query = inner
            .connection
            .prepare_cached("select http2, info, answered from caches where url = ?")
            .ok()?;
        let row = query.query_row([url], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)));
        let (is_http2, text, answered) = row.optional().ok()??;
        is_fresh(answered, self.options.meta_ttl).then_some((is_http2, text))
    }

    pub(crate) fn insert_cache_info(&self, url: &str, is_http2: bool, text: &[u8]) {
        let inner = self.inner();
        // An error only means that floe queries the cache again next time.
        let _: rusqlite::Result<usize> = inner.connection.execute(
            "insert or replace into caches (url, http2, info, answered) values (?, ?, ?, ?)",
            params![url, is_http2, text, now()],
        );
    }

    /// Returns the remembered narinfo: `None` if there is no entry, `Some(None)` if the cache lacks
    /// the path.
    pub(crate) fn narinfo(&self, url: &str, hash_part: &str) -> Option<Option<Vec<u8>>> {
        let inner = self.inner();
        let mut query = inner
            .connection
            .prepare_cached("select text, answered from narinfos where url = ? and hash_part = ?")
            .ok()?;
        let row = query.query_row(params![url, hash_part], |row| {
            Ok((row.get(0)?, row.get(1)?))
        });
        let (text, answered): (Option<Vec<u8>>, i64) = row.optional().ok()??;
        let ttl = match &text {
            Some(_) => self.options.positive_ttl,
            None => self.options.negative_ttl,
        };
        is_fresh(answered, ttl).then_some(text)
    }

    pub(crate) fn insert_narinfo(&self, url: &str, hash_part: &str, text: Option<&[u8]>) {
        let mut inner = self.inner();
        inner.pending.push(PendingRow {
            url: url.to_owned(),
            hash_part: hash_part.to_owned(),
            text: text.map(<[u8]>::to_vec),
            answered: now(),
        });
        if inner.pending.len() >= BATCH_LEN {
            inner.flush();
        }
    }

    /// Removes a `nix-cache-info` that turned out to be wrong.
    pub(crate) fn remove_cache_info(&self, url: &str) {
        // After an error the next reader finds the wrong entry again, and removes it.
        let inner = self.inner();
        let deleted = inner
            .connection
            .execute("delete from caches where url = ?", params![url]);
        let _: rusqlite::Result<usize> = deleted;
    }

    /// Removes an entry that turned out to be wrong.
    pub(crate) fn remove_narinfo(&self, url: &str, hash_part: &str) {
        let mut inner = self.inner();
        inner
            .pending
            .retain(|pending| pending.url != url || pending.hash_part != hash_part);
        // After an error the next reader finds the wrong entry again, and removes it.
        let _: rusqlite::Result<usize> = inner.connection.execute(
            "delete from narinfos where url = ? and hash_part = ?",
            params![url, hash_part],
        );
    }

    /// Deletes expired rows, once a day.
    fn purge(&self) -> rusqlite::Result<()> {
        let inner = self.inner();
        let day = now() / seconds(DAY);
        let last: i64 = inner
            .connection
            .pragma_query_value(None, "user_version", |row| row.get(0))?;
        if last == day {
            return Ok(());
        }
        let before = |ttl| now() - seconds(ttl);
        inner.connection.execute(
            "delete from narinfos where answered <= iif(text is null, ?, ?)",
            params![
                before(self.options.negative_ttl),
                before(self.options.positive_ttl)
            ],
        )?;
        inner.connection.execute(
            "delete from caches where answered <= ?",
            params![before(self.options.meta_ttl)],
        )?;
        inner.connection.pragma_update(None, "user_version", day)
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        // Every change under the lock is complete in itself.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for NarInfoDiskCache {
    fn drop(&mut self) {
        self.inner().flush();
    }
}

impl Inner {
    /// Writes the pending rows. Rows that cannot be written are queried again next time.
    fn flush(&mut self) {
        let pending = std::mem::take(&mut self.pending);
        let written = self.connection.transaction().and_then(|transaction| {
            for row in &pending {
                transaction
                    .prepare_cached(
                        "insert or replace into narinfos (url, hash_part, text, answered) \
                         values (?, ?, ?, ?)",
                    )?
                    .execute(params![row.url, row.hash_part, row.text, row.answered])?;
            }
            transaction.commit()
        });
        let _: rusqlite::Result<()> = written;
    }
}

/// Whether the file is corrupt for every process. Only then may floe delete it.
fn is_broken(error: &rusqlite::Error) -> bool {
    matches!(
        error.sqlite_error_code(),
        Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt)
    )
}

fn connect(file: &Path) -> rusqlite::Result<Connection> {
    if let Some(directory) = file.parent() {
        // If this fails, opening the file fails as well.
        fs::create_dir_all(directory).ok();
    }
    let connection = Connection::open(file)?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    // With these settings, writes rarely wait for the disk. A crash loses only the last rows.
    connection.pragma_update(None, "journal_mode", "wal")?;
    connection.pragma_update(None, "synchronous", "normal")?;
    connection.execute_batch(SCHEMA)?;
    Ok(connection)
}

/// Whether a reply of that time is still valid. A reply from the future is not: the clock was set
/// back.
fn is_fresh(answered: i64, ttl: Duration) -> bool {
    (answered..answered.saturating_add(seconds(ttl))).contains(&now())
}

fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, seconds)
}

fn seconds(time: Duration) -> i64 {
    i64::try_from(time.as_secs())
        .unwrap_or(i64::MAX / 4)
        .min(i64::MAX / 4)
}

const SCHEMA: &str = "
    create table if not exists caches (
        url text primary key not null, http2 integer not null, info blob not null,
        answered integer not null
    ) without rowid;
    create table if not exists narinfos (
        url text not null, hash_part text not null, text blob, answered integer not null,
        primary key (url, hash_part)
    ) without rowid;
";

/// The number of rows in one transaction. A killed process loses at most as many.
const BATCH_LEN: usize = 256;

/// How long a copy waits for another process that writes to the file.
const BUSY_TIMEOUT: Duration = Duration::from_millis(100);

const DAY: Duration = Duration::from_secs(24 * 3600);

#[cfg(test)]
mod tests {
    use super::*;

    const URL: &str = "https://cache.example.org";
    const PART: &str = "7bw2d1cqdpnxi05lr3s6pmcgl5xazl2c";

    fn options(directory: &Path) -> NarInfoDiskCacheOptions {
        NarInfoDiskCacheOptions::new(directory.join("deep/narinfos.sqlite"))
    }

    #[test]
    fn disk_cache_entries_expire_by_their_ttl() {
        let directory = tempfile::tempdir().unwrap();
        let mut options = options(directory.path());
        let first = NarInfoDiskCache::open(&options).unwrap();
        first.insert_narinfo(URL, PART, Some(b"StorePath: x"));
        first.insert_narinfo(URL, "absent", None);
        first.insert_cache_info(URL, true, b"StoreDir: /nix/store");
        drop(first);
        let again = NarInfoDiskCache::open(&options).unwrap();
        let text = b"StorePath: x".to_vec();
        assert_eq!(again.narinfo(URL, PART), Some(Some(text.clone())));
        assert_eq!(again.narinfo(URL, "absent"), Some(None));
        assert_eq!(again.narinfo(URL, "other"), None);
        assert_eq!(again.narinfo("https://other", PART), None);
        let info = b"StoreDir: /nix/store".to_vec();
        assert_eq!(again.cache_info(URL), Some((true, info)));
        drop(again);

        options.negative_ttl = Duration::ZERO;
        let without_negative_ttl = NarInfoDiskCache::open(&options).unwrap();
        assert_eq!(without_negative_ttl.narinfo(URL, "absent"), None);
        assert_eq!(without_negative_ttl.narinfo(URL, PART), Some(Some(text)));
        without_negative_ttl.remove_narinfo(URL, PART);
        assert_eq!(without_negative_ttl.narinfo(URL, PART), None);
        drop(without_negative_ttl);

        options.meta_ttl = Duration::ZERO;
        assert_eq!(
            NarInfoDiskCache::open(&options).unwrap().cache_info(URL),
            None
        );
    }

    #[test]
    fn disk_cache_ignores_entries_from_the_future() {
        let directory = tempfile::tempdir().unwrap();
        let cache = NarInfoDiskCache::open(&options(directory.path())).unwrap();
        cache.insert_narinfo(URL, PART, Some(b"StorePath: x"));
        cache.insert_cache_info(URL, true, b"StoreDir: /nix/store");
        cache.inner().flush();
        let set = |time: i64| {
            let sql = format!(
                "update caches set answered = {time}; update narinfos set answered = {time};"
            );
            cache.inner().connection.execute_batch(&sql).unwrap();
            let narinfo = cache.narinfo(URL, PART);
            (cache.cache_info(URL).is_some(), narinfo.is_some())
        };
        assert_eq!(set(now()), (true, true));
        assert_eq!(set(now() + seconds(DAY)), (false, false));
    }

    #[test]
    fn disk_cache_recreates_corrupt_file_or_is_disabled() {
        let directory = tempfile::tempdir().unwrap();
        let mut options = options(directory.path());
        fs::create_dir_all(options.file.parent().unwrap()).unwrap();
        fs::write(
            &options.file,
            "this is no database, and long enough to be none",
        )
        .unwrap();
        let anew = NarInfoDiskCache::open(&options).unwrap();
        anew.insert_narinfo(URL, PART, Some(b"text"));
        drop(anew);
        let again = NarInfoDiskCache::open(&options).unwrap();
        assert_eq!(again.narinfo(URL, PART), Some(Some(b"text".to_vec())));
        options.file = directory.path().join("deep/narinfos.sqlite/below/a/file");
        assert!(NarInfoDiskCache::open(&options).is_none());
    }

    #[test]
    fn disk_cache_with_corrupt_pages_is_recreated() {
        let directory = tempfile::tempdir().unwrap();
        let options = options(directory.path());
        let first = NarInfoDiskCache::open(&options).unwrap();
        for number in 0..1000 {
            first.insert_narinfo(URL, &format!("part {number}"), Some(&[b'x'; 200]));
        }
        drop(first);
        let plain = Connection::open(&options.file).unwrap();
        plain.pragma_update(None, "user_version", 0).unwrap();
        drop(plain);
        let mut bytes = fs::read(&options.file).unwrap();
        bytes[PAGE_LEN..].fill(0x55);
        fs::write(&options.file, bytes).unwrap();
        let anew = NarInfoDiskCache::open(&options).unwrap();
        anew.insert_narinfo(URL, PART, Some(b"text"));
        drop(anew);
        let again = NarInfoDiskCache::open(&options).unwrap();
        assert_eq!(again.narinfo(URL, PART), Some(Some(b"text".to_vec())));
        assert_eq!(again.narinfo(URL, "part 1"), None);
    }

    #[test]
    fn disk_cache_locked_by_other_process_is_disabled() {
        let directory = tempfile::tempdir().unwrap();
        let options = options(directory.path());
        let first = NarInfoDiskCache::open(&options).unwrap();
        first.insert_narinfo(URL, PART, Some(b"text"));
        drop(first);
        let holder = Connection::open(&options.file).unwrap();
        let held = "pragma locking_mode = exclusive; begin exclusive; delete from caches;";
        holder.execute_batch(held).unwrap();
        assert!(NarInfoDiskCache::open(&options).is_none());
        holder.execute_batch("commit").unwrap();
        drop(holder);
        let again = NarInfoDiskCache::open(&options).unwrap();
        assert_eq!(again.narinfo(URL, PART), Some(Some(b"text".to_vec())));
    }

    /// The page size of SQLite, in bytes.
    const PAGE_LEN: usize = 4096;
}
