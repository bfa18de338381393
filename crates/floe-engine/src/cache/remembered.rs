//! What caches have answered, kept on disk from one move to the next.
//!
//! Narinfos are kept as they came: whoever uses one checks its signature as if it had just come. It
//! is a convenience: whatever goes wrong with the file, the caches are asked instead.

use std::fs;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rusqlite::{Connection, ErrorCode, OptionalExtension as _, params};

use crate::options::RememberedOptions;

/// The file, and what is to be written to it.
#[derive(Debug)]
pub(crate) struct Remembered {
    inner: Mutex<Inner>,
    options: RememberedOptions,
}

#[derive(Debug)]
struct Inner {
    connection: Connection,
    fresh: Vec<Fresh>,
}

/// A narinfo to be written; `None` where the cache lacks it.
#[derive(Debug)]
struct Fresh {
    url: String,
    hash_part: String,
    text: Option<Vec<u8>>,
    answered: i64,
}

impl Remembered {
    /// Opens the file, or makes it; one that is broken is made anew. `None` where that fails, or
    /// where somebody else holds the file for long.
    pub(crate) fn open(options: &RememberedOptions) -> Option<Remembered> {
        let opened = Remembered::try_open(options).or_else(|error| {
            if !is_broken(&error) {
                return Err(error);
            }
            fs::remove_file(&options.file).ok();
            Remembered::try_open(options)
        });
        opened.ok()
    }

    fn try_open(options: &RememberedOptions) -> rusqlite::Result<Remembered> {
        let connection = connect(&options.file)?;
        let remembered = Remembered {
            inner: Mutex::new(Inner {
                connection,
                fresh: Vec::new(),
            }),
            options: options.clone(),
        };
        match remembered.purge() {
            Err(error) if is_broken(&error) => Err(error),
            // Whoever cannot delete now does so another day.
            _ => Ok(remembered),
        }
    }

    /// What a cache has said of itself: whether over HTTP/2, and the text.
    pub(crate) fn cache(&self, url: &str) -> Option<(bool, Vec<u8>)> {
        let inner = self.inner();
        let mut query = inner
            .connection
            .prepare_cached("select http2, info, answered from caches where url = ?")
            .ok()?;
        let row = query.query_row([url], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)));
        let (is_http2, text, answered) = row.optional().ok()??;
        counts(answered, self.options.meta_ttl).then_some((is_http2, text))
    }

    pub(crate) fn remember_cache(&self, url: &str, is_http2: bool, text: &[u8]) {
        let inner = self.inner();
        // Not told: whoever cannot write here asks again next time.
        let _: rusqlite::Result<usize> = inner.connection.execute(
            "insert or replace into caches (url, http2, info, answered) values (?, ?, ?, ?)",
            params![url, is_http2, text, now()],
        );
    }

    /// What a cache has answered: `None` if that is not known, `Some(None)` if it lacks the path.
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
        counts(answered, ttl).then_some(text)
    }

    pub(crate) fn remember(&self, url: &str, hash_part: &str, text: Option<&[u8]>) {
        let mut inner = self.inner();
        inner.fresh.push(Fresh {
            url: url.to_owned(),
            hash_part: hash_part.to_owned(),
            text: text.map(<[u8]>::to_vec),
            answered: now(),
        });
        if inner.fresh.len() >= BATCH_LEN {
            inner.write();
        }
    }

    /// The answer for a path was wrong.
    pub(crate) fn forget(&self, url: &str, hash_part: &str) {
        let mut inner = self.inner();
        inner
            .fresh
            .retain(|fresh| fresh.url != url || fresh.hash_part != hash_part);
        // Not told: who finds it again finds out again.
        let _: rusqlite::Result<usize> = inner.connection.execute(
            "delete from narinfos where url = ? and hash_part = ?",
            params![url, hash_part],
        );
    }

    /// Deletes, once a day, what is too old to be used.
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

impl Drop for Remembered {
    fn drop(&mut self) {
        self.inner().write();
    }
}

impl Inner {
    /// What cannot be written is asked for again next time.
    fn write(&mut self) {
        let fresh = std::mem::take(&mut self.fresh);
        let written = self.connection.transaction().and_then(|transaction| {
            for row in &fresh {
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

/// Whether nobody can use the file any more: only then it is nobody's.
fn is_broken(error: &rusqlite::Error) -> bool {
    matches!(
        error.sqlite_error_code(),
        Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt)
    )
}

fn connect(file: &Path) -> rusqlite::Result<Connection> {
    if let Some(directory) = file.parent() {
        // If this fails, so does what follows.
        fs::create_dir_all(directory).ok();
    }
    let connection = Connection::open(file)?;
    connection.busy_timeout(PATIENCE)?;
    // Together they wait for the disk only now and then, and lose nothing but the last answers.
    connection.pragma_update(None, "journal_mode", "wal")?;
    connection.pragma_update(None, "synchronous", "normal")?;
    connection.execute_batch(SCHEMA)?;
    Ok(connection)
}

/// Whether an answer of then still counts. A clock that was set back makes nothing last for longer.
fn counts(answered: i64, ttl: Duration) -> bool {
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

/// Rows in one transaction; more are not worth what is lost with a process that is killed.
const BATCH_LEN: usize = 256;

/// A move does not wait for another one that writes here.
const PATIENCE: Duration = Duration::from_millis(100);

const DAY: Duration = Duration::from_secs(24 * 3600);

#[cfg(test)]
mod tests {
    use super::*;

    const URL: &str = "https://cache.example.org";
    const PART: &str = "7bw2d1cqdpnxi05lr3s6pmcgl5xazl2c";

    fn options(directory: &Path) -> RememberedOptions {
        RememberedOptions::new(directory.join("deep/narinfos.sqlite"))
    }

    #[test]
    fn answers_and_refusals_last_as_long_as_they_may_and_no_longer() {
        let directory = tempfile::tempdir().unwrap();
        let mut options = options(directory.path());
        let first = Remembered::open(&options).unwrap();
        first.remember(URL, PART, Some(b"StorePath: x"));
        first.remember(URL, "absent", None);
        first.remember_cache(URL, true, b"StoreDir: /nix/store");
        drop(first);
        let again = Remembered::open(&options).unwrap();
        let text = b"StorePath: x".to_vec();
        assert_eq!(again.narinfo(URL, PART), Some(Some(text.clone())));
        assert_eq!(again.narinfo(URL, "absent"), Some(None));
        assert_eq!(again.narinfo(URL, "other"), None);
        assert_eq!(again.narinfo("https://other", PART), None);
        let info = b"StoreDir: /nix/store".to_vec();
        assert_eq!(again.cache(URL), Some((true, info)));
        drop(again);

        options.negative_ttl = Duration::ZERO;
        let impatient = Remembered::open(&options).unwrap();
        assert_eq!(impatient.narinfo(URL, "absent"), None);
        assert_eq!(impatient.narinfo(URL, PART), Some(Some(text)));
        impatient.forget(URL, PART);
        assert_eq!(impatient.narinfo(URL, PART), None);
        drop(impatient);

        options.meta_ttl = Duration::ZERO;
        assert_eq!(Remembered::open(&options).unwrap().cache(URL), None);
    }

    #[test]
    fn what_was_answered_in_the_future_counts_for_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let remembered = Remembered::open(&options(directory.path())).unwrap();
        remembered.remember(URL, PART, Some(b"StorePath: x"));
        remembered.remember_cache(URL, true, b"StoreDir: /nix/store");
        remembered.inner().write();
        let set = |time: i64| {
            let sql = format!(
                "update caches set answered = {time}; update narinfos set answered = {time};"
            );
            remembered.inner().connection.execute_batch(&sql).unwrap();
            let narinfo = remembered.narinfo(URL, PART);
            (remembered.cache(URL).is_some(), narinfo.is_some())
        };
        assert_eq!(set(now()), (true, true));
        assert_eq!(set(now() + seconds(DAY)), (false, false));
    }

    #[test]
    fn a_broken_file_is_made_anew_and_one_that_cannot_be_made_is_done_without() {
        let directory = tempfile::tempdir().unwrap();
        let mut options = options(directory.path());
        fs::create_dir_all(options.file.parent().unwrap()).unwrap();
        fs::write(
            &options.file,
            "this is no database, and long enough to be none",
        )
        .unwrap();
        let anew = Remembered::open(&options).unwrap();
        anew.remember(URL, PART, Some(b"text"));
        drop(anew);
        let again = Remembered::open(&options).unwrap();
        assert_eq!(again.narinfo(URL, PART), Some(Some(b"text".to_vec())));
        options.file = directory.path().join("deep/narinfos.sqlite/below/a/file");
        assert!(Remembered::open(&options).is_none());
    }

    #[test]
    fn a_file_that_is_broken_in_the_middle_is_made_anew() {
        let directory = tempfile::tempdir().unwrap();
        let options = options(directory.path());
        let first = Remembered::open(&options).unwrap();
        for number in 0..1000 {
            first.remember(URL, &format!("part {number}"), Some(&[b'x'; 200]));
        }
        drop(first);
        let plain = Connection::open(&options.file).unwrap();
        plain.pragma_update(None, "user_version", 0).unwrap();
        drop(plain);
        let mut bytes = fs::read(&options.file).unwrap();
        bytes[PAGE_LEN..].fill(0x55);
        fs::write(&options.file, bytes).unwrap();
        let anew = Remembered::open(&options).unwrap();
        anew.remember(URL, PART, Some(b"text"));
        drop(anew);
        let again = Remembered::open(&options).unwrap();
        assert_eq!(again.narinfo(URL, PART), Some(Some(b"text".to_vec())));
        assert_eq!(again.narinfo(URL, "part 1"), None);
    }

    #[test]
    fn a_file_that_somebody_holds_is_left_to_him() {
        let directory = tempfile::tempdir().unwrap();
        let options = options(directory.path());
        let first = Remembered::open(&options).unwrap();
        first.remember(URL, PART, Some(b"text"));
        drop(first);
        let holder = Connection::open(&options.file).unwrap();
        let held = "pragma locking_mode = exclusive; begin exclusive; delete from caches;";
        holder.execute_batch(held).unwrap();
        assert!(Remembered::open(&options).is_none());
        holder.execute_batch("commit").unwrap();
        drop(holder);
        let again = Remembered::open(&options).unwrap();
        assert_eq!(again.narinfo(URL, PART), Some(Some(b"text".to_vec())));
    }

    /// SQLite's own, in bytes.
    const PAGE_LEN: usize = 4096;
}
