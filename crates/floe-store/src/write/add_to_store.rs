//! Adds trees from outside a store as content-addressed paths.

use std::collections::BTreeSet;
use std::path::Path;

use floe_format::content_address::{ContentAddress, ContentAddressMethod};
use floe_format::{Hash, PathInfo, StorePath};
use floe_hash::Sha256;

use super::register::StagedPath;
use super::writer::StoreWriter;
use crate::error::StoreError;
use crate::tree::dump_path;

impl StoreWriter {
    /// Adds the tree at `source` under `name`, as `nix-store --add` does, but with references. The
    /// caller states the references, which must be valid. The store path follows from contents,
    /// name and references. If the path is valid already, nothing is written.
    ///
    /// Errors: [`StoreError::ContentAddress`] if store paths may not have the name,
    /// [`StoreError::MissingReferences`], [`StoreError::FileChanged`] if the tree changes
    /// meanwhile, and those of the system.
    pub fn add_to_store(
        &self,
        source: &Path,
        name: &str,
        references: BTreeSet<StorePath>,
    ) -> Result<PathInfo, StoreError> {
        let mut hasher = Sha256::new();
        let mut nar_size = 0;
        dump_path(source, &mut |chunk| {
            hasher.update(chunk);
            nar_size += chunk.len() as u64;
            Ok::<_, StoreError>(())
        })?;
        let nar_hash = Hash::sha256(hasher.finish());
        let ca = ContentAddress {
            method: ContentAddressMethod::NixArchive,
            hash: nar_hash,
        };
        let path = ca.store_path(&self.layout().store_dir, name, &references, false);
        let path = path.map_err(|error| StoreError::ContentAddress {
            path: source.to_path_buf(),
            source: error,
        })?;
        self.add_temp_roots([&path].into_iter().chain(&references))?;
        if let Some(info) = self.path_info(&path)? {
            return Ok(info);
        }
        let info = PathInfo {
            path: path.clone(),
            nar_hash,
            nar_size,
            references,
            deriver: None,
            signatures: BTreeSet::new(),
            ca: Some(ca),
            registration_time: None,
            ultimate: false,
        };
        self.write_tree(source, &info)?;
        Ok(info)
    }

    /// Copies a tree to the place of a path, and registers the path.
    pub(super) fn write_tree(&self, source: &Path, info: &PathInfo) -> Result<(), StoreError> {
        let mut hasher = Sha256::new();
        let mut writer = self.tree_writer(&info.path);
        dump_path(source, &mut |chunk| {
            hasher.update(chunk);
            writer.write(chunk)
        })?;
        if Hash::sha256(hasher.finish()) != info.nar_hash {
            return Err(StoreError::FileChanged(source.to_path_buf()));
        }
        let mut batch = vec![StagedPath {
            info: info.clone(),
            tree: writer.finish()?,
        }];
        loop {
            let mut outcome = self.register(batch)?;
            if let Some((_, error)) = outcome.refused.pop() {
                return Err(error);
            }
            if let Some((staged, missing)) = outcome.missing_references.pop() {
                let path = staged.info.path;
                return Err(StoreError::MissingReferences { path, missing });
            }
            if outcome.busy.is_empty() {
                return Ok(());
            }
            batch = outcome.busy;
            std::thread::sleep(BUSY_POLL);
        }
    }
}

/// Long beside a registration, short enough that a user does not notice it.
const BUSY_POLL: std::time::Duration = std::time::Duration::from_millis(50);
