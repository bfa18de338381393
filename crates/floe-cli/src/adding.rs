//! Files and trees of this machine that a command adds to a store or cache.

use std::sync::Arc;

use floe_copy::{AddedFiles, CopyRequest, FileToAdd, RequestedPaths};
use floe_format::{StoreDir, StorePath};
use floe_store::WriteOptions;
use floe_transfer::{Cancel, Error, Events, Session, StoreConfig, TargetContext};

use crate::options::Settings;

/// Reads files and returns the request that adds them, with their paths in the order of the files.
///
/// Errors: those of [`AddedFiles::read`], and of the target, whose store directory decides about
/// the paths.
pub(crate) fn request(
    settings: &Settings,
    target: Arc<dyn StoreConfig>,
    files: &[FileToAdd],
) -> Result<(CopyRequest, Vec<StorePath>), Error> {
    let cancel = Cancel::default();
    let dir = store_dir(settings, &*target, &cancel)?;
    let added = AddedFiles::read(files, dir, &cancel)?;
    let paths: Vec<StorePath> = added.paths().cloned().collect();
    let named = paths.iter().map(ToString::to_string).collect();
    let named = RequestedPaths::Named(named);
    let request = CopyRequest::new(vec![Arc::new(added)], target, named);
    Ok((request, paths))
}

/// Returns the store directory of a target. A cache has written down which one it is for.
fn store_dir(
    settings: &Settings,
    target: &dyn StoreConfig,
    cancel: &Cancel,
) -> Result<StoreDir, Error> {
    let facts = target.facts();
    if let Some(layout) = facts.layout.or(facts.root_layout) {
        return Ok(layout.store_dir.clone());
    }
    let session = Session::new(cancel.clone(), Events::default())
        .with_options::<floe_cache::Network>(settings.network(false));
    let opened = target.open_target(&TargetContext {
        session: &session,
        store_dir: settings.context.store_dir.clone(),
        write: &WriteOptions::default(),
        dry_run: true,
        substitutes: false,
        build_logs: None,
    })?;
    Ok(opened.target.store_dir().clone())
}
