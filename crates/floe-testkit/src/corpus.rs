//! Real closures in binary caches, made by `cargo xtask test`.

use std::fs;
use std::path::{Path, PathBuf};

use crate::copy::copy_tree;
use crate::skip::skip;

/// A closure in signed binary caches, which real Nix made from Debian packages.
pub struct Corpus {
    /// The directory that contains the caches, the store and the keys.
    pub dir: PathBuf,
    /// The full path of the closure's root.
    pub root: String,
    /// The public key that signed all narinfos.
    pub key: String,
    /// The full paths of the closure.
    pub paths: Vec<String>,
}

/// Returns the corpus `name`. If it is missing, records a skip and returns `None`.
pub fn corpus(name: &str) -> Option<Corpus> {
    let base = std::env::var_os("FLOE_TEST_CORPORA").map(PathBuf::from);
    // Corpora that were made by hand may use the package's short name.
    let names = [name, name.trim_end_matches("-esr")];
    let dirs = base
        .iter()
        .flat_map(|base| names.map(|name| base.join(name)));
    let dir = dirs.into_iter().find(|dir| dir.join("stats.json").exists());
    let Some(dir) = dir else {
        skip(
            &format!("corpus {name}"),
            "not made; run `cargo xtask test`",
        );
        return None;
    };
    let read = |file: &str| {
        fs::read_to_string(dir.join(file))
            .unwrap()
            .trim()
            .to_owned()
    };
    let (root, key) = (read("root-path"), read("key.pub"));
    let paths = read("paths").lines().map(str::to_owned).collect();
    Some(Corpus {
        root,
        key,
        paths,
        dir,
    })
}

/// Returns the corpora of this run: small ones always, a large one in full runs.
pub fn corpora() -> Vec<Corpus> {
    let mut names = vec!["jq", "curl"];
    if std::env::var_os("FLOE_TEST_FULL").is_some() {
        names.push("firefox-esr");
    }
    names.into_iter().filter_map(corpus).collect()
}

impl Corpus {
    /// Returns the `file://` URL of the cache with this compression.
    pub fn file_url(&self, compression: &str) -> String {
        format!("file://{}", self.cache(compression).display())
    }

    /// Returns the directory of the cache with this compression.
    pub fn cache(&self, compression: &str) -> PathBuf {
        self.dir.join(format!("cache-{compression}"))
    }

    /// Copies one of the caches to `to/cache`, where a test may modify it.
    pub fn cache_copy(&self, compression: &str, to: &Path) -> PathBuf {
        let copy = to.join("cache");
        copy_tree(&self.cache(compression), &copy);
        copy
    }

    /// Returns the root directory of a store that contains the closure.
    pub fn store(&self) -> PathBuf {
        self.dir.join("store")
    }
}
