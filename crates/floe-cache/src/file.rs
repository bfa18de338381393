//! A binary cache in a directory.

use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::path::{Component, Path, PathBuf};

use floe_format::Compression;
use floe_format::narinfo::NARINFO_LEN_MAX;
use floe_transfer::store_uri::{absolute, parse_bool, parse_number, percent_decode_text};
use floe_transfer::{Body, Buffering, CachePolicy, Error, StoreUri};

use crate::binary_cache::CacheOptions;
use crate::storage::{CacheStorage, Found, GetCallback, SmallObject};
use crate::temporary_file::TemporaryFile;
use crate::writer::CacheWriteOptions;

/// A binary cache in a directory, as its URI describes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileCacheUri {
    /// The directory of `nix-cache-info`.
    pub directory: PathBuf,
    /// The options of the cache as a source.
    pub options: CacheOptions,
    /// The options of the cache as a target.
    pub write: CacheWriteOptions,
}

impl FileCacheUri {
    /// Reads the parts of a `file://` URI, with Nix's parameters.
    ///
    /// Errors: the text says which part is wrong.
    pub fn parse(uri: &StoreUri) -> Result<FileCacheUri, String> {
        let mut cache = FileCacheUri {
            directory: absolute(&percent_decode_text(&uri.address)?)?,
            ..FileCacheUri::default()
        };
        for (name, value) in &uri.parameters {
            let is_known = cache.options.set(name, value)? || cache.write.set(name, value)?;
            if !is_known && !IGNORED_PARAMETERS.contains(&&**name) {
                return Err(format!("unknown parameter {name}"));
            }
        }
        Ok(cache)
    }
}

impl CacheWriteOptions {
    /// Sets the option that a parameter names. Returns `false` if it names none.
    fn set(&mut self, name: &str, value: &str) -> Result<bool, String> {
        match name {
            "compression" => {
                let compression = Compression::parse(value).map_err(|error| error.to_string())?;
                if matches!(compression, Compression::Lzma | Compression::Unsupported(_)) {
                    return Err(format!("floe does not write the compression {value}"));
                }
                self.compression = compression;
            }
            "compression-level" => {
                let level = parse_number(name, value)?;
                self.level = (level != -1).then_some(level);
            }
            "secret-key" => self.secret_keys.push(absolute(value)?),
            "secret-keys" => {
                for file in value.split(',').filter(|file| !file.is_empty()) {
                    self.secret_keys.push(absolute(file)?);
                }
            }
            "write-nar-listing" => self.write_listings = parse_bool(name, value)?,
            _ => return Ok(false),
        }
        Ok(true)
    }
}

/// Parameters of Nix's binary caches that do not concern a copy by floe.
pub(crate) const IGNORED_PARAMETERS: [&str; 7] = [
    "parallel-compression",
    "system-features",
    "want-mass-query",
    "local-nar-cache",
    "index-debug-info",
    "path-info-cache-size",
    "store",
];

/// The storage of a cache in a directory.
#[derive(Debug)]
pub struct FileStorage {
    directory: PathBuf,
    nar_directory: PathBuf,
}

impl FileStorage {
    /// Makes the storage of a directory, which need not exist.
    pub fn new(directory: &Path) -> FileStorage {
        FileStorage {
            directory: directory.to_owned(),
            nar_directory: directory.join("nar"),
        }
    }

    /// Returns the path of the NAR that a narinfo names. Errors: the path leads out of the cache,
    /// or to something that is not a file.
    fn nar_path(&self, url: &str) -> Result<PathBuf, Error> {
        let relative = url.strip_prefix("file://").unwrap_or(url);
        let path = self.directory.join(relative);
        let has_parent = |path: &Path| path.components().any(|part| part == Component::ParentDir);
        let cause = if !path.starts_with(&self.directory) || has_parent(Path::new(relative)) {
            "the URL leads out of the cache"
        } else if fs::metadata(&path).is_ok_and(|found| !found.is_file()) {
            // Opening a pipe would block until a process writes to it.
            "it is not a file"
        } else {
            return Ok(path);
        };
        Err(nar_error(path, io::Error::other(cause)))
    }
}

fn nar_error(path: PathBuf, source: io::Error) -> Error {
    Error::File {
        action: "open the NAR",
        path,
        source,
    }
}

impl CacheStorage for FileStorage {
    fn name(&self) -> String {
        format!("file://{}", self.directory.display())
    }

    fn get(&self, name: &str, _: CachePolicy, reply: GetCallback) {
        let path = self.directory.join(name);
        reply(match read_bounded(&path) {
            Ok(contents) => Ok(Found::Object(SmallObject {
                contents,
                uses_http2: false,
                from_disk_cache: false,
            })),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Found::Missing {
                reason: "no such file".into(),
                from_disk_cache: false,
            }),
            Err(source) => Err(Error::File {
                action: "read",
                path,
                source,
            }),
        });
    }

    fn open(&self, url: &str, _: Buffering) -> Result<Body, Error> {
        let path = self.nar_path(url)?;
        match File::open(&path) {
            Ok(file) => Ok(Body::File { file, path }),
            Err(source) => Err(nar_error(path, source)),
        }
    }

    fn exists(&self, name: &str) -> bool {
        self.directory.join(name).exists()
    }

    fn list(&self) -> Result<Option<Vec<String>>, Error> {
        let read = || -> io::Result<Vec<String>> {
            let entries = fs::read_dir(&self.directory)?;
            let names = entries.map(|entry| Ok(entry?.file_name().into_string().ok()));
            names.filter_map(Result::transpose).collect()
        };
        read().map(Some).map_err(|source| Error::File {
            action: "list the cache",
            path: self.directory.clone(),
            source,
        })
    }

    fn create(&self) -> Result<(), Error> {
        fs::create_dir_all(&self.nar_directory).map_err(|source| Error::File {
            action: "create the directory",
            path: self.nar_directory.clone(),
            source,
        })
    }

    fn put_atomic(&self, name: &str, contents: &[u8]) -> Result<(), Error> {
        let mut temporary = TemporaryFile::create(&self.directory)?;
        let written = temporary.write_all(contents);
        written.map_err(|source| Error::File {
            action: "write",
            path: self.directory.join(name),
            source,
        })?;
        self.put_temporary(name, temporary)
    }

    fn create_temporary(&self) -> Result<TemporaryFile, Error> {
        TemporaryFile::create(&self.nar_directory)
    }

    fn put_temporary(&self, name: &str, file: TemporaryFile) -> Result<(), Error> {
        file.rename(self.directory.join(name))
    }

    fn delete(&self, name: &str) -> Result<(), Error> {
        let path = self.directory.join(name);
        match fs::remove_file(&path) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => Err(Error::File {
                action: "delete",
                path,
                source,
            }),
            _ => Ok(()),
        }
    }

    fn nar_directory(&self) -> Option<&Path> {
        Some(&self.nar_directory)
    }
}

/// Reads a small file, with one byte more than a narinfo may have, so that the parser sees and
/// names the excess.
fn read_bounded(path: &Path) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    let limit = NARINFO_LEN_MAX as u64 + 1;
    File::open(path)?.take(limit).read_to_end(&mut text)?;
    Ok(text)
}
