//! The generator of synthetic stores: rows, files and roots.
//!
//! [`StoreWriter`] creates the store, so that its schema is the one of real stores. The rows then
//! go into the database in one transaction, because registering paths one by one would take longer
//! than the benchmark.

pub(crate) mod shape;

use std::fs::{self, File};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use anyhow::{Context as _, Result};
use floe_format::nar::write;
use floe_format::{Hash, StoreDir};
use floe_store::{StoreLayout, StoreWriter};
use rusqlite::Connection;

use shape::Shape;

/// The paths that have files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Files {
    /// All paths.
    All,
    /// The closure of the first root; all other paths are rows only.
    FirstRoot,
}

/// Creates a store below `root`, which must not exist.
pub(crate) fn create(root: &Path, shape: Shape, files: Files) -> Result<()> {
    let layout = StoreLayout::in_root(root, StoreDir::default());
    let created = StoreWriter::open(layout.clone());
    drop(created.with_context(|| format!("cannot create a store in {}", root.display()))?);
    write_rows(&layout, shape).context("cannot write the rows")?;
    write_files(&layout, shape, files).context("cannot write the files")?;
    let roots = layout.state_dir.join("gcroots");
    for (at, number) in shape.root_numbers().enumerate() {
        symlink(full_path(number), roots.join(format!("scale-{at}")))
            .context("cannot create a root")?;
    }
    Ok(())
}

pub(crate) fn full_path(number: usize) -> String {
    format!("/nix/store/{}", shape::base_name(number))
}

fn write_rows(layout: &StoreLayout, shape: Shape) -> Result<()> {
    let mut database = Connection::open(layout.database_dir().join("db.sqlite"))?;
    database.execute_batch(&format!(
        "pragma synchronous = off; pragma foreign_keys = off; pragma cache_size = -{CACHE_KIB}"
    ))?;
    let transaction = database.transaction()?;
    {
        let mut path = transaction.prepare(
            "insert into ValidPaths (id, path, hash, registrationTime, narSize, deriver, sigs) \
             values (?1, ?2, ?3, ?4, ?5, ?2 || '.drv', ?6)",
        )?;
        let mut reference = transaction.prepare("insert into Refs values (?1, ?2)")?;
        for number in 0..shape.paths {
            let references = shape.references(number);
            let nar = nar(&shape::contents(&references));
            let hash = Hash::sha256(floe_hash::sha256(&nar)).to_base16();
            let signature = shape::signature(number);
            let text = full_path(number);
            path.execute((id(number), text, hash, TIME, nar.len() as i64, signature))?;
            for earlier in references {
                reference.execute((id(number), id(earlier)))?;
            }
        }
    }
    transaction.commit()?;
    database.query_row("pragma wal_checkpoint(truncate)", (), |_| Ok(()))?;
    Ok(())
}

fn id(number: usize) -> i64 {
    number as i64 + 1
}

fn write_files(layout: &StoreLayout, shape: Shape, files: Files) -> Result<()> {
    let mut write = |number: usize| {
        let directory = layout.real_store_dir.join(shape::base_name(number));
        write_tree(&directory, &shape::contents(&shape.references(number)))
            .with_context(|| format!("cannot write {}", directory.display()))
    };
    match files {
        Files::All => (0..shape.paths).try_for_each(&mut write),
        Files::FirstRoot => {
            let root = shape.root_numbers().next();
            let closure = root.map(|root| shape.closure(root));
            closure.into_iter().flatten().try_for_each(&mut write)
        }
    }
}

/// Writes a directory with one file, with the modes and the time of a store path.
fn write_tree(directory: &Path, contents: &str) -> Result<()> {
    let file = directory.join(FILE_NAME);
    fs::create_dir(directory)?;
    fs::write(&file, contents)?;
    for (place, mode) in [(&*file, 0o444), (directory, 0o555)] {
        let opened = File::open(place)?;
        opened.set_permissions(fs::Permissions::from_mode(mode))?;
        opened.set_modified(UNIX_EPOCH + Duration::from_secs(1))?;
    }
    Ok(())
}

/// The NAR of a directory with one file.
fn nar(contents: &str) -> Vec<u8> {
    let mut nar = Vec::new();
    write::begin(&mut nar);
    write::begin_directory(&mut nar);
    write::begin_entry(&mut nar, FILE_NAME.as_bytes());
    write::begin_file(&mut nar, false, contents.len() as u64);
    nar.extend(contents.as_bytes());
    write::end_file(&mut nar, contents.len() as u64);
    write::end_entry(&mut nar);
    write::end_directory(&mut nar);
    nar
}

const FILE_NAME: &str = "references";

/// The registration time of all paths, in seconds.
const TIME: i64 = 1_700_000_000;

/// SQLite then holds the indexes of a million paths in memory while it inserts at random places.
const CACHE_KIB: u32 = 512 * 1024;

#[cfg(test)]
mod tests {
    use floe_store::StoreReader;

    use super::shape::{PATHS_PER_ROOT, References};
    use super::*;

    #[test]
    fn created_store_has_valid_contents() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().join("store");
        let shape = Shape {
            paths: PATHS_PER_ROOT,
            references: References::Common,
        };
        create(&root, shape, Files::All).unwrap();
        let layout = StoreLayout::in_root(&root, StoreDir::default());
        let store = StoreReader::open(layout.clone()).unwrap();
        assert_eq!(store.valid_paths().unwrap().len(), shape.paths);
        for number in [0, 3, 999] {
            let path = floe_format::StorePath::parse(&shape::base_name(number)).unwrap();
            let info = store.path_info(&path).unwrap().unwrap();
            let mut found = Vec::new();
            let add = &mut |bytes: &[u8]| -> Result<(), floe_store::StoreError> {
                found.extend(bytes);
                Ok(())
            };
            floe_store::tree::dump_path(&layout.real_path(&path), add).unwrap();
            assert_eq!(Hash::sha256(floe_hash::sha256(&found)), info.nar_hash);
            assert_eq!(found.len() as u64, info.nar_size);
        }
    }
}
