//! Uploads that `floe serve` receives, into a binary cache in a directory or into its store.

mod errors;
mod known_files;
mod limits;
mod nar_upload;
mod pin_upload;
mod small_upload;
mod store;

use std::fmt;
use std::fs::File;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use anyhow::Context as _;
use floe_cache::{BinaryCacheWriter, CacheWriteOptions, FileStorage, WriteStorage};
use floe_format::{SecretKey, StoreDir, StorePath};
use floe_server::config::Warn;
use floe_server::receive::{Object, ReceiveError, Receiver, Upload, UploadRequest};
use floe_store::{StoreLayout, StoreReader, open_regular_file};
use floe_transfer::codec::DecoderBudget;
use floe_transfer::{Cancel, Error, Target as _};

use parking_lot::{Mutex, MutexGuard, RwLock};

use known_files::KnownFiles;
pub(super) use limits::ReceiveLimits;
use limits::{DECODERS_MAX, Memory, READINGS_MAX, Rate, Slots, Usage, check_len};
use nar_upload::NarUpload;
use small_upload::SmallUpload;
pub(super) use store::StoreOptions;
use store::{ReceivingStore, delete_unused_nars};

/// Receives uploads, into a binary cache or into the live store.
#[derive(Debug)]
pub(super) struct UploadReceiver {
    shared: Arc<Shared>,
    /// Its end ends the maintenance thread.
    _open: Option<mpsc::Sender<()>>,
}

/// The parts that all uploads share.
struct Shared {
    directory: PathBuf,
    storage: Arc<FileStorage>,
    store_dir: StoreDir,
    /// The live store, which clients can read too.
    store: StoreLayout,
    destination: Destination,
    limits: ReceiveLimits,
    warn: Warn,
    usage: Usage,
    rate: Rate,
    /// Held while an object gets its name, so that of two clients the second one finds it. One of
    /// them for the objects with the same hash.
    naming: [Mutex<()>; NAMING_LOCKS],
    /// The memory of small objects.
    memory: Memory,
    /// The memory of the decoders of NARs that have come.
    decoder_budget: DecoderBudget,
    /// The decoders of NARs that come.
    decoders: Slots,
    /// The NARs that are read for their narinfos.
    readings: Slots,
    /// The NARs whose narinfos may come.
    known: KnownFiles,
    /// Ends the verification of NARs.
    cancel: Cancel,
}

/// Where received paths go.
#[derive(Debug)]
enum Destination {
    /// Into the cache in the directory. The server signs them with these keys.
    Cache(RwLock<Arc<[SecretKey]>>),
    /// Into the live store. The directory has the NARs whose narinfos have not come, logs, pins,
    /// and the roots of pins.
    Store(Box<ReceivingStore>),
}

impl UploadReceiver {
    /// Opens a cache, and makes it if there is none. The server signs the paths with `keys`.
    ///
    /// Errors: those of the storage; the cache is for another store directory.
    pub(super) fn of_cache(
        directory: &Path,
        (store, keys): (StoreLayout, Vec<SecretKey>),
        (limits, warn): (ReceiveLimits, Warn),
    ) -> anyhow::Result<UploadReceiver> {
        let shared = Shared::new(
            directory,
            store,
            (Destination::Cache(RwLock::new(keys.into())), limits, warn),
        )?;
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
        shared.usage.measure(&shared.directory.join("nar"))?;
        Ok(UploadReceiver {
            shared: Arc::new(shared),
            _open: None,
        })
    }

    /// Opens the live store for uploads, and a directory for the NARs whose narinfos have not come.
    /// Makes both if they do not exist.
    ///
    /// Errors: those of the store and of the directory; the directory is a binary cache.
    pub(super) fn of_store(
        directory: &Path,
        store: StoreOptions,
        (limits, warn): (ReceiveLimits, Warn),
    ) -> anyhow::Result<UploadReceiver> {
        if directory.join("nix-cache-info").exists() {
            // Its NARs would be deleted.
            anyhow::bail!(
                "cannot keep uploads in {}: it is a binary cache; choose another directory",
                directory.display()
            );
        }
        let (layout, cancel) = (store.layout.clone(), Cancel::default());
        let interval = store.keep.clamp(MAINTENANCE_MIN, MAINTENANCE_MAX);
        let opened = ReceivingStore::open(store, &cancel)
            .with_context(|| format!("cannot receive into {}", layout.real_store_dir.display()))?;
        let mut shared = Shared::new(
            directory,
            layout,
            (Destination::Store(Box::new(opened)), limits, warn),
        )?;
        shared.cancel = cancel;
        shared.storage.create()?;
        shared.usage.measure(&shared.directory.join("nar"))?;
        pin_upload::repair_roots(&shared).context("cannot keep the paths of the pins")?;
        let shared = Arc::new(shared);
        let (open, closed) = mpsc::channel();
        let weak = Arc::downgrade(&shared);
        thread::Builder::new()
            .name("floe-uploads".into())
            .spawn(move || maintain(&weak, (&closed, interval)))
            .context("cannot start a thread")?;
        Ok(UploadReceiver {
            shared,
            _open: Some(open),
        })
    }
}

/// Deletes unused uploads and old roots from time to time, until the receiver is closed.
fn maintain(shared: &Weak<Shared>, (closed, interval): (&mpsc::Receiver<()>, Duration)) {
    loop {
        if let Some(shared) = shared.upgrade()
            && let Destination::Store(store) = &shared.destination
        {
            let closed = store.close_old_roots(&shared.cancel);
            let closed = closed.map_err(|error| format!("cannot let old uploads go: {error}"));
            let deleted = delete_unused_nars(&shared);
            let deleted = deleted.map_err(|error| format!("cannot delete old uploads: {error}"));
            for problem in [closed, deleted].into_iter().filter_map(Result::err) {
                (shared.warn)(&problem);
            }
        }
        if closed.recv_timeout(interval) != Err(RecvTimeoutError::Timeout) {
            return;
        }
    }
}

/// Short even beside a short time to keep received paths.
const MAINTENANCE_MIN: Duration = Duration::from_secs(1);

/// Short beside the time after which uploads are deleted.
const MAINTENANCE_MAX: Duration = Duration::from_secs(60);

impl Receiver for UploadReceiver {
    fn begin(&self, request: &UploadRequest) -> Result<Box<dyn Upload>, ReceiveError> {
        let shared = &self.shared;
        shared.rate.count(&request.user, shared.limits.per_minute)?;
        shared.begin(request)
    }

    fn open(&self, object: &Object) -> Result<Option<File>, ReceiveError> {
        match open_regular_file(&self.shared.directory.join(object.name())) {
            Ok(file) => Ok(Some(file)),
            Err(error) => match error.kind() {
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Ok(None),
                _ => Err(error.into()),
            },
        }
    }

    fn replace_keys(&self, keys: &[SecretKey]) {
        match &self.shared.destination {
            Destination::Cache(present) => *present.write() = keys.into(),
            Destination::Store(store) => store.replace_own_keys(keys),
        }
    }

    fn stop(&self) {
        self.shared.cancel.raise();
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared")
            .field("directory", &self.directory)
            .finish_non_exhaustive()
    }
}

impl Shared {
    /// Begins an upload.
    fn begin(self: &Arc<Shared>, request: &UploadRequest) -> Result<Box<dyn Upload>, ReceiveError> {
        let len = request.len.unwrap_or(0);
        let max = request.object.len_max().unwrap_or(self.limits.nar_len_max);
        check_len(len, max)?;
        Ok(match &request.object {
            Object::Nar(name) => Box::new(NarUpload::begin(self, name, len)?),
            _ => Box::new(SmallUpload::new(self, request, max)),
        })
    }

    fn new(
        directory: &Path,
        store: StoreLayout,
        (destination, limits, warn): (Destination, ReceiveLimits, Warn),
    ) -> anyhow::Result<Shared> {
        let directory = std::path::absolute(directory)?;
        // A link may lead there.
        let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
        if real(&directory).starts_with(real(&store.real_store_dir)) {
            anyhow::bail!(
                "cannot receive into {}: it is in the store; choose another directory",
                directory.display()
            );
        }
        Ok(Shared {
            storage: Arc::new(FileStorage::new(&directory)),
            store_dir: store.store_dir.clone(),
            directory,
            usage: Usage::default(),
            rate: Rate::default(),
            cancel: Cancel::default(),
            naming: std::array::from_fn(|_| Mutex::default()),
            memory: Memory::default(),
            decoder_budget: DecoderBudget::new(0),
            decoders: Slots::new(DECODERS_MAX),
            readings: Slots::new(READINGS_MAX),
            known: KnownFiles::default(),
            destination,
            store,
            limits,
            warn,
        })
    }

    /// The keys with which the server signs what it receives.
    fn keys(&self) -> Arc<[SecretKey]> {
        match &self.destination {
            Destination::Cache(keys) => keys.read().clone(),
            Destination::Store(_) => Arc::default(),
        }
    }

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

/// Waits for the reply of a storage.
fn wait(write: impl FnOnce(floe_cache::WriteCallback)) -> Result<(), Error> {
    let (sender, receiver) = mpsc::channel();
    write(Box::new(move |written| {
        // The receiver waits.
        let _: Result<(), _> = sender.send(written);
    }));
    receiver
        .recv()
        .unwrap_or(Err(Error::Internal("a storage does not reply")))
}
