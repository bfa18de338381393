//! Where a store's parts are: the store directory that paths name, the directory that holds
//! them, and the state directory.
//!
//! The rules are Nix's: with a root, the files lie in `ROOT/nix/store` and the state in
//! `ROOT/nix/var/nix`, whatever store directory the paths name; without one, the files lie
//! where the paths say.

use std::path::{Path, PathBuf};

use floe_format::{StoreDir, StorePath};

/// The places of one store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The store directory that store paths name, such as `/nix/store`.
    pub store_dir: StoreDir,
    /// The directory in which the paths lie.
    pub real_store: PathBuf,
    /// The directory of database, roots and locks, such as `/nix/var/nix`.
    pub state: PathBuf,
}

impl Layout {
    /// `/nix/store` with `/nix/var/nix`.
    pub fn system() -> Layout {
        Layout::without_root(StoreDir::default())
    }

    /// A store below another root directory.
    pub fn in_root(root: &Path, store_dir: StoreDir) -> Layout {
        Layout {
            store_dir,
            real_store: root.join("nix/store"),
            state: root.join("nix/var/nix"),
        }
    }

    /// A store whose paths lie where their names say. The state directory stands to it as
    /// `/nix/var/nix` stands to `/nix/store`.
    pub fn without_root(store_dir: StoreDir) -> Layout {
        let real_store = PathBuf::from(store_dir.as_str());
        let prefix = real_store.parent().unwrap_or(Path::new("/"));
        Layout {
            state: prefix.join("var/nix"),
            real_store,
            store_dir,
        }
    }

    /// The store that Nix would choose by itself (its `auto`): the system's, or, for a user on a
    /// machine without Nix, one below `data_home` (`$XDG_DATA_HOME`, commonly `~/.local/share`).
    pub fn auto(data_home: Option<&Path>) -> Layout {
        let system = Layout::system();
        match data_home {
            Some(home) if !system.state.exists() && !rustix::process::geteuid().is_root() => {
                Layout::in_root(&home.join("nix/root"), StoreDir::default())
            }
            _ => system,
        }
    }

    /// Where a path lies on disk.
    pub fn real_path(&self, path: &StorePath) -> PathBuf {
        self.real_store.join(path.as_str())
    }

    /// The directory of the database.
    pub fn database_dir(&self) -> PathBuf {
        self.state.join("db")
    }

    /// The directory of the build logs that belong to the store by its place.
    pub fn log_dir(&self) -> PathBuf {
        let prefix = self.real_store.parent().unwrap_or(Path::new("/"));
        prefix.join("var/log/nix")
    }

    /// The directory of the links that `nix-store --optimise` makes.
    pub fn links_dir(&self) -> PathBuf {
        self.real_store.join(".links")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_root_moves_the_files_and_keeps_the_names() {
        let layout = Layout::in_root(Path::new("/mnt"), StoreDir::default());
        assert_eq!(layout.store_dir.as_str(), "/nix/store");
        assert_eq!(layout.real_store, Path::new("/mnt/nix/store"));
        assert_eq!(layout.state, Path::new("/mnt/nix/var/nix"));
    }

    #[test]
    fn another_store_directory_has_its_state_beside_it() {
        let store_dir = StoreDir::new("/tmp/glitch/store").expect("a plain absolute path");
        let layout = Layout::without_root(store_dir);
        assert_eq!(layout.real_store, Path::new("/tmp/glitch/store"));
        assert_eq!(layout.state, Path::new("/tmp/glitch/var/nix"));
        assert_eq!(Layout::system().state, Path::new("/nix/var/nix"));
    }
}
