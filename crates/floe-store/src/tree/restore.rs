//! Unpacks a NAR at a place outside of the store, as `nix-store --restore` does (`restorePath`).

use std::ffi::OsStr;
use std::fs;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::path::Path;

use floe_format::StorePath;
use floe_format::nar::read::NarReader;
use rustix::fs::{CWD, Mode, OFlags, RenameFlags, openat, renameat_with};
use rustix::io::Errno;

use super::dump::CHUNK_LEN;
use super::temporary_tree::TemporaryTree;
use super::unpack::TreeBuilder;
use crate::error::{IoContext as _, StoreError};

/// Unpacks a NAR at `place`, where nothing may exist. The files get the modes and times of new
/// files of the user. The tree gets its name at the end of the NAR, so that a damaged NAR leaves
/// nothing.
///
/// Errors: those of the system, of `nar` and of a NAR that Nix would refuse.
pub fn restore_path(place: &Path, nar: &mut dyn Read) -> Result<(), StoreError> {
    if fs::symlink_metadata(place).is_ok() {
        return Err(Errno::EXIST).io_context("create", place);
    }
    let mut builder = builder_beside(place)?;
    unpack(&mut builder, nar, place)?;
    let mut tree = builder.tree;
    rename_new(tree.location(), place).io_context("create", place)?;
    tree.exists = false;
    Ok(())
}

/// Makes a builder for a tree under a temporary name in the directory of `place`.
fn builder_beside(place: &Path) -> Result<TreeBuilder, StoreError> {
    let parent = match place.parent() {
        Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
        Some(parent) => parent,
        None => return Err(Errno::EXIST).io_context("create", place),
    };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory: OwnedFd =
        openat(CWD, parent, flags, Mode::empty()).io_context("open the directory", parent)?;
    // A long name may leave no room for an addition.
    let name = format!(".floe-restored-{}", std::process::id());
    let location = parent.join(OsStr::new(&name));
    let path = StorePath::parse(UNKNOWN).map_err(io::Error::other);
    let tree = TemporaryTree {
        location,
        name,
        path: path.io_context("create", place)?,
        exists: false,
        links: None,
    };
    Ok(TreeBuilder::outside_store(directory, tree))
}

fn unpack(builder: &mut TreeBuilder, nar: &mut dyn Read, place: &Path) -> Result<(), StoreError> {
    let damaged = |source| StoreError::RestoredNar {
        place: place.into(),
        source,
    };
    let (mut reader, mut chunk) = (NarReader::new(), vec![0; CHUNK_LEN]);
    while !reader.is_finished() {
        let len = match nar.read(&mut chunk) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            read => read.io_context("read the NAR of", place)?,
        };
        let mut bytes = &chunk[..len];
        while !reader.is_finished()
            && let Some(event) = reader.next(&mut bytes).map_err(damaged)?
        {
            builder.apply(event)?;
        }
        if len == 0 {
            break;
        }
    }
    reader.finish().map_err(damaged)
}

/// Renames a tree to a name that nothing may have.
fn rename_new(from: &Path, to: &Path) -> io::Result<()> {
    match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        // Some file systems do not support `RENAME_NOREPLACE`.
        Err(Errno::INVAL | Errno::NOSYS) => match fs::symlink_metadata(to) {
            Ok(_) => Err(Errno::EXIST.into()),
            Err(_) => fs::rename(from, to),
        },
        renamed => Ok(renamed?),
    }
}

/// A tree outside of the store has no store path.
const UNKNOWN: &str = "00000000000000000000000000000000-restored";

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::tree::dump_path;

    fn nar_of(path: &Path) -> Vec<u8> {
        let mut nar = Vec::new();
        dump_path(path, &mut |chunk| {
            nar.extend_from_slice(chunk);
            Ok::<_, StoreError>(())
        })
        .unwrap();
        nar
    }

    fn names(directory: &Path) -> Vec<String> {
        let entries = fs::read_dir(directory).unwrap();
        let mut names: Vec<String> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn restored_tree_has_the_nar_of_the_original() {
        let scratch = tempfile::tempdir().unwrap();
        let original = scratch.path().join("original");
        fs::create_dir_all(original.join("inner")).unwrap();
        fs::write(original.join("inner/program"), "#!").unwrap();
        let mode = fs::Permissions::from_mode(0o755);
        fs::set_permissions(original.join("inner/program"), mode).unwrap();
        std::os::unix::fs::symlink("inner", original.join("link")).unwrap();
        let mut nar = nar_of(&original);
        let copy = scratch.path().join("copy");
        let whole = nar.clone();
        // Nix reads nothing after the NAR.
        nar.extend_from_slice(b"more");
        restore_path(&copy, &mut &*nar).unwrap();
        assert_eq!(nar_of(&copy), whole);
        // The user may change what was restored.
        fs::write(copy.join("inner/other"), "").unwrap();
        let mode = fs::metadata(copy.join("inner/program"))
            .unwrap()
            .permissions();
        assert_eq!(mode.mode() & 0o700, 0o700);
        let error = restore_path(&copy, &mut &*nar).unwrap_err().to_string();
        assert!(error.contains("File exists"), "{error}");
        assert_eq!(names(scratch.path()), ["copy", "original"]);
    }

    #[test]
    fn damaged_nar_leaves_nothing() {
        let scratch = tempfile::tempdir().unwrap();
        let original = scratch.path().join("original");
        fs::create_dir(&original).unwrap();
        fs::write(original.join("file"), "contents").unwrap();
        let nar = nar_of(&original);
        let copy = scratch.path().join("copy");
        for len in 0..nar.len() {
            let error = restore_path(&copy, &mut &nar[..len]).unwrap_err();
            assert!(error.to_string().contains("cannot unpack"), "{error}");
            assert_eq!(names(scratch.path()), ["original"], "{len} bytes");
        }
        let absent = scratch.path().join("absent/copy");
        assert!(restore_path(&absent, &mut &*nar).is_err());
    }
}
