//! The URI of a binary cache in a directory.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use floe_transfer::store_uri::{absolute, percent_decode_text};
use floe_transfer::{
    Error, IgnoredParameter, NamedObjects, OpenTarget, Session, Source, SourceContext, StoreConfig,
    StoreFacts, StoreUri, TargetContext, UriContext,
};

use super::FileStorage;
use crate::binary_cache::{BinaryCache, CACHE_INFO, CacheOptions};
use crate::uri_parameter::visit_parameters;
use crate::writer::{BinaryCacheWriter, CacheWriteOptions};

/// A binary cache in a directory, as its URI describes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileCacheUri {
    /// The directory of `nix-cache-info`.
    pub directory: PathBuf,
    /// The options of the cache as a source.
    pub options: CacheOptions,
    /// The options of the cache as a target.
    pub write: CacheWriteOptions,
    /// The parameters without effect that the user should know of.
    pub ignored: Vec<IgnoredParameter>,
}

impl FileCacheUri {
    /// Reads the parts of a `file://` URI, with Nix's parameters. `context` has defaults.
    ///
    /// Errors: the text says which part is wrong.
    pub fn parse(uri: &StoreUri, context: &UriContext) -> Result<FileCacheUri, String> {
        let directory = PathBuf::from(percent_decode_text(&uri.address)?);
        if !directory.is_absolute() {
            return Err(not_absolute(&uri.address));
        }
        let mut cache = FileCacheUri {
            directory,
            write: CacheWriteOptions::defaults(uri, context),
            ..FileCacheUri::default()
        };
        cache.ignored = visit_parameters(uri, |parameter| {
            cache.options.visit(parameter)?;
            cache.write.visit(parameter)
        })?;
        cache.write.complete(&cache.options, context);
        Ok(cache)
    }

    /// Whether there is a cache in the directory.
    pub fn exists(&self) -> bool {
        self.directory.join(CACHE_INFO).exists()
    }
}

/// Returns the reason why a `file` URI with this address names no cache. Nix refuses it as well.
fn not_absolute(address: &str) -> String {
    let path = match address.strip_prefix("localhost/") {
        Some(path) => format!("/{path}"),
        None => absolute(address).map_or_else(|_| "/DIR".into(), |it| it.display().to_string()),
    };
    format!("a file URI takes an absolute path; use file://{path}")
}

impl fmt::Display for FileCacheUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "file://{}", self.directory.display())
    }
}

impl StoreConfig for FileCacheUri {
    fn facts(&self) -> StoreFacts<'_> {
        StoreFacts {
            is_trusted: self.options.trusted,
            secret_key_files: &self.write.secret_keys,
            ignored_parameters: &self.ignored,
            ..StoreFacts::default()
        }
    }

    fn open_source(&self, context: &SourceContext<'_>) -> Result<Arc<dyn Source>, Error> {
        let storage = Arc::new(FileStorage::new(&self.directory));
        Ok(Arc::new(BinaryCache::open(storage, &self.options, context)))
    }

    fn open_target(&self, context: &TargetContext<'_>) -> Result<OpenTarget, Error> {
        if self.directory == Path::new("/") && !self.exists() {
            return Err(Error::InvalidStoreUri {
                text: self.to_string(),
                reason: "floe makes no cache in the root directory; use file:///DIR".into(),
            });
        }
        let storage = Arc::new(FileStorage::new(&self.directory));
        BinaryCacheWriter::open_target(storage, &self.write, context)
    }

    fn open_objects(&self, _: &Session) -> Result<Option<Arc<dyn NamedObjects>>, Error> {
        Ok(Some(Arc::new(FileStorage::new(&self.directory))))
    }

    fn is_new(&self) -> bool {
        !self.exists()
    }
}
