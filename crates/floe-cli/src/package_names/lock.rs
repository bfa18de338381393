//! Locked names: their NAR hashes in caches and in a store.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use anyhow::{anyhow, bail};
use floe_cache::Network;
use floe_copy::{SourceOrder, Sources};
use floe_format::{Hash, NarInfo, PathInfo, StoreDir, StorePath, TrustedKeys};
use floe_names::{
    LockFile, LockedName, NameError, NameSourceUri, NameSpec, ResolvedName, machine_system,
};
use floe_store::{StoreError, StoreLayout, StoreReader};
use floe_transfer::{Cancel, Events, PathSpec, Session, Source, StoreConfig};

use super::PackageNames;
use super::fetcher::Fetcher;
use super::outcome::print_name;
use crate::exit::UsageError;
use crate::options::Settings;

impl PackageNames<'_> {
    /// Resolves names, and queries the caches for their NAR hashes.
    ///
    /// Errors: a name or its path is not found; no trusted key has signed a path.
    pub(crate) fn lock(&mut self, specs: &[NameSpec]) -> anyhow::Result<LockFile> {
        let specs = specs.iter().map(|spec| self.with_source(spec.clone()));
        let resolved = self.ask(&specs.collect::<Vec<_>>())?;
        let system = self.system_of(&resolved)?;
        let old = self.lock_file().map(LockFile::read).transpose();
        let old = old.map_err(|reason| anyhow!("cannot read the lock file: {reason}"))?;
        let paths: Vec<StorePath> = resolved.iter().map(|name| name.path.clone()).collect();
        let dir = &self.options.store_dir;
        let untrusted = RefCell::new(HashSet::new());
        // Another cache may have a path with a signature.
        let accepts = |narinfo: &NarInfo| {
            let is_trusted = is_trusted(&narinfo.info, dir, &self.options.pins.keys);
            if !is_trusted {
                untrusted.borrow_mut().insert(narinfo.info.path.clone());
            }
            is_trusted
        };
        let narinfos = Fetcher::new(self).query_narinfos(&paths, &accepts)?;
        let mut names = BTreeMap::new();
        for (name, narinfo) in resolved.into_iter().zip(narinfos) {
            let path = dir.full_path(&name.path);
            let Some(narinfo) = narinfo.filter(|narinfo| narinfo.info.path == name.path) else {
                if untrusted.borrow().contains(&name.path) {
                    bail!(untrusted_name(
                        &name,
                        format!("no trusted key has signed {path}")
                    ));
                }
                bail!("cannot lock {}: no cache has {path}", name.name);
            };
            let nar_hash = narinfo.info.nar_hash;
            if let Some(old) = name.nar_hash.filter(|old| *old != nar_hash) {
                let [old, new] = [old, nar_hash].map(|hash| hash.to_sri());
                bail!(untrusted_name(
                    &name,
                    format!("its NAR hash is {old}, and the cache has {new} for {path}")
                ));
            }
            print_name(&name, dir);
            let old = old.as_ref().filter(|_| name.nar_hash.is_some());
            // It comes from this source, however often it is locked.
            let (source, resolved_at) = match old.and_then(|old| old.find(&name.name)) {
                Some(old) => (old.source.clone(), old.resolved_at),
                None => (name.source, name.resolved_at),
            };
            let locked = LockedName {
                path,
                nar_hash: nar_hash.to_sri(),
                source,
                resolved_at,
            };
            names.insert(name.name.to_string(), locked);
        }
        Ok(LockFile::new(system, names))
    }

    /// Returns the system of the paths of names: that of the Hydra, or else of this machine.
    ///
    /// Errors: the names come from sources of several systems.
    fn system_of(&self, names: &[ResolvedName]) -> anyhow::Result<String> {
        let of_source = |name: &ResolvedName| {
            let mut sources = self.sources.iter();
            match &sources.find(|it| it.uri.to_string() == name.source)?.uri {
                NameSourceUri::Hydra(uri) => Some(uri.system()),
                NameSourceUri::Lock(_) | NameSourceUri::List(_) => Some(machine_system()),
                NameSourceUri::File(_) | NameSourceUri::Pins(_) => None,
            }
        };
        let systems: BTreeSet<String> = names.iter().filter_map(of_source).collect();
        let systems: Vec<String> = systems.into_iter().collect();
        match &*systems {
            [] => Ok(machine_system()),
            [system] => Ok(system.clone()),
            systems => bail!(UsageError(format!(
                "cannot lock names of several systems in one file: {}",
                systems.join(" and ")
            ))),
        }
    }
}

/// Checks that the paths among locked names that a target of a copy has are those of the lock file.
/// A cache only passes its paths on.
pub(crate) fn check_target(
    target: &Arc<dyn StoreConfig>,
    names: &[ResolvedName],
    settings: &Settings,
) -> anyhow::Result<()> {
    if let Some(layout) = target.layout() {
        return check_valid_paths(layout, names);
    }
    if locked(names).next().is_none() {
        return Ok(());
    }
    let session = Session::new(Cancel::default(), Events::default())
        .with_options::<Network>(settings.network(false));
    if target.open_objects(&session)?.is_some() {
        return Ok(());
    }
    let sources = Sources::open(
        std::slice::from_ref(target),
        SourceOrder::AsListed,
        &session,
    )?;
    let mut sources = sources.list.iter();
    sources.try_for_each(|source| check_source(&**source, names, &session.cancel))
}

/// Checks that the paths among locked names that a store has are those of the lock file.
pub(crate) fn check_source(
    source: &dyn Source,
    names: &[ResolvedName],
    cancel: &Cancel,
) -> anyhow::Result<()> {
    for (name, hash) in locked(names) {
        let spec = PathSpec::Path(name.path.clone());
        let found = source.query_path_info(&spec, cancel)?;
        if let Some(found) = found.filter(|found| found.info.nar_hash != hash) {
            bail!(untrusted_name(
                name,
                format!(
                    "its NAR hash is {}, and {} has {} for {}",
                    hash.to_sri(),
                    source.name(),
                    found.info.nar_hash.to_sri(),
                    source.store_dir().full_path(&name.path)
                )
            ));
        }
    }
    Ok(())
}

/// Checks that the valid paths among locked names have the NAR hashes of the lock file.
pub(super) fn check_valid_paths(
    layout: &StoreLayout,
    names: &[ResolvedName],
) -> anyhow::Result<()> {
    let mut locked = locked(names).peekable();
    if locked.peek().is_none() {
        return Ok(());
    }
    let store = match StoreReader::open(layout.clone()) {
        Err(StoreError::NoStore { .. }) => return Ok(()),
        store => store?,
    };
    for (name, hash) in locked {
        let found = store.path_info(&name.path)?;
        if let Some(info) = found.filter(|info| info.nar_hash != hash) {
            bail!(untrusted_name(
                name,
                format!(
                    "its NAR hash is {}, and the valid path {} has {}",
                    hash.to_sri(),
                    layout.store_dir.full_path(&name.path),
                    info.nar_hash.to_sri()
                )
            ));
        }
    }
    Ok(())
}

/// Returns the names with NAR hashes.
fn locked(names: &[ResolvedName]) -> impl Iterator<Item = (&ResolvedName, Hash)> {
    let locked = names.iter();
    locked.filter_map(|name| Some((name, name.nar_hash?)))
}

fn is_trusted(info: &PathInfo, dir: &StoreDir, keys: &TrustedKeys) -> bool {
    info.is_signed_by(dir, keys)
        || info.ca.is_some() && info.matches_content_address(dir) == Some(true)
}

fn untrusted_name(name: &ResolvedName, reason: String) -> NameError {
    NameError::Untrusted {
        name: name.name.to_string(),
        source_name: name.source.clone(),
        reason,
    }
}
