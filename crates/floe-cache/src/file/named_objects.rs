//! Small objects of a cache in a directory.

use std::fs::{self, File, TryLockError};
use std::io::{self, Read as _};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use floe_format::base16;
use floe_format::narinfo::NARINFO_LEN_MAX;
use floe_hash::sha256;
use floe_store::open_regular_file;
use floe_transfer::{Cancel, Error, Expected, NamedObject, NamedObjects, Written};

use super::storage::{FileStorage, sync_directory};
use crate::error::{file_error, read_error};
use crate::storage::{Durability, Folder, list_names};

impl NamedObjects for FileStorage {
    fn get(&self, names: &[String], _: &Cancel) -> Vec<Result<Option<NamedObject>, Error>> {
        let objects = names
            .iter()
            .map(|name| self.get_named(name, NARINFO_LEN_MAX));
        objects.collect()
    }

    fn get_large(
        &self,
        name: &str,
        len_max: usize,
        _: &Cancel,
    ) -> Result<Option<NamedObject>, Error> {
        self.get_named(name, len_max)
    }

    fn put(&self, name: &str, contents: &[u8], expected: &Expected) -> Result<Written, Error> {
        let path = self.directory.join(name);
        let directory = path.parent().unwrap_or(&self.directory);
        fs::create_dir_all(directory).map_err(file_error("create the directory", directory))?;
        // Another writer waits until the object of this one is there.
        let _lock = lock(directory).map_err(file_error("lock the directory", directory))?;
        if !self.has_expected(name, expected)? {
            return Ok(Written::Conflict);
        }
        self.put_now(name, contents, (Durability::Synced, directory))?;
        sync_directory(directory)?;
        Ok(Written::Yes)
    }

    fn put_volatile(&self, name: &str, contents: &[u8]) -> Result<(), Error> {
        let path = self.directory.join(name);
        let directory = path.parent().unwrap_or(&self.directory);
        fs::create_dir_all(directory).map_err(file_error("create the directory", directory))?;
        self.put_now(name, contents, (Durability::Unsynced, directory))
    }

    fn delete(&self, name: &str, expected: &Expected) -> Result<Written, Error> {
        let path = self.directory.join(name);
        let Some(directory) = path.parent().filter(|directory| directory.exists()) else {
            return Ok(Written::Yes);
        };
        let _lock = lock(directory).map_err(file_error("lock the directory", directory))?;
        if !self.has_expected(name, expected)? {
            return Ok(Written::Conflict);
        }
        self.delete_now(name)?;
        sync_directory(directory)?;
        Ok(Written::Yes)
    }

    fn can_list(&self) -> bool {
        true
    }

    fn list(&self, folder: &str, cancel: &Cancel) -> Result<Option<Vec<String>>, Error> {
        let Some(folder) = Folder::of_small_objects(folder) else {
            return Ok(None);
        };
        list_names(self, folder, cancel).map(Some)
    }
}

/// Locks a directory. Another user who may read it can lock it, too, so the wait has an end.
fn lock(directory: &Path) -> io::Result<File> {
    let lock = File::open(directory)?;
    let deadline = Instant::now() + LOCK_TIMEOUT;
    loop {
        match lock.try_lock() {
            Ok(()) => return Ok(lock),
            Err(TryLockError::WouldBlock) if Instant::now() < deadline => thread::sleep(LOCK_POLL),
            Err(TryLockError::WouldBlock) => {
                let reason = format!(
                    "another process holds the lock for more than {} s",
                    LOCK_TIMEOUT.as_secs()
                );
                return Err(io::Error::new(io::ErrorKind::ResourceBusy, reason));
            }
            Err(TryLockError::Error(error)) => return Err(error),
        }
    }
}

/// How long a writer waits for another one, which takes milliseconds.
const LOCK_TIMEOUT: Duration = Duration::from_secs(10);

const LOCK_POLL: Duration = Duration::from_millis(20);

impl FileStorage {
    fn has_expected(&self, name: &str, expected: &Expected) -> Result<bool, Error> {
        let found = self
            .get_named(name, NARINFO_LEN_MAX)?
            .and_then(|found| found.version);
        Ok(match expected {
            Expected::Any => true,
            Expected::Absent => found.is_none(),
            Expected::Version(version) => found.as_ref() == Some(version),
        })
    }

    /// Gets an object, with one byte more than it may have, so that the parser sees the excess.
    fn get_named(&self, name: &str, len_max: usize) -> Result<Option<NamedObject>, Error> {
        let path: &Path = &self.directory.join(name);
        let read = || -> io::Result<(Vec<u8>, Option<SystemTime>)> {
            let mut contents = Vec::new();
            let file = open_regular_file(path)?;
            let modified = file.metadata()?.modified().ok();
            file.take(len_max as u64 + 1).read_to_end(&mut contents)?;
            Ok((contents, modified))
        };
        match read() {
            Ok((contents, modified)) => Ok(Some(NamedObject {
                version: Some(base16::encode(&sha256(&contents))),
                contents,
                modified,
                replied_at: Some(SystemTime::now()),
            })),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(read_error("read", path)(error)),
        }
    }
}
