//! The directories of a store: the store directory that paths name, the directory that holds the
//! files, and the state directory.
//!
//! The rules are Nix's. With a root directory, the files are in `ROOT/nix/store` and the state is
//! in `ROOT/nix/var/nix`, whatever store directory the paths name. Without one, the files are at
//! the places that the paths name.

use std::path::{Path, PathBuf};

use floe_format::{StoreDir, StorePath};

/// The directories of one store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreLayout {
    /// The store directory that store paths name, such as `/nix/store`.
    pub store_dir: StoreDir,
    /// The directory that holds the files.
    pub real_store_dir: PathBuf,
    /// The directory of database, GC roots and locks, such as `/nix/var/nix`.
    pub state_dir: PathBuf,
}

impl StoreLayout {
    /// The layout of the system's store: `/nix/store` with `/nix/var/nix`.
    pub fn system() -> StoreLayout {
        StoreLayout::without_root(StoreDir::default())
    }

    /// The layout of a store below another root directory.
    pub fn in_root(root: &Path, store_dir: StoreDir) -> StoreLayout {
        StoreLayout {
            store_dir,
            real_store_dir: root.join("nix/store"),
            state_dir: root.join("nix/var/nix"),
        }
    }

    /// The layout of a store whose files are in its store directory. The state directory is
    /// `var/nix` beside that directory, as `/nix/var/nix` is for `/nix/store`.
    pub fn without_root(store_dir: StoreDir) -> StoreLayout {
        let real_store_dir = PathBuf::from(store_dir.as_str());
        let prefix = real_store_dir.parent().unwrap_or(Path::new("/"));
        StoreLayout {
            state_dir: prefix.join("var/nix"),
            real_store_dir,
            store_dir,
        }
    }

    /// The store that Nix selects by default (its `auto`): the store of the system, or, for a user
    /// on a machine without Nix, a store below `data_home` (`$XDG_DATA_HOME`, commonly
    /// `~/.local/share`).
    pub fn auto(data_home: Option<&Path>) -> StoreLayout {
        let system = StoreLayout::system();
        match data_home {
            Some(home) if !system.state_dir.exists() && !rustix::process::geteuid().is_root() => {
                StoreLayout::in_root(&home.join("nix/root"), StoreDir::default())
            }
            _ => system,
        }
    }

    /// The directory that holds the files, if it is another one than the store directory.
    pub fn place_elsewhere(&self) -> Option<&Path> {
        let is_elsewhere = self.real_store_dir.as_os_str() != self.store_dir.as_str();
        is_elsewhere.then_some(&*self.real_store_dir)
    }

    /// The place of a path on disk.
    pub fn real_path(&self, path: &StorePath) -> PathBuf {
        self.real_store_dir.join(path.as_str())
    }

    /// The directory of the database.
    pub fn database_dir(&self) -> PathBuf {
        self.state_dir.join("db")
    }

    /// The directory of temporary roots files.
    pub(crate) fn temp_roots_dir(&self) -> PathBuf {
        self.state_dir.join("temproots")
    }

    /// The lock that every writer of the store holds shared.
    pub(crate) fn big_lock(&self) -> PathBuf {
        self.database_dir().join("big-lock")
    }

    /// The directory of the build logs of this store.
    pub fn log_dir(&self) -> PathBuf {
        let prefix = self.real_store_dir.parent().unwrap_or(Path::new("/"));
        prefix.join("var/log/nix")
    }

    /// The directory of the links that `nix-store --optimise` makes.
    pub fn links_dir(&self) -> PathBuf {
        self.real_store_dir.join(".links")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layout_in_root_moves_files_and_keeps_store_dir() {
        let layout = StoreLayout::in_root(Path::new("/mnt"), StoreDir::default());
        assert_eq!(layout.store_dir.as_str(), "/nix/store");
        assert_eq!(layout.real_store_dir, Path::new("/mnt/nix/store"));
        assert_eq!(layout.state_dir, Path::new("/mnt/nix/var/nix"));
    }

    #[test]
    fn layout_of_custom_store_dir_has_state_beside_it() {
        let store_dir = StoreDir::new("/tmp/glitch/store").expect("a plain absolute path");
        let layout = StoreLayout::without_root(store_dir);
        assert_eq!(layout.real_store_dir, Path::new("/tmp/glitch/store"));
        assert_eq!(layout.state_dir, Path::new("/tmp/glitch/var/nix"));
        assert_eq!(StoreLayout::system().state_dir, Path::new("/nix/var/nix"));
    }
}
