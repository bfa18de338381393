//! The workload with a database: closures, and the paths that a collection would delete.

use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::thread;

use anyhow::{Context as _, Result, ensure};
use floe_format::{PathInfo, StoreDir, StorePath};
use floe_store::{
    GcSettings, RuntimeRoots, StoreLayout, StoreReader, StoreWriter, WriteOptions, references_first,
};
use rusqlite::{Connection, params};

use crate::Work;
use crate::inputs::{path, path_info};

/// Follows the references of a store in memory and in the database, and finds its garbage.
pub(crate) fn follow_references(directory: &Path) -> Result<Work> {
    let layout = StoreLayout::in_root(directory, StoreDir::default());
    let options = WriteOptions {
        fsync_metadata: false,
        ..WriteOptions::default()
    };
    drop(StoreWriter::open_with(layout.clone(), &options)?);
    fill(&layout)?;
    serve_no_roots(&layout)?;
    let roots: Result<Vec<StorePath>> = (COUNT - ROOTS..COUNT).map(path).collect();
    let roots = roots?;
    for root in &roots {
        let link = layout.state_dir.join("gcroots").join(root.as_str());
        symlink(layout.store_dir.full_path(root), link)?;
    }
    let reader = StoreReader::open(layout)?;
    let settings = GcSettings {
        // Which paths the processes of this machine use would change the count.
        runtime_roots: RuntimeRoots::Daemon,
        ..GcSettings::default()
    };
    Ok(Box::new(move || {
        let infos = reader.closure(&roots)?;
        let graph = reader.reference_graph(&roots)?;
        let size = graph.closure_size(&roots);
        ensure!(
            size.paths == infos.len(),
            "the graph has {} paths",
            size.paths
        );
        let order = references_first(&reader.closure_references(&roots)?);
        ensure!(
            order.len() == infos.len(),
            "the order has {} paths",
            order.len()
        );
        let garbage = reader.find_garbage(&settings, &HashSet::new())?;
        let found = garbage.live.len() + garbage.dead.len();
        ensure!(found == COUNT, "{found} paths live or are dead");
        ensure!(
            garbage.live.len() == infos.len(),
            "live paths are not the closure"
        );
        Ok(())
    }))
}

/// Writes the rows of all paths, and an empty directory for each.
fn fill(layout: &StoreLayout) -> Result<()> {
    let infos: Vec<PathInfo> = (0..COUNT).map(path_info).collect::<Result<_>>()?;
    let mut connection = Connection::open(layout.database_dir().join("db.sqlite"))?;
    connection.pragma_update(None, "synchronous", "off")?;
    let transaction = connection.transaction()?;
    let mut row = transaction.prepare(
        "insert into ValidPaths (path, hash, registrationTime, deriver, narSize, sigs) \
         values (?1, ?2, ?3, ?4, ?5, ?6)",
    )?;
    let mut reference = transaction.prepare(
        "insert into Refs select a.id, b.id from ValidPaths a, ValidPaths b \
         where a.path = ?1 and b.path = ?2",
    )?;
    let full = |path: &StorePath| layout.store_dir.full_path(path);
    for info in &infos {
        let signatures: Vec<String> = info.signatures.iter().map(ToString::to_string).collect();
        row.execute(params![
            full(&info.path),
            format!("sha256:{}", info.nar_hash.digest_base16()),
            info.registration_time.unwrap_or_default().cast_signed(),
            info.deriver.as_ref().map(full),
            info.nar_size.cast_signed(),
            signatures.join(" "),
        ])?;
        for path in &info.references {
            reference.execute(params![full(&info.path), full(path)])?;
        }
        fs::create_dir(layout.real_path(&info.path))?;
    }
    drop((row, reference));
    Ok(transaction.commit()?)
}

/// Starts a roots daemon that knows no roots.
fn serve_no_roots(layout: &StoreLayout) -> Result<()> {
    let directory = layout.state_dir.join("gc-roots-socket");
    fs::create_dir_all(&directory)?;
    let listener = UnixListener::bind(directory.join("socket"))?;
    let serve = move || listener.incoming().for_each(drop);
    let thread = thread::Builder::new().spawn(serve);
    thread.context("cannot start the roots daemon")?;
    Ok(())
}

/// The number of paths in the store.
const COUNT: usize = 600;

/// The number of roots: about half of the paths are in their closures.
const ROOTS: usize = 12;
