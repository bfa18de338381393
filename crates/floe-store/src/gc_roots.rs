//! Permanent roots: links outside the store that keep paths from being collected.
//!
//! A root is a symbolic link that anybody may put anywhere and remove again. The store knows it by
//! a second link, `gcroots/auto/HASH`, which leads to the first and goes away with it. Both are as
//! Nix makes them (`addPermRoot`), so its collectors honour them and clean them up.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::symlink;
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use floe_format::{StorePath, nix32};
use floe_hash::{HashAlgorithm, Hasher};
use rustix::fs::{Access, access};

use crate::error::{IoContext, StoreError};
use crate::layout::StoreLayout;
use crate::writer::{StoreWriter, create_directory};

/// A place for a root, which was free when it was looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndirectGcRoot {
    path: PathBuf,
}

impl IndirectGcRoot {
    /// Looks whether a root may be made at `path`, and changes nothing.
    ///
    /// Errors: [`StoreError::RootInStore`]; [`StoreError::NotARoot`] for what is there and no link
    /// into the store; [`StoreError::CannotCreateRoot`] where this user can make no link.
    pub fn check(layout: &StoreLayout, path: &Path) -> Result<IndirectGcRoot, StoreError> {
        let link = IndirectGcRoot {
            path: absolute_path(path)?,
        };
        link.recheck(layout)?;
        check_can_create_link(&link.path)?;
        Ok(link)
    }

    /// The link's own place: absolute, without `.` and `..`.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn recheck(&self, layout: &StoreLayout) -> Result<(), StoreError> {
        let path = || self.path.clone();
        if is_in_store(layout, &self.path) || self.path.starts_with(&layout.real_store_dir) {
            return Err(StoreError::RootInStore { path: path() });
        }
        match fs::read_link(&self.path) {
            Ok(target) if is_in_store(layout, &target) => Ok(()),
            Ok(_) => Err(StoreError::NotARoot { path: path() }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            // It is there, and no link at all.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                Err(StoreError::NotARoot { path: path() })
            }
            Err(error) => Err(error).io_context("examining", &self.path),
        }
    }
}

impl StoreWriter {
    /// Makes `link` a symbolic link to a path, by the name that the path has in the store
    /// directory, and a root. What stood there before is replaced in one step.
    ///
    /// Errors: those of [`IndirectGcRoot::check`], since another process may have been faster, and
    /// errors of the system.
    pub fn add_gc_root(&self, link: &IndirectGcRoot, path: &StorePath) -> Result<(), StoreError> {
        // A collector that runs already has read the permanent roots and will not do so again.
        self.add_temp_roots([path].into_iter())?;
        link.recheck(self.layout())?;
        create_parent(&link.path)?;
        let target = PathBuf::from(self.layout().store_dir.full_path(path));
        replace_link(&target, &link.path)?;
        let auto = self.layout().state_dir.join("gcroots/auto");
        create_directory(&auto)?;
        replace_link(&link.path, &auto.join(auto_root_name(&link.path)))?;
        // One that began after the first time may have read the permanent roots before the link
        // was there, and would read the temporary ones when this process has ended.
        self.add_temp_roots([path].into_iter())
    }
}

/// The name by which Nix registers a link: the SHA-1 of its place.
fn auto_root_name(link: &Path) -> String {
    let mut hasher = Hasher::new(HashAlgorithm::Sha1);
    hasher.update(link.as_os_str().as_bytes());
    nix32::encode(&hasher.finish())
}

/// Whether a path is below the store directory, by its name alone.
pub(crate) fn is_in_store(layout: &StoreLayout, path: &Path) -> bool {
    path.strip_prefix(layout.store_dir.as_str())
        .is_ok_and(|rest| rest.components().next().is_some())
}

/// The path without `.` and `..`, which takes the name before it away, even where that is a
/// symbolic link: Nix's own way, without a look at the disk.
pub fn canon_path(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir => {
                plain.pop();
            }
            component => plain.push(component),
        }
    }
    plain
}

/// A path in Nix's own form. The hash of the result is the root's name, so it has to be the same.
pub(crate) fn absolute_path(path: &Path) -> Result<PathBuf, StoreError> {
    let path = std::path::absolute(path).io_context("resolving", path)?;
    Ok(canon_path(&path))
}

/// Whether a link can be made there at all is better known before a long download than after it.
pub(crate) fn check_can_create_link(link: &Path) -> Result<(), StoreError> {
    let existing = link.ancestors().skip(1).find(|path| path.exists());
    let Some(directory) = existing else {
        return Ok(());
    };
    let usable = match directory.is_dir() {
        true => access(directory, Access::WRITE_OK | Access::EXEC_OK).map_err(io::Error::from),
        false => Err(io::ErrorKind::NotADirectory.into()),
    };
    usable.map_err(|source| StoreError::CannotCreateRoot {
        path: link.to_path_buf(),
        directory: directory.to_path_buf(),
        source,
    })
}

/// Makes the directory of a link, with the modes that the user's umask leaves.
pub(crate) fn create_parent(link: &Path) -> Result<(), StoreError> {
    match link.parent() {
        Some(parent) => fs::create_dir_all(parent).io_context("creating the directory", parent),
        None => Ok(()),
    }
}

/// Puts a symbolic link in place, whatever was there.
pub(crate) fn replace_link(target: &Path, link: &Path) -> Result<(), StoreError> {
    let mut temporary = OsString::from(link);
    let number = SERIAL.fetch_add(1, Ordering::Relaxed);
    temporary.push(format!(".tmp-{}-{number}", std::process::id()));
    let temporary = PathBuf::from(temporary);
    // Whoever had this process number before is no more.
    let _: io::Result<()> = fs::remove_file(&temporary);
    symlink(target, &temporary).io_context("creating the link", &temporary)?;
    fs::rename(&temporary, link)
        .inspect_err(|_| {
            let _: io::Result<()> = fs::remove_file(&temporary);
        })
        .io_context("replacing the link", link)
}

/// Distinguishes the temporary names of one process.
static SERIAL: AtomicU64 = AtomicU64::new(0);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn auto_root_name_is_sha1_of_link_path() {
        // Reckoned by sha1sum; that Nix looks for that name is what the tests with it show.
        assert_eq!(auto_root_name(Path::new("/a/b")).len(), 32);
        let known = nix32::decode(&auto_root_name(Path::new("/a/b"))).unwrap();
        let known: String = known.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(known, "a51458f8d2c1fbd82e413e3ddd561e9462e8f61b");
    }

    #[test]
    fn absolute_path_removes_dots_lexically() {
        for (text, plain) in [("/a/./b//c/", "/a/b/c"), ("/a/../b", "/b"), ("/../a", "/a")] {
            assert_eq!(
                absolute_path(Path::new(text)).unwrap(),
                Path::new(plain),
                "{text}"
            );
        }
    }
}
