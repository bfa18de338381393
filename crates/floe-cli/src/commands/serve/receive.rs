//! A binary cache in a directory that `floe serve` receives.

mod limits;
mod uploads;

use std::fs::File;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use floe_cache::{BinaryCacheWriter, CacheWriteOptions, FileStorage, PublishError, WriteStorage};
use floe_format::{SecretKey, StoreDir, StorePath};
use floe_server::receive::{
    Object, ReceiveError, ReceiveErrorKind, Receiver, Upload, UploadRequest,
};
use floe_store::{StoreLayout, StoreReader, open_regular_file};
use floe_transfer::{Cancel, Error, ErrorKind, Target as _};

use parking_lot::{Mutex, MutexGuard};

pub(super) use limits::ReceiveLimits;
use limits::{Memory, Rate, Usage};

/// A binary cache in a directory that receives uploads.
#[derive(Debug)]
pub(super) struct DirectoryReceiver(Arc<Shared>);

/// The parts that all uploads share.
#[derive(Debug)]
struct Shared {
    directory: PathBuf,
    storage: Arc<FileStorage>,
    store_dir: StoreDir,
    /// The live store, which clients can read too.
    store: StoreLayout,
    keys: Vec<SecretKey>,
    limits: ReceiveLimits,
    usage: Usage,
    rate: Rate,
    /// Held while an object gets its name, so that of two clients the second one finds it. One of
    /// them for the objects with the same hash.
    naming: [Mutex<()>; NAMING_LOCKS],
    /// The memory of small objects.
    memory: Memory,
    /// Ends the verification of NARs.
    cancel: Cancel,
}

impl DirectoryReceiver {
    /// Opens the cache, and makes it if there is none.
    ///
    /// Errors: those of the storage; the cache is for another store directory.
    pub(super) fn open(
        directory: &Path,
        (store, keys): (StoreLayout, Vec<SecretKey>),
        limits: ReceiveLimits,
    ) -> anyhow::Result<DirectoryReceiver> {
        let directory = &std::path::absolute(directory)?;
        if directory.starts_with(&store.real_store_dir) {
            anyhow::bail!(
                "cannot receive into {}: it is in the store; choose another directory",
                directory.display()
            );
        }
        let storage = Arc::new(FileStorage::new(directory));
        let shared = Shared {
            store_dir: store.store_dir.clone(),
            directory: directory.to_owned(),
            usage: Usage::default(),
            rate: Rate::default(),
            cancel: Cancel::default(),
            naming: std::array::from_fn(|_| Mutex::default()),
            memory: Memory::default(),
            storage,
            store,
            keys,
            limits,
        };
        let writer = shared.writer()?;
        if *writer.store_dir() != shared.store_dir {
            anyhow::bail!(
                "cannot receive into {}: it is a cache for paths in {}, and the store is {}",
                directory.display(),
                writer.store_dir(),
                shared.store_dir
            );
        }
        writer.prepare()?;
        shared.usage.measure(&directory.join("nar"))?;
        Ok(DirectoryReceiver(Arc::new(shared)))
    }
}

impl Receiver for DirectoryReceiver {
    fn begin(&self, request: &UploadRequest) -> Result<Box<dyn Upload>, ReceiveError> {
        let shared = &self.0;
        shared.rate.count(&request.user, shared.limits.per_minute)?;
        shared.begin(request)
    }

    fn open(&self, object: &Object) -> Result<Option<File>, ReceiveError> {
        match open_regular_file(&self.0.directory.join(object.name())) {
            Ok(file) => Ok(Some(file)),
            Err(error) => match error.kind() {
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Ok(None),
                _ => Err(error.into()),
            },
        }
    }

    fn stop(&self) {
        self.0.cancel.raise();
    }
}

impl Shared {
    /// Opens the cache for one object. Its lease ends with it.
    fn writer(&self) -> Result<BinaryCacheWriter, Error> {
        let storage: Arc<dyn WriteStorage> = self.storage.clone();
        let options = CacheWriteOptions::default();
        BinaryCacheWriter::open(storage, &options, self.store_dir.clone(), &self.cancel)
    }

    /// Whether the live store has a path, so that clients get it there.
    fn is_in_store(&self, path: &StorePath) -> bool {
        let found = StoreReader::open(self.store.clone()).and_then(|store| store.is_valid(path));
        found.unwrap_or(false)
    }

    /// Lets no other upload of an object get its name until the end of the returned value.
    fn lock_name(&self, name: &str) -> MutexGuard<'_, ()> {
        let mut hasher = DefaultHasher::new();
        name.hash(&mut hasher);
        let index = hasher.finish() % NAMING_LOCKS as u64;
        self.naming[usize::try_from(index).unwrap_or(0)].lock()
    }

    fn exists(&self, name: &str) -> bool {
        self.directory.join(name).exists()
    }
}

/// Enough that uploads of other objects rarely wait.
const NAMING_LOCKS: usize = 64;

/// Returns the error of an upload that the cache cannot take.
fn failed(error: Error) -> ReceiveError {
    match error.kind() {
        ErrorKind::Interrupted => {
            ReceiveError::new(ReceiveErrorKind::Stopping, "the server stops; try again")
        }
        ErrorKind::NoSpace => {
            ReceiveError::new(ReceiveErrorKind::Full, "the disk of the cache is full")
        }
        _ => ReceiveError::new(ReceiveErrorKind::System, error.to_string()),
    }
}

fn not_published(error: PublishError) -> ReceiveError {
    match error {
        PublishError::Invalid(message) => invalid(message),
        PublishError::Conflict(message) => conflict(message),
        PublishError::Cache(error) => failed(error),
    }
}

fn invalid(message: impl Into<String>) -> ReceiveError {
    ReceiveError::new(ReceiveErrorKind::Invalid, message)
}

fn conflict(message: impl Into<String>) -> ReceiveError {
    ReceiveError::new(ReceiveErrorKind::Conflict, message)
}
