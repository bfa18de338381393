//! The closure to copy, and the check of a copied store.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use anyhow::{anyhow, bail, ensure};
use floe_bench::BenchError;
use floe_cache::Network;
use floe_config::StoreChoice;
use floe_copy::{SourceOrder, Sources};
use floe_format::{NarInfo, StoreDir, StorePath};
use floe_store::{StoreLayout, StoreReader};
use floe_transfer::{Cancel, ClosureLimit, Events, PathSpec, Session};

use crate::options;
use crate::store_choice::warn_of_ignored;

/// The closure to copy, as its source describes it.
#[derive(Debug)]
pub(crate) struct Closure {
    pub(crate) narinfos: BTreeMap<StorePath, NarInfo>,
    /// The requested paths in full.
    pub(crate) roots: Vec<String>,
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
        let store_config = StoreChoice::Uri(from).resolve(&environment.uri_context(None)?)?;
        warn_of_ignored(store_config.facts().ignored_parameters);
        let session = Session::new(cancel.clone(), Events::default())
            .with_options::<Network>(environment.network_options());
        let sources = Sources::open(&[store_config], SourceOrder::AsListed, &session)?;
        let source = sources.list.first();
        let source = source.ok_or_else(|| anyhow!("cannot open the source {from}"))?;
        let store_dir = source.store_dir().clone();
        let roots = paths.iter().map(|text| PathSpec::parse(text, &store_dir));
        let roots = roots.collect::<Result<Vec<_>, _>>()?;
        let narinfos = source
            .query_closure(&roots, true, (ClosureLimit::default(), cancel))?
            .complete()?;
        let is_root = |path: &&StorePath| roots.iter().any(|root| root.matches(path));
        let found = narinfos.keys().filter(is_root);
        Ok(Closure {
            roots: found.map(|path| store_dir.full_path(path)).collect(),
            narinfos,
            is_cached: source.facts().has_nar_files,
            store_dir,
        })
    }

    pub(crate) fn nar_bytes(&self) -> u64 {
        let sizes = self.narinfos.values().map(|narinfo| narinfo.info.nar_size);
        sizes.fold(0, u64::saturating_add)
    }

    /// Returns the compressions of its files, such as "zstd"; `None` if the source is a store.
    pub(crate) fn compressions(&self) -> Option<String> {
        let narinfos = self.narinfos.values();
        let names: BTreeSet<&str> = narinfos.map(|it| it.compression.name()).collect();
        let names = Vec::from_iter(names);
        self.is_cached.then(|| names.join(" and "))
    }

    /// Returns a check of the store below a directory: all paths of the closure are valid, have the
    /// right NAR hash, and are on disk. The first call also hashes their contents.
    pub(crate) fn check(&self, root: PathBuf) -> impl Fn() -> Result<(), BenchError> + '_ {
        let has_hashed = Cell::new(false);
        move || {
            let layout = StoreLayout::in_root(&root, self.store_dir.clone());
            let checked = self.check_store(layout, &has_hashed);
            checked.map_err(|error| BenchError::Result(error.to_string()))
        }
    }

    fn check_store(&self, layout: StoreLayout, has_hashed: &Cell<bool>) -> anyhow::Result<()> {
        let store = StoreReader::open(layout)?;
        for NarInfo { info: expected, .. } in self.narinfos.values() {
            let path = &expected.path;
            let shown = self.store_dir.full_path(path);
            let Some(info) = store.path_info(path)? else {
                bail!("{shown} is not valid");
            };
            if (info.nar_hash, info.nar_size) != (expected.nar_hash, expected.nar_size) {
                bail!("{shown} has another NAR hash or size");
            }
            if std::fs::symlink_metadata(store.real_path(path)).is_err() {
                bail!("{shown} is not on disk");
            }
        }
        if !has_hashed.replace(true) {
            let problems = store.verify(&[], None, &())?.problems.len();
            ensure!(problems == 0, "floe verify finds {problems} problems in it");
        }
        Ok(())
    }
}
