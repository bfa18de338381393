//! A binary cache in a directory, as a target.
//!
//! 1. `nix-cache-info` is there before anything else;
//! 2. a NAR lies under its final name before any narinfo names it;
//! 3. a narinfo appears, whole, after those of its references, so that whoever finds a path
//!    finds its closure.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use floe_format::{CacheInfo, Compression, Hash, SecretKey, StoreDir, StorePath};

use super::nar_file::StagedNar;
use crate::cache::file::read_cache_info;
use crate::error::Error;
use crate::store_uri::FileCacheUri;

/// A cache that may be written.
#[derive(Debug)]
pub(crate) struct BinaryCacheWriter {
    location: FileCacheUri,
    store_dir: StoreDir,
    keys: Vec<SecretKey>,
    serial: AtomicU64,
}

impl BinaryCacheWriter {
    /// Opens a cache; makes one for `store_dir` where there is none.
    pub(crate) fn open(
        location: FileCacheUri,
        store_dir: StoreDir,
    ) -> Result<BinaryCacheWriter, Error> {
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

    pub(crate) fn store_dir(&self) -> &StoreDir {
        &self.store_dir
    }

    /// Those of `paths` that have no narinfo yet.
    pub(crate) fn query_missing(&self, paths: &[StorePath]) -> Vec<StorePath> {
        paths
            .iter()
            .filter(|path| !self.has_narinfo(path))
            .cloned()
            .collect()
    }

    /// Makes a path findable. Its references must have been published.
    pub(crate) fn publish(&self, staged: StagedNar) -> Result<StorePath, Error> {
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

    /// Those of `references` that are not in the cache.
    pub(crate) fn missing_references(
        &self,
        references: &BTreeSet<StorePath>,
    ) -> BTreeSet<StorePath> {
        references
            .iter()
            .filter(|path| !self.has_narinfo(path))
            .cloned()
            .collect()
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
