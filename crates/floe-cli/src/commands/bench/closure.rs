//! What is copied, and whether a store has it.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use floe_bench::BenchError;
use floe_config::parse_store_uri;
use floe_engine::{Cancel, PathSpec, SourceOrder, Sources};
use floe_format::{NarInfo, StoreDir, StorePath};
use floe_store::{StoreLayout, StoreReader};

use crate::options;

/// The closure of what is copied, as its source describes it.
#[derive(Debug)]
pub(crate) struct Closure {
    narinfos: BTreeMap<StorePath, NarInfo>,
    roots: Vec<String>,
    store_dir: StoreDir,
    /// Whether it comes from a binary cache, whose files are compressed.
    is_cached: bool,
}

impl Closure {
    /// Asks the source for the closures of some paths.
    ///
    /// Errors: those of the source; a path that it does not have.
    pub(crate) fn query(from: &str, paths: &[String], cancel: &Cancel) -> anyhow::Result<Closure> {
        let environment = options::environment();
        let location = parse_store_uri(from, None, &environment)?;
        let sources = Sources::open(
            &[location],
            SourceOrder::AsListed,
            &environment.network_options(),
            cancel,
        )?;
        let source = sources.iter().next();
        let source = source.ok_or_else(|| anyhow::anyhow!("{from} could not be opened"))?;
        let store_dir = source.store_dir().clone();
        let roots: Result<Vec<PathSpec>, _> = paths
            .iter()
            .map(|text| PathSpec::parse(text, &store_dir))
            .collect();
        let roots = roots?;
        let narinfos = source.query_closure(&roots, true, cancel)?;
        let is_root = |path: &&StorePath| {
            roots.iter().any(|root| match root {
                PathSpec::Path(wanted) => wanted == *path,
                PathSpec::HashPart(part) => part == path.hash_part(),
            })
        };
        let found = narinfos.keys().filter(is_root);
        Ok(Closure {
            roots: found.map(|path| store_dir.full_path(path)).collect(),
            narinfos,
            is_cached: source.has_nar_files(),
            store_dir,
        })
    }

    /// The paths that were asked for, in full.
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

    /// The compressions of its files, such as "zstd"; `None` where they are not in files.
    pub(crate) fn compressions(&self) -> Option<String> {
        let names: BTreeSet<&str> = self
            .narinfos
            .values()
            .map(|narinfo| narinfo.compression.name())
            .collect();
        let names: Vec<&str> = names.into_iter().collect();
        self.is_cached.then(|| names.join(" and "))
    }

    /// A check of the store below a directory: every path of the closure is valid, with the right
    /// hash, and on disk. The first time, the contents are hashed as well.
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
                    return Err(wrong(format!("floe verify finds {count} faults in it")));
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
            return Err(BenchError::Result(format!("{shown} is not valid")));
        };
        if (info.nar_hash, info.nar_size) != (narinfo.info.nar_hash, narinfo.info.nar_size) {
            return Err(BenchError::Result(format!(
                "{shown} has another NAR hash or size"
            )));
        }
        if std::fs::symlink_metadata(store.real_path(path)).is_err() {
            return Err(BenchError::Result(format!("{shown} is not on disk")));
        }
        Ok(())
    }
}
