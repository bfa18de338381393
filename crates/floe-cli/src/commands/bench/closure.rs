//! The closure to copy, and the check of a copied store.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use floe_bench::BenchError;
use floe_config::parse_store_uri;
use floe_copy::{SourceOrder, Sources};
use floe_format::{NarInfo, StoreDir, StorePath};
use floe_store::{StoreLayout, StoreReader};
use floe_transfer::{Cancel, PathSpec};

use crate::messages::bench as messages;
use crate::options;

/// The closure to copy, as its source describes it.
#[derive(Debug)]
pub(crate) struct Closure {
    narinfos: BTreeMap<StorePath, NarInfo>,
    roots: Vec<String>,
    store_dir: StoreDir,
    /// Whether the source is a binary cache, whose files are compressed.
    is_cached: bool,
}

impl Closure {
    /// Queries the source for the closures of some paths.
    ///
    /// Errors: the source fails or lacks a path.
    pub(crate) fn query(from: &str, paths: &[String], cancel: &Cancel) -> anyhow::Result<Closure> {
        let environment = options::environment();
        let location = parse_store_uri(from, None, &environment)?;
        let sources = Sources::open(
            &[location],
            SourceOrder::AsListed,
            &environment.network_options(),
            cancel,
        )?;
        let source = sources.list.first();
        let source = source.ok_or_else(|| anyhow::anyhow!(messages::source(from)))?;
        let store_dir = source.store_dir().clone();
        let roots: Result<Vec<PathSpec>, _> = paths
            .iter()
            .map(|text| PathSpec::parse(text, &store_dir))
            .collect();
        let roots = roots?;
        let narinfos = source.query_closure(&roots, true, cancel)?;
        let is_root = |path: &&StorePath| roots.iter().any(|root| root.matches(path));
        let found = narinfos.keys().filter(is_root);
        Ok(Closure {
            roots: found.map(|path| store_dir.full_path(path)).collect(),
            narinfos,
            is_cached: source.has_nar_files(),
            store_dir,
        })
    }

    /// Returns the requested paths in full.
    pub(crate) fn roots(&self) -> &[String] {
        &self.roots
    }

    pub(crate) fn len(&self) -> usize {
        self.narinfos.len()
    }

    pub(crate) fn nar_bytes(&self) -> u64 {
        let sizes = self.narinfos.values().map(|narinfo| narinfo.info.nar_size);
        sizes.fold(0, u64::saturating_add)
    }

    /// Returns the compressions of its files, such as "zstd"; `None` if the source is a store.
    pub(crate) fn compressions(&self) -> Option<String> {
        let names: BTreeSet<&str> = self
            .narinfos
            .values()
            .map(|narinfo| narinfo.compression.name())
            .collect();
        let names: Vec<&str> = names.into_iter().collect();
        self.is_cached.then(|| names.join(" and "))
    }

    /// Returns a check of the store below a directory: all paths of the closure are valid, have the
    /// right NAR hash, and are on disk. The first call also hashes their contents.
    pub(crate) fn check(&self, root: PathBuf) -> impl Fn() -> Result<(), BenchError> + '_ {
        let has_hashed = Cell::new(false);
        move || {
            let wrong = |reason: String| BenchError::Result(reason);
            let layout = StoreLayout::in_root(&root, self.store_dir.clone());
            let store = StoreReader::open(layout).map_err(|error| wrong(error.to_string()))?;
            for narinfo in self.narinfos.values() {
                self.check_path(&store, narinfo)?;
            }
            if !has_hashed.replace(true) {
                let found = store
                    .verify(&[], None, &())
                    .map_err(|error| wrong(error.to_string()))?;
                if !found.problems.is_empty() {
                    let count = found.problems.len();
                    return Err(wrong(messages::problems(count)));
                }
            }
            Ok(())
        }
    }

    fn check_path(&self, store: &StoreReader, narinfo: &NarInfo) -> Result<(), BenchError> {
        let path = &narinfo.info.path;
        let shown = self.store_dir.full_path(path);
        let info = store
            .path_info(path)
            .map_err(|error| BenchError::Result(error.to_string()))?;
        let Some(info) = info else {
            return Err(BenchError::Result(messages::not_valid(&shown)));
        };
        if (info.nar_hash, info.nar_size) != (narinfo.info.nar_hash, narinfo.info.nar_size) {
            return Err(BenchError::Result(messages::other_nar(&shown)));
        }
        if std::fs::symlink_metadata(store.real_path(path)).is_err() {
            return Err(BenchError::Result(messages::not_on_file_system(&shown)));
        }
        Ok(())
    }
}
