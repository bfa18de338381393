//! Mounts a store at the store directory that its paths name.

use std::env;
use std::path::Path;

use anyhow::{Error, Result, anyhow};
use floe_store::StoreLayout;
use rustix::io::Errno;

use super::clone_mount::{clone_mount, move_to};
use super::root_tree::RootTree;
use super::user_namespace::{self, INSTEAD};
use crate::display::warn;

/// Mounts the directory `place` at `store_dir`, for this process and those that it starts.
///
/// Errors: the system refuses namespaces or mounts.
pub(super) fn mount_store(place: &Path, store_dir: &Path) -> Result<()> {
    user_namespace::enter()?;
    let store = clone_mount(place).map_err(|error| no_mount(place, error))?;
    let mounted = if store_dir.is_dir() {
        move_to(&store, store_dir)
    } else {
        RootTree::with_directory(store_dir).and_then(|tree| tree.enter(store_dir, &store))
    };
    mounted.map_err(|error| no_mount(store_dir, error))
}

fn no_mount(place: &Path, error: Errno) -> Error {
    let place = place.display();
    let fix = match error {
        Errno::NOSYS => "floe run needs Linux 5.2 or newer",
        _ => INSTEAD,
    };
    anyhow!("cannot mount the store: {place}: {error}; {fix}")
}

/// Warns if the mounted store hides files that the program may expect.
pub(super) fn warn_of_hidden_files(layout: &StoreLayout, directory: Option<&Path>) {
    let store_dir = Path::new(layout.store_dir.as_str());
    if !store_dir.is_dir() {
        return;
    }
    let path = env::var_os("PATH").unwrap_or_default();
    let in_path = env::split_paths(&path).find(|directory| directory.starts_with(store_dir));
    let hidden = directory.filter(|directory| directory.starts_with(store_dir));
    let (place, store_dir) = (layout.real_store_dir.display(), &layout.store_dir);
    if let Some(directory) = in_path {
        warn(format_args!(
            "the program sees the store in {place} as {store_dir} and not the one of the system, \
             which PATH names ({})",
            directory.display()
        ));
    }
    if let Some(directory) = hidden {
        warn(format_args!(
            "the program sees the store in {place} as {store_dir}, and the working directory {} is \
             the one there",
            directory.display()
        ));
    }
}
