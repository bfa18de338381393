//! Closures of real programs with their stores and binary caches, as bench/corpus/make-corpus makes
//! them.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use xtask::corpora;

/// A closure with its store and its caches.
#[derive(Clone, Debug)]
pub(crate) struct Corpus {
    pub(crate) directory: PathBuf,
    /// The store path whose closure it is.
    pub(crate) root: String,
    /// The public key of its caches.
    pub(crate) public_key: String,
    /// All store paths of the closure.
    pub(crate) paths: Vec<String>,
}

impl Corpus {
    /// Finds a corpus by one of its names.
    pub(crate) fn find(root: &Path, names: &[&str]) -> Result<Corpus> {
        let directory = corpora::find(root, names).with_context(|| {
            // Recorded results must not name a directory of one machine.
            format!(
                "no corpus {}; run `cargo xtask test --full`, or set FLOE_CORPORA",
                names.join(" or ")
            )
        })?;
        Corpus::read(directory)
    }

    /// Reads the corpus in a directory.
    pub(crate) fn read(directory: PathBuf) -> Result<Corpus> {
        let read = |name: &str| {
            let file = directory.join(name);
            let text = fs::read_to_string(&file);
            text.with_context(|| format!("cannot read {}", file.display()))
        };
        Ok(Corpus {
            root: read("root-path")?.trim().into(),
            public_key: read("key.pub")?.trim().into(),
            paths: read("paths")?
                .split_whitespace()
                .map(String::from)
                .collect(),
            directory,
        })
    }

    /// The name of its directory.
    pub(crate) fn name(&self) -> String {
        let name = self.directory.file_name().unwrap_or_default();
        name.to_string_lossy().into_owned()
    }

    /// The root of its store.
    pub(crate) fn store(&self) -> PathBuf {
        self.directory.join("store")
    }

    pub(crate) fn secret_key_file(&self) -> PathBuf {
        self.directory.join("key.sec")
    }

    /// The directory of its cache with a compression.
    pub(crate) fn cache(&self, compression: &str) -> PathBuf {
        self.directory.join(format!("cache-{compression}"))
    }

    /// The NAR files of a cache, largest first; empty if there is no such cache.
    pub(crate) fn nar_files(&self, compression: &str) -> Vec<String> {
        let entries = fs::read_dir(self.cache(compression).join("nar"));
        let mut files: Vec<(u64, String)> = entries
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|entry| {
                let len = entry.metadata().ok()?.len();
                Some((len, entry.path().display().to_string()))
            })
            .collect();
        files.sort();
        files.into_iter().rev().map(|(_, path)| path).collect()
    }

    /// The URLs of these files on a server of the cache.
    pub(crate) fn nar_urls(&self, compression: &str, cache: &str) -> Vec<String> {
        let files = self.nar_files(compression);
        let names = files.iter().filter_map(|file| file.rsplit('/').next());
        names.map(|name| format!("{cache}/nar/{name}")).collect()
    }
}
