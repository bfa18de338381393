//! The storage of a binary cache in a directory.

use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write};
use std::ops::Range;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, OnceLock};

use floe_format::narinfo::NARINFO_LEN_MAX;
use floe_store::{UnfinishedFile, WrittenFile, list_directory, open_regular_file};
use floe_transfer::{Body, CachePolicy, Cancel, Error, NamedObjects, NarRequest, RetryPolicy};
use rustix::io::Errno;
use tempfile::TempPath;

use crate::binary_cache::NARINFO_SUFFIX;
use crate::error::CacheError;
use crate::error::{file_error, read_error};
use crate::storage::{
    Durability, Folder, Found, GetCallback, LenCallback, ListPage, ListStorage, ListedObject,
    NewObject, ObjectPlan, QueryLimit, RECORD_PREFIX, ReadStorage, SmallObject, WriteCallback,
    WriteStorage,
};

/// The storage of a cache in a directory.
#[derive(Debug)]
pub struct FileStorage {
    pub(super) directory: PathBuf,
    nar_directory: PathBuf,
    /// The directory of NARs, locked while this storage may have temporary files in it.
    lock: OnceLock<File>,
}

impl FileStorage {
    /// Makes the storage of a directory, which need not exist.
    pub fn new(directory: &Path) -> FileStorage {
        FileStorage {
            directory: directory.to_owned(),
            nar_directory: directory.join("nar"),
            lock: OnceLock::new(),
        }
    }

    /// Locks the directory of NARs. If no other writer has locked it, removes the temporary files
    /// of killed writers.
    fn lock(&self) -> io::Result<()> {
        let lock = File::open(&self.nar_directory)?;
        if lock.try_lock().is_ok() {
            for directory in [&self.directory, &self.nar_directory] {
                remove_temporaries(directory)?;
            }
            self.remove_published_records()?;
        }
        // A file system without locks keeps the temporary files.
        let _: io::Result<()> = lock.lock_shared();
        // Only the first call of `create` sets it.
        let _: Result<(), File> = self.lock.set(lock);
        Ok(())
    }

    /// Removes the records of staged paths that a killed writer had already published.
    fn remove_published_records(&self) -> io::Result<()> {
        for entry in list_directory(&self.nar_directory)? {
            let entry = entry?;
            let name = entry.file_name().to_str().unwrap_or_default();
            let Some(hash_part) = name.strip_prefix(RECORD_PREFIX) else {
                continue;
            };
            if self
                .directory
                .join(format!("{hash_part}{NARINFO_SUFFIX}"))
                .exists()
            {
                remove_if_present(entry.path())?;
            }
        }
        Ok(())
    }

    /// Returns the path of the NAR that a narinfo names. Errors: the path leads out of the cache.
    fn nar_path(&self, url: &str) -> Result<PathBuf, Error> {
        let relative = url.strip_prefix("file://").unwrap_or(url);
        let path = self.directory.join(relative);
        let has_parent = |path: &Path| path.components().any(|part| part == Component::ParentDir);
        if !path.starts_with(&self.directory) || has_parent(Path::new(relative)) {
            return Err(CacheError::NarUrl {
                source_name: self.name(),
                url: url.to_owned(),
                reason: "it leads out of the cache".into(),
            }
            .into());
        }
        Ok(path)
    }

    /// Writes an object whole or not at all, by a temporary file in `directory`.
    pub(super) fn put_now(
        &self,
        name: &str,
        contents: &[u8],
        (durability, directory): (Durability, &Path),
    ) -> Result<(), Error> {
        let path = self.directory.join(name);
        let mut attempt = 1;
        loop {
            let (file, temporary) = create_temporary_in(directory)?;
            let written = file.complete(|file| {
                file.write_all(contents)?;
                match durability {
                    Durability::Synced => file.as_file().sync_all(),
                    Durability::Unsynced => Ok(()),
                }
            });
            written.map_err(file_error("write", &path))?;
            match rename(temporary, &path) {
                // A writer that begins has taken the file for one of a killed writer.
                Err(Error::File { source, .. })
                    if source.kind() == io::ErrorKind::NotFound && attempt < ATTEMPTS =>
                {
                    attempt += 1;
                }
                renamed => return renamed,
            }
        }
    }

    /// Deletes an object. An absent object is not an error.
    pub(super) fn delete_now(&self, name: &str) -> Result<(), Error> {
        let path = self.directory.join(name);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(file_error("delete", &path)(error))
            }
            _ => Ok(()),
        }
    }
}

impl ReadStorage for FileStorage {
    fn name(&self) -> String {
        format!("file://{}", self.directory.display())
    }

    fn get(&self, name: &str, _: CachePolicy, reply: GetCallback) {
        let path = self.directory.join(name);
        reply(match read_bounded(&path) {
            Ok(contents) => Ok(Found::Object(SmallObject {
                contents,
                ..SmallObject::default()
            })),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Ok(Found::missing("no such file"))
            }
            Err(error) => Err(read_error("read", &path)(error)),
        });
    }

    fn open(&self, url: &str, _: NarRequest) -> Result<Body, Error> {
        let path = self.nar_path(url)?;
        let file = open_regular_file(&path).map_err(read_error("open the NAR", &path))?;
        Ok(Body::File { file, path })
    }

    fn open_part(&self, url: &str, part: Range<u64>) -> Result<Body, Error> {
        let path = self.nar_path(url)?;
        let opened = open_regular_file(&path).and_then(|mut file| {
            file.seek(SeekFrom::Start(part.start))?;
            Ok(file)
        });
        let file = opened.map_err(read_error("open", &path))?;
        Ok(Body::File { file, path })
    }

    fn prefetch(&self, url: &str, request: NarRequest) -> Option<Result<Body, Error>> {
        Some(self.open(url, request))
    }

    fn set_query_limit(&self, _: QueryLimit) {}

    fn disabled_by(&self) -> Option<Arc<Error>> {
        None
    }

    fn forget(&self, _: &str) {}

    fn retry_policy(&self) -> Option<RetryPolicy> {
        None
    }

    fn as_list(&self) -> Option<&dyn ListStorage> {
        Some(self)
    }

    fn abort(&self) {}
}

impl ListStorage for FileStorage {
    fn list_page(&self, folder: Folder, _: Option<&str>, _: &Cancel) -> Result<ListPage, Error> {
        let directory = self.directory.join(folder.prefix());
        let object = |name: &str| ListedObject {
            name: format!("{}{name}", folder.prefix()),
            // They would take a system call for each file.
            len: None,
            modified: None,
        };
        let read = || -> io::Result<Vec<ListedObject>> {
            let entries = list_directory(&directory)?;
            let names = entries.map(|entry| Ok(entry?.file_name().to_str().map(object)));
            names.filter_map(Result::transpose).collect()
        };
        let objects = match read() {
            // The first object of another folder makes its directory.
            Err(error) if error.kind() == io::ErrorKind::NotFound && folder != Folder::Top => {
                Vec::new()
            }
            objects => objects.map_err(read_error("list the cache", &directory))?,
        };
        Ok(ListPage {
            objects,
            next: None,
        })
    }

    fn examine(&self, objects: &mut [ListedObject]) -> Result<(), Error> {
        for object in objects {
            let path = self.directory.join(&object.name);
            match fs::metadata(&path) {
                Ok(found) => {
                    object.len = found.is_file().then_some(found.len());
                    object.modified = found.modified().ok();
                }
                // Another process has deleted it since.
                Err(error) if is_absent(&error) => {}
                Err(error) => return Err(read_error("examine", &path)(error)),
            }
        }
        Ok(())
    }
}

impl WriteStorage for FileStorage {
    fn query_len(&self, name: &str, reply: LenCallback) {
        let path = self.directory.join(name);
        reply(match fs::metadata(&path) {
            Ok(found) => Ok(found.is_file().then_some(found.len())),
            Err(error) if is_absent(&error) => Ok(None),
            Err(error) => Err(read_error("examine", &path)(error)),
        });
    }

    fn create(&self) -> Result<(), Error> {
        fs::create_dir_all(&self.nar_directory)
            .map_err(file_error("create the directory", &self.nar_directory))?;
        sync_directory(self.directory.parent().unwrap_or(&self.directory))?;
        self.lock()
            .map_err(file_error("lock the directory", &self.nar_directory))
    }

    fn put(&self, name: &str, contents: Vec<u8>, durability: Durability, reply: WriteCallback) {
        reply(self.put_now(name, &contents, (durability, &self.directory)));
    }

    fn begin_object(&self, _: &ObjectPlan) -> Result<Box<dyn NewObject>, Error> {
        let (file, path) = create_temporary_in(&self.nar_directory)?;
        Ok(Box::new(NewFile {
            file: file.into(),
            path,
            directory: self.directory.clone(),
        }))
    }

    fn sync(&self) -> Result<(), Error> {
        sync_directory(&self.nar_directory)?;
        sync_directory(&self.directory)
    }

    fn delete(&self, names: Vec<String>, reply: WriteCallback) {
        reply(names.iter().try_for_each(|name| self.delete_now(name)));
    }

    fn deletion_batch(&self) -> usize {
        1
    }

    fn as_objects(&self) -> &dyn NamedObjects {
        self
    }

    fn nar_directory(&self) -> Option<&Path> {
        Some(&self.nar_directory)
    }
}

/// A temporary file of a cache.
struct NewFile {
    file: UnfinishedFile,
    path: TempPath,
    /// The directory of the cache.
    directory: PathBuf,
}

impl Write for NewFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.get_mut().map_or(Ok(0), |file| file.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.get_mut().map_or(Ok(()), Write::flush)
    }
}

impl NewObject for NewFile {
    fn place(&self) -> &Path {
        &self.path
    }

    fn finish(mut self: Box<Self>, name: &str, reply: WriteCallback) -> String {
        // The contents must reach the disk before the name does.
        let written = self.file.take().map_or(Ok(()), |file| {
            file.complete(|file| file.as_file().sync_all())
        });
        let written = written.map_err(file_error("write", &self.path));
        reply(written.and_then(|()| rename(self.path, &self.directory.join(name))));
        name.to_owned()
    }
}

/// Gives a temporary file its name.
pub(super) fn rename(file: TempPath, path: &Path) -> Result<(), Error> {
    let renamed = match file.persist(path) {
        // A directory such as `debuginfo` is created for its first object.
        Err(failed) if failed.error.kind() == io::ErrorKind::NotFound => path
            .parent()
            .map_or(Ok(()), fs::create_dir_all)
            .and_then(|()| Ok(failed.path.persist(path)?)),
        renamed => renamed.map_err(|failed| failed.error),
    };
    renamed.map_err(file_error("write", path))
}

/// Whether an error means that there is no such file: a narinfo may name any text as its NAR.
fn is_absent(error: &io::Error) -> bool {
    use io::ErrorKind::{InvalidFilename, InvalidInput, NotADirectory, NotFound};
    let kinds = [NotFound, NotADirectory, InvalidFilename, InvalidInput];
    kinds.contains(&error.kind()) || Errno::from_io_error(error) == Some(Errno::LOOP)
}

/// Waits until the names in a directory are on disk. A directory that this user may not read, and a
/// file system that syncs no directories, are not errors.
pub(super) fn sync_directory(path: &Path) -> Result<(), Error> {
    use io::ErrorKind::{InvalidInput, PermissionDenied, Unsupported};
    match File::open(path).and_then(|directory| directory.sync_all()) {
        Err(error) if matches!(error.kind(), InvalidInput | PermissionDenied | Unsupported) => {
            Ok(())
        }
        synced => synced.map_err(file_error("sync", path)),
    }
}

fn remove_temporaries(directory: &Path) -> io::Result<()> {
    for entry in list_directory(directory)? {
        let entry = entry?;
        let name = entry.file_name().as_encoded_bytes();
        if name.starts_with(PREFIX.as_bytes()) && name.ends_with(SUFFIX.as_bytes()) {
            remove_if_present(entry.path())?;
        }
    }
    Ok(())
}

/// Removes a file, unless its writer has given it another name since it was listed.
fn remove_if_present(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Creates a file. Every user may read it, whatever the umask, because a server has to, as with
/// Nix.
pub(super) fn create_temporary_in(directory: &Path) -> Result<(WrittenFile, TempPath), Error> {
    let created = WrittenFile::create_temporary(directory, PREFIX, SUFFIX);
    let created = created.and_then(|(file, path)| match file.set_mode(0o644) {
        Ok(()) => Ok((file, path)),
        Err(error) => {
            file.discard();
            Err(error)
        }
    });
    created.map_err(file_error("create a file in", directory))
}

/// Reads a small file, with one byte more than a narinfo may have, so that the parser sees and
/// names the excess.
pub(super) fn read_bounded(path: &Path) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    let limit = NARINFO_LEN_MAX as u64 + 1;
    open_regular_file(path)?
        .take(limit)
        .read_to_end(&mut text)?;
    Ok(text)
}

/// How often an object is written whose temporary file vanishes.
const ATTEMPTS: u32 = 5;

/// The names of temporary files begin and end with these texts.
const PREFIX: &str = ".floe-";
const SUFFIX: &str = ".tmp";
