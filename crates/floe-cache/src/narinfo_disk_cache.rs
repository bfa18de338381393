//! The narinfo disk cache: replies of binary caches, kept on disk between copies.
//!
//! Narinfos are kept unchanged, and a copy checks their signatures again. The file is only an
//! optimization: if anything goes wrong with it, floe queries the caches instead.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use floe_transfer::{Error, Service, Session};
use parking_lot::Mutex;
use rusqlite::{Connection, ErrorCode, params};

use crate::binary_cache::CACHE_INFO;
use crate::network::{NarInfoDiskCacheOptions, Network};
use crate::storage::{Found, SmallObject};

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

/// A row that is not written yet. `contents` is `None` if the cache lacks the object.
#[derive(Debug)]
struct PendingRow {
    url: String,
    name: String,
    contents: Option<Vec<u8>>,
    uses_http2: bool,
    replied_at: i64,
}

/// The narinfo disk cache of a session, if the user wants one and its file can be used.
///
/// The last storage that is dropped writes the rows. The network ends before, so that none of its
/// tasks keeps a storage.
#[derive(Debug)]
pub(crate) struct SessionDiskCache(pub(crate) Option<Arc<NarInfoDiskCache>>);

impl Service for SessionDiskCache {
    /// The options are a part of those of the network.
    type Options = ();

    fn start((): &(), session: &Session) -> Result<SessionDiskCache, Error> {
        let network = session.service::<Network>()?;
        let options = network.shared.options.narinfo_disk_cache.as_ref();
        let opened = options.and_then(NarInfoDiskCache::open);
        Ok(SessionDiskCache(opened.map(Arc::new)))
    }

    fn shut_down(&self) {}
}

impl NarInfoDiskCache {
    /// Opens the file. Creates it if it does not exist, and replaces a corrupt one. Returns `None`
    /// if that fails, or if another process locks the file for too long.
    pub fn open(options: &NarInfoDiskCacheOptions) -> Option<NarInfoDiskCache> {
        match NarInfoDiskCache::try_open(options) {
            Err(error) if is_broken(&error) => {
                fs::remove_file(&options.file).ok();
                NarInfoDiskCache::try_open(options).ok()
            }
            opened => opened.ok(),
        }
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

    /// Returns the remembered reply of the cache with a URL about an object.
    pub(crate) fn find(&self, url: &str, name: &str) -> Option<Found> {
        if self.options.refresh {
            return None;
        }
        let inner = self.inner.lock();
        let sql = "select contents, http2, answered from objects where url = ? and name = ?";
        let mut query = inner.connection.prepare_cached(sql).ok()?;
        let row = query.query_row([url, name], |row| {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?))
        });
        let (contents, uses_http2, replied_at): (Option<Vec<u8>>, _, _) = row.ok()?;
        let ttl = match &contents {
            _ if name == CACHE_INFO => self.options.meta_ttl,
            Some(_) => self.options.positive_ttl,
            None => self.options.negative_ttl,
        };
        let found = match contents {
            Some(contents) => Found::Object(SmallObject {
                contents,
                uses_http2,
                remembered_at: Some(time_of(replied_at)),
            }),
            None => Found::Missing {
                reason: "it is not there".into(),
                remembered_at: Some(time_of(replied_at)),
            },
        };
        is_fresh(replied_at, ttl).then_some(found)
    }

    pub(crate) fn insert(&self, url: &str, name: &str, found: &Found) {
        let (contents, uses_http2) = match found {
            Found::Object(object) => (Some(object.contents.clone()), object.uses_http2),
            // A URL without a `nix-cache-info` is not a cache yet.
            Found::Missing { .. } if name == CACHE_INFO => return,
            Found::Missing { .. } => (None, false),
        };
        let mut inner = self.inner.lock();
        inner.pending.push(PendingRow {
            url: url.to_owned(),
            name: name.to_owned(),
            contents,
            uses_http2,
            replied_at: now(),
        });
        // Other copies that begin now need no request for the `nix-cache-info`.
        if inner.pending.len() >= BATCH_LEN || name == CACHE_INFO {
            inner.flush();
        }
    }

    /// Removes an entry that turned out to be wrong.
    pub(crate) fn remove(&self, url: &str, name: &str) {
        let mut inner = self.inner.lock();
        let is_other = |row: &PendingRow| row.url != url || row.name != name;
        inner.pending.retain(is_other);
        // After an error the next reader finds the wrong entry again, and removes it.
        let _: rusqlite::Result<usize> = inner.connection.execute(
            "delete from objects where url = ? and name = ?",
            [url, name],
        );
    }

    /// Deletes expired rows, once a day.
    fn purge(&self) -> rusqlite::Result<()> {
        let connection = &self.inner.lock().connection;
        let day = now() / seconds(DAY);
        let last: i64 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
        if last == day {
            return Ok(());
        }
        let before = |ttl| now() - seconds(ttl);
        connection.execute(
            "delete from objects where answered <= \
             case when name = ? then ? when contents is null then ? else ? end",
            params![
                CACHE_INFO,
                before(self.options.meta_ttl),
                before(self.options.negative_ttl),
                before(self.options.positive_ttl)
            ],
        )?;
        connection.pragma_update(None, "user_version", day)
    }
}

impl Drop for NarInfoDiskCache {
    fn drop(&mut self) {
        self.inner.lock().flush();
    }
}

impl Inner {
    /// Writes the pending rows. Rows that cannot be written are queried again next time.
    fn flush(&mut self) {
        let pending = std::mem::take(&mut self.pending);
        let written = self.connection.transaction().and_then(|transaction| {
            let sql = "insert or replace into objects (url, name, contents, http2, answered) \
                       values (?, ?, ?, ?, ?)";
            let mut insert = transaction.prepare_cached(sql)?;
            for row in &pending {
                let (contents, http2) = (&row.contents, row.uses_http2);
                insert.execute(params![row.url, row.name, contents, http2, row.replied_at])?;
            }
            drop(insert);
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
fn is_fresh(replied_at: i64, ttl: Duration) -> bool {
    (replied_at..replied_at.saturating_add(seconds(ttl))).contains(&now())
}

fn time_of(seconds: i64) -> SystemTime {
    let since = Duration::from_secs(u64::try_from(seconds).unwrap_or_default());
    UNIX_EPOCH.checked_add(since).unwrap_or(UNIX_EPOCH)
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

/// The dropped tables are those of earlier versions.
const SCHEMA: &str = "
    drop table if exists caches;
    drop table if exists narinfos;
    create table if not exists objects (
        url text not null, name text not null, contents blob, http2 integer not null,
        answered integer not null, primary key (url, name)
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

    /// A narinfo with this text, or a `nix-cache-info` from a server with HTTP/2.
    fn object(contents: &[u8], uses_http2: bool) -> Found {
        Found::Object(SmallObject {
            contents: contents.to_vec(),
            uses_http2,
            remembered_at: None,
        })
    }

    /// Returns what is remembered, without the time, which is that of the test.
    fn find(cache: &NarInfoDiskCache, url: &str, name: &str) -> Option<Found> {
        let mut found = cache.find(url, name)?;
        let (Found::Object(SmallObject { remembered_at, .. })
        | Found::Missing { remembered_at, .. }) = &mut found;
        let elapsed = remembered_at.take().unwrap().elapsed().unwrap();
        assert!(elapsed < Duration::from_secs(600), "{elapsed:?}");
        Some(found)
    }

    fn missing() -> Found {
        Found::Missing {
            reason: "it is not there".into(),
            remembered_at: None,
        }
    }

    fn options(directory: &Path) -> NarInfoDiskCacheOptions {
        NarInfoDiskCacheOptions::new(directory.join("deep/narinfos.sqlite"))
    }

    #[test]
    fn disk_cache_entries_expire_by_their_ttl() {
        let directory = tempfile::tempdir().unwrap();
        let mut options = options(directory.path());
        let first = NarInfoDiskCache::open(&options).unwrap();
        first.insert(URL, PART, &object(b"StorePath: x", false));
        first.insert(URL, "absent", &missing());
        first.insert(URL, CACHE_INFO, &object(b"StoreDir: /nix/store", true));
        drop(first);
        let again = NarInfoDiskCache::open(&options).unwrap();
        let narinfo = object(b"StorePath: x", false);
        assert_eq!(find(&again, URL, PART), Some(narinfo.clone()));
        assert_eq!(find(&again, URL, "absent"), Some(missing()));
        assert_eq!(find(&again, URL, "other"), None);
        assert_eq!(find(&again, "https://other", PART), None);
        let info = object(b"StoreDir: /nix/store", true);
        assert_eq!(find(&again, URL, CACHE_INFO), Some(info));
        drop(again);

        options.negative_ttl = Duration::ZERO;
        let without_negative_ttl = NarInfoDiskCache::open(&options).unwrap();
        assert_eq!(find(&without_negative_ttl, URL, "absent"), None);
        assert_eq!(find(&without_negative_ttl, URL, PART), Some(narinfo));
        without_negative_ttl.remove(URL, PART);
        assert_eq!(find(&without_negative_ttl, URL, PART), None);
        drop(without_negative_ttl);

        options.meta_ttl = Duration::ZERO;
        assert_eq!(
            NarInfoDiskCache::open(&options)
                .unwrap()
                .find(URL, CACHE_INFO),
            None
        );
    }

    #[test]
    fn disk_cache_ignores_entries_from_the_future() {
        let directory = tempfile::tempdir().unwrap();
        let cache = NarInfoDiskCache::open(&options(directory.path())).unwrap();
        cache.insert(URL, PART, &object(b"StorePath: x", false));
        cache.insert(URL, CACHE_INFO, &object(b"StoreDir: /nix/store", true));
        cache.inner.lock().flush();
        let set = |time: i64| {
            let sql = format!("update objects set answered = {time}");
            cache.inner.lock().connection.execute_batch(&sql).unwrap();
            let narinfo = find(&cache, URL, PART);
            (find(&cache, URL, CACHE_INFO).is_some(), narinfo.is_some())
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
            "this is not a database, and long enough to be none",
        )
        .unwrap();
        let anew = NarInfoDiskCache::open(&options).unwrap();
        anew.insert(URL, PART, &object(b"text", false));
        drop(anew);
        let again = NarInfoDiskCache::open(&options).unwrap();
        assert_eq!(find(&again, URL, PART), Some(object(b"text", false)));
        options.file = directory.path().join("deep/narinfos.sqlite/below/a/file");
        assert!(NarInfoDiskCache::open(&options).is_none());
    }

    #[test]
    fn disk_cache_with_corrupt_pages_is_recreated() {
        let directory = tempfile::tempdir().unwrap();
        let options = options(directory.path());
        let first = NarInfoDiskCache::open(&options).unwrap();
        for number in 0..1000 {
            first.insert(URL, &format!("part {number}"), &object(&[b'x'; 200], false));
        }
        drop(first);
        let plain = Connection::open(&options.file).unwrap();
        plain.pragma_update(None, "user_version", 0).unwrap();
        drop(plain);
        let mut bytes = fs::read(&options.file).unwrap();
        bytes[PAGE_LEN..].fill(0x55);
        fs::write(&options.file, bytes).unwrap();
        let anew = NarInfoDiskCache::open(&options).unwrap();
        anew.insert(URL, PART, &object(b"text", false));
        drop(anew);
        let again = NarInfoDiskCache::open(&options).unwrap();
        assert_eq!(find(&again, URL, PART), Some(object(b"text", false)));
        assert_eq!(find(&again, URL, "part 1"), None);
    }

    #[test]
    fn disk_cache_locked_by_other_process_is_disabled() {
        let directory = tempfile::tempdir().unwrap();
        let options = options(directory.path());
        let first = NarInfoDiskCache::open(&options).unwrap();
        first.insert(URL, PART, &object(b"text", false));
        drop(first);
        let holder = Connection::open(&options.file).unwrap();
        let held = "pragma locking_mode = exclusive; begin exclusive; \
                    delete from objects where name = '';";
        holder.execute_batch(held).unwrap();
        assert!(NarInfoDiskCache::open(&options).is_none());
        holder.execute_batch("commit").unwrap();
        drop(holder);
        let again = NarInfoDiskCache::open(&options).unwrap();
        assert_eq!(find(&again, URL, PART), Some(object(b"text", false)));
    }

    /// The page size of SQLite, in bytes.
    const PAGE_LEN: usize = 4096;
}
