//! Locked names: their NAR hashes in caches and in a store.

use std::collections::BTreeMap;

use anyhow::bail;
use floe_format::StorePath;
use floe_names::{Access as _, LockFile, LockedName, NameError, NameSpec, ResolvedName};
use floe_store::{StoreError, StoreLayout, StoreReader};

use super::PackageNames;
use super::fetcher::Fetcher;
use super::outcome::print_name;

impl PackageNames<'_> {
    /// Resolves names, and queries the caches for their NAR hashes.
    ///
    /// Errors: a name or its path is not found; no trusted key has signed a path.
    pub(crate) fn lock(&mut self, specs: &[NameSpec]) -> anyhow::Result<LockFile> {
        let resolved = self.ask(specs)?;
        let paths: Vec<StorePath> = resolved.iter().map(|name| name.path.clone()).collect();
        let narinfos = Fetcher::new(self).narinfos(&paths)?;
        let dir = &self.options.store_dir;
        let mut names = BTreeMap::new();
        for (name, narinfo) in resolved.into_iter().zip(narinfos) {
            let path = dir.full_path(&name.path);
            let Some(narinfo) = narinfo.filter(|narinfo| narinfo.info.path == name.path) else {
                bail!("cannot lock {}: no cache has {path}", name.name);
            };
            let info = &narinfo.info;
            let is_trusted = info.is_signed_by(dir, &self.options.pins.keys)
                || info.ca.is_some() && info.matches_content_address(dir) == Some(true);
            if !is_trusted {
                bail!(NameError::Untrusted {
                    name: name.name.to_string(),
                    source_name: name.source,
                    reason: format!("no trusted key has signed {path}"),
                });
            }
            print_name(&name, dir);
            let locked = LockedName {
                path,
                nar_hash: info.nar_hash.to_sri(),
                source: name.source,
                resolved_at: name.resolved_at,
            };
            names.insert(name.name.to_string(), locked);
        }
        Ok(LockFile::new(names))
    }

    /// Checks that the valid paths among locked names have the NAR hashes of the lock file.
    pub(super) fn check_locked(
        &self,
        layout: &StoreLayout,
        names: &[ResolvedName],
    ) -> anyhow::Result<()> {
        let mut locked = names
            .iter()
            .filter_map(|name| Some((name, name.nar_hash?)))
            .peekable();
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
                bail!(NameError::Untrusted {
                    name: name.name.to_string(),
                    source_name: name.source.clone(),
                    reason: format!(
                        "its NAR hash is {}, and the valid path {} has {}",
                        hash.to_sri(),
                        layout.store_dir.full_path(&name.path),
                        info.nar_hash.to_sri()
                    ),
                });
            }
        }
        Ok(())
    }
}
