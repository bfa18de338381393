//! A binary cache in a directory, as a target.
//!
//! 1. `nix-cache-info` is there before anything else;
//! 2. a NAR lies under its final name before any narinfo names it;
//! 3. a narinfo appears, whole, after those of its references, so that whoever finds a path
//!    finds its closure.

mod nar_file;

use std::collections::{BTreeSet, HashMap};
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use floe_format::{CacheInfo, Compression, Hash, NarInfo, SecretKey, StoreDir, StorePath};
use floe_transfer::{
    CommitOutcome, Error, FileCacheUri, IncomingNar, Needs, PlannedPath, Space, Target, codec,
};

use crate::file::read_cache_info;
use nar_file::{StagedNar, write_nar_file};

/// A cache that may be written.
#[derive(Debug)]
pub struct BinaryCacheWriter {
    location: FileCacheUri,
    store_dir: StoreDir,
    keys: Vec<SecretKey>,
    serial: AtomicU64,
    /// NARs that lie in the cache, until their narinfos are published.
    staged: Mutex<HashMap<StorePath, StagedNar>>,
}

impl BinaryCacheWriter {
    /// Opens a cache; makes one for `store_dir` where there is none.
    pub fn open(location: FileCacheUri, store_dir: StoreDir) -> Result<BinaryCacheWriter, Error> {
        let keys = location
            .secret_keys
            .iter()
            .map(|path| read_secret_key(path))
            .collect::<Result<_, _>>()?;
        let nars = location.directory.join("nar");
        fs::create_dir_all(&nars).map_err(|source| Error::File {
            action: "creating the directory",
            path: nars,
            source,
        })?;
        let mut cache = BinaryCacheWriter {
            location,
            store_dir,
            keys,
            serial: AtomicU64::new(0),
            staged: Mutex::default(),
        };
        match read_cache_info(&cache.location.directory)? {
            Some(info) => cache.store_dir = info.store_dir,
            None => {
                let store_dir = cache.store_dir.clone();
                let info = CacheInfo {
                    store_dir,
                    want_mass_query: false,
                    priority: None,
                };
                cache.write_atomically("nix-cache-info", info.to_text().as_bytes())?;
            }
        }
        Ok(cache)
    }

    pub(crate) fn location(&self) -> &FileCacheUri {
        &self.location
    }

    /// Makes a path findable. Its references must have been published.
    fn publish(&self, staged: StagedNar) -> Result<StorePath, Error> {
        let StagedNar { mut narinfo, tree } = staged;
        let path = narinfo.info.path.clone();
        let part = path.hash_part();
        if let Some(tree) = tree {
            let text = floe_format::nar::listing::to_text(&tree).map_err(|error| Error::File {
                action: "listing",
                path: self.location.directory.join(format!("{part}.ls")),
                source: io::Error::other(error.to_string()),
            })?;
            self.write_atomically(&format!("{part}.ls"), text.as_bytes())?;
        }
        narinfo.info.ultimate = false;
        for key in &self.keys {
            narinfo.info.sign(&self.store_dir, key);
        }
        let text = narinfo.to_text(&self.store_dir);
        self.write_atomically(&format!("{part}.narinfo"), text.as_bytes())?;
        Ok(path)
    }

    fn staged(&self) -> MutexGuard<'_, HashMap<StorePath, StagedNar>> {
        self.staged.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The URL of a NAR, relative to the cache, as Nix forms it.
    pub(crate) fn nar_url(file_hash: &Hash, compression: Compression) -> String {
        format!(
            "nar/{}.nar{}",
            file_hash.digest_nix32(),
            compression.file_extension()
        )
    }

    /// A name that nobody else uses, in a directory of the cache.
    pub(crate) fn temporary_file(&self, directory: &str) -> PathBuf {
        let number = self.serial.fetch_add(1, Ordering::Relaxed);
        // The process number alone is not unique across containers, nor across reboots.
        let nanos = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |now| now.subsec_nanos());
        let name = format!(".floe-{}-{nanos}-{number}.tmp", std::process::id());
        self.location.directory.join(directory).join(name)
    }

    fn has_narinfo(&self, path: &StorePath) -> bool {
        self.location
            .directory
            .join(format!("{}.narinfo", path.hash_part()))
            .exists()
    }

    /// Writes a small file whole or not at all.
    fn write_atomically(&self, name: &str, contents: &[u8]) -> Result<(), Error> {
        let temporary = self.temporary_file("");
        let path = self.location.directory.join(name);
        let written = create_world_readable(&temporary)
            .and_then(|mut file| file.write_all(contents))
            .and_then(|()| fs::rename(&temporary, &path));
        written.map_err(|source| {
            let _: io::Result<()> = fs::remove_file(&temporary);
            Error::File {
                action: "writing",
                path,
                source,
            }
        })
    }
}

impl Target for BinaryCacheWriter {
    fn store_dir(&self) -> &StoreDir {
        &self.store_dir
    }

    fn add_temp_roots_and_query_missing(
        &self,
        paths: &[StorePath],
    ) -> Result<Vec<StorePath>, Error> {
        let is_missing = |path: &&StorePath| !self.has_narinfo(path);
        Ok(paths.iter().filter(is_missing).cloned().collect())
    }

    fn receive(&self, nar: &mut IncomingNar<'_>) -> Result<(), Error> {
        let staged = write_nar_file(self, nar)?;
        self.staged().insert(nar.path().clone(), staged);
        Ok(())
    }

    /// Publishes the narinfos in the order of the batch: references first.
    fn commit(&self, batch: &[StorePath]) -> Result<CommitOutcome, Error> {
        let mut outcome = CommitOutcome::default();
        for path in batch {
            let Some(nar) = self.staged().remove(path) else {
                continue;
            };
            let references = nar.narinfo.info.references.iter();
            let missing: BTreeSet<StorePath> = references
                .filter(|reference| *reference != path && !self.has_narinfo(reference))
                .cloned()
                .collect();
            if missing.is_empty() {
                outcome.valid.push(self.publish(nar)?);
            } else {
                self.staged().insert(path.clone(), nar);
                outcome.missing_references.push((path.clone(), missing));
            }
        }
        Ok(outcome)
    }

    fn requires_trust(&self) -> bool {
        false
    }

    fn needs_core_per_worker(&self) -> bool {
        codec::needs_core(self.location.compression)
    }

    fn estimate_space(&self, items: &[PlannedPath]) -> Result<Option<Space>, Error> {
        let directory = self.location.directory.join("nar");
        let needs = |narinfo: &NarInfo| needs(narinfo, &self.location);
        Space::estimate(&directory, items, needs).map(Some)
    }

    fn discard(&self, paths: &[StorePath]) {
        let mut staged = self.staged();
        for path in paths {
            staged.remove(path);
        }
    }
}

/// Estimates the needs of a path: its NAR, its narinfo and, if it is wanted, its listing.
pub(crate) fn needs(narinfo: &NarInfo, location: &FileCacheUri) -> Needs {
    let inodes = 2 + u64::from(location.write_listings);
    Needs::of_nar_file(narinfo, location.compression, inodes)
}

/// Makes a file that others may read, whatever the umask: a server has to, as with Nix.
pub(crate) fn create_world_readable(path: &Path) -> io::Result<File> {
    let file = File::create_new(path)?;
    file.set_permissions(fs::Permissions::from_mode(0o644))?;
    Ok(file)
}

fn read_secret_key(path: &Path) -> Result<SecretKey, Error> {
    let text = fs::read_to_string(path).map_err(|source| Error::File {
        action: "reading the secret key",
        path: path.to_path_buf(),
        source,
    })?;
    SecretKey::parse(text.trim_end()).map_err(|error| Error::SecretKey {
        path: path.to_path_buf(),
        reason: error.to_string(),
    })
}
