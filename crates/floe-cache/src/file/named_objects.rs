//! Small objects of a cache in a directory.

use std::fs::{self, File, TryLockError};
use std::io::{self, Write as _};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use floe_format::base16;
use floe_hash::sha256;
use floe_transfer::{Cancel, Error, Expected, NamedObject, NamedObjects, Written};

use super::storage::{FileStorage, create_temporary_in, read_bounded, rename, sync_directory};
use crate::error::{file_error, read_error};
use crate::storage::{Folder, list_names};

impl NamedObjects for FileStorage {
    fn get(&self, names: &[String], _: &Cancel) -> Vec<Result<Option<NamedObject>, Error>> {
        let objects = names.iter().map(|name| self.get_named(name));
        objects.collect()
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
        let (file, temporary) = create_temporary_in(directory)?;
        let written = file.complete(|file| {
            file.write_all(contents)?;
            file.as_file().sync_all()
        });
        written.map_err(file_error("write", &path))?;
        rename(temporary, &path)?;
        sync_directory(directory)?;
        Ok(Written::Yes)
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
        crate::storage::WriteStorage::delete(self, name)?;
        sync_directory(directory)?;
        Ok(Written::Yes)
    }

    fn list(&self, folder: &str, cancel: &Cancel) -> Result<Option<Vec<String>>, Error> {
        if Folder::Pins.prefix() != folder {
            return Ok(None);
        }
        if !self.directory.join(folder).exists() {
            return Ok(Some(Vec::new()));
        }
        list_names(self, Folder::Pins, cancel).map(Some)
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
        let found = self.get_named(name)?.and_then(|found| found.version);
        Ok(match expected {
            Expected::Any => true,
            Expected::Absent => found.is_none(),
            Expected::Version(version) => found.as_ref() == Some(version),
        })
    }

    fn get_named(&self, name: &str) -> Result<Option<NamedObject>, Error> {
        let path: &Path = &self.directory.join(name);
        match read_bounded(path) {
            Ok(contents) => Ok(Some(NamedObject {
                version: Some(base16::encode(&sha256(&contents))),
                contents,
            })),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(read_error("read", path)(error)),
        }
    }
}
