//! The dead paths of a store: those that no root keeps, and files that are not valid paths.
//!
//! The rules are those of Nix's collector (gc.cc):
//!
//! - A valid path lives if a root keeps it. A live path keeps its references, its deriver with
//!   `keep-derivations`, and its outputs with `keep-outputs`.
//! - A file of the store directory that is named like a path and not valid, such as a lock, lives
//!   if a temporary root has its hash part.
//! - Every other file is garbage, except `.links`.
//! - The path and the file that a damaged row of the database names live, and so do its references,
//!   its deriver and its outputs. Nix's collector deletes them.
//! - If a live path has a reference that names no row, all paths and files live: each of them may
//!   be the lost reference.
//! - A dead path without files stays registered, unless it keeps a dead path with files.

use std::collections::{BTreeSet, HashSet};
use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use floe_format::{HashPart, StorePath, sum_of_sizes};
use rustix::fs::{CWD, FlockOperation, Mode, OFlags, flock, openat};

use super::GcSettings;
use super::path_graph::{PathGraph, PathNumber, index};
use crate::db::{DamagedRow, Database};
use crate::disk::{StoreLayout, list_directory};
use crate::error::{IoContext as _, StoreError};
use crate::query::StoreReader;
use crate::roots::{Candidate, FailedRoots, FoundRoots, RootPlace, StaleRegistration, Unreadable};
use crate::tree::tree_bytes;

/// The files that a collection deletes, and those that it leaves.
#[derive(Clone, Debug, Default)]
pub struct Garbage {
    /// The files that it deletes: valid paths with referrers first, then others.
    pub dead: Vec<DeadFile>,
    /// Dead paths that stay because they refer to each other in a circle.
    pub circular: Vec<StorePath>,
    /// The names of the paths that it leaves, sorted.
    pub live: BTreeSet<StorePath>,
    /// The registrations of roots that point to nothing. The collection removes them.
    pub stale: Vec<StaleRegistration>,
    /// The places that could not be read. They may hold further roots.
    pub unreadable: Vec<Unreadable>,
    /// The rows of the database that do not parse. The collection leaves what they name.
    pub damaged_rows: Vec<DamagedRow>,
}

/// A file or directory of the store directory that a collection deletes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadFile {
    /// Its name.
    pub name: OsString,
    /// The size of the NAR of a valid path, else the sum of the sizes of its files, in bytes.
    pub bytes: u64,
}

impl StoreReader {
    /// Checks whether a collection would refuse to delete because of a root.
    ///
    /// Errors: [`StoreError::UnregisteredRoot`], [`StoreError::FailedRoot`], and those of
    /// [`StoreReader::find_roots`].
    pub fn check_roots(&self, settings: &GcSettings) -> Result<(), StoreError> {
        let database = self.database();
        let search = self.root_search(&database, settings.runtime_roots, FailedRoots::Stop);
        let found = search.find_permanent()?;
        if settings.ignore_unregistered_roots {
            return Ok(());
        }
        let temporary = hash_parts(&search.find_temporary(&mut Vec::new())?);
        search.check_registered(&found, &temporary)
    }

    /// Finds the dead paths. Changes nothing and waits for no collector, so another process may
    /// change the result. The links among `ignored` keep nothing.
    ///
    /// Errors: those of the database, of the directories of roots, and of the store directory.
    pub fn find_garbage(
        &self,
        settings: &GcSettings,
        ignored: &HashSet<PathBuf>,
    ) -> Result<Garbage, StoreError> {
        let (layout, database) = (self.layout(), self.database());
        let (mut roots, temporary) = self.collection_roots(&database, settings)?;
        let is_ignored = |place: &RootPlace| match place {
            RootPlace::Link(link) => ignored.contains(link),
            _ => false,
        };
        roots.roots.retain(|root| !is_ignored(&root.place));
        let found = DeadPaths::find(layout, &database, settings, &roots, &temporary)?;
        Ok(Garbage {
            damaged_rows: database.skipped_rows(),
            stale: roots.stale,
            ..found.describe(layout, roots.unreadable)
        })
    }

    /// Finds the roots that a collection would find, and the hash parts of the temporary ones.
    pub(super) fn collection_roots(
        &self,
        database: &Database,
        settings: &GcSettings,
    ) -> Result<(FoundRoots, HashSet<HashPart>), StoreError> {
        let search = self.root_search(database, settings.runtime_roots, FailedRoots::Stop);
        let mut roots = search.find_permanent()?;
        let temporary = hash_parts(&search.find_temporary(&mut roots.unreadable)?);
        if !settings.ignore_unregistered_roots {
            search.check_registered(&roots, &temporary)?;
        }
        Ok((roots, temporary))
    }
}

/// Returns the hash parts of roots.
pub(super) fn hash_parts(roots: &[Candidate]) -> HashSet<HashPart> {
    roots.iter().map(|root| root.path.hash_part()).collect()
}

/// The dead paths of a store at one moment.
#[derive(Debug)]
pub(super) struct DeadPaths {
    pub(super) graph: PathGraph,
    /// For each valid path, whether a root keeps it.
    pub(super) is_live: Vec<bool>,
    /// The dead valid paths, referrers first.
    pub(super) valid: Vec<PathNumber>,
    /// The dead files that are not valid paths.
    pub(super) unregistered: Vec<UnregisteredFile>,
    /// The dead paths in circles of references, and the references of these.
    pub(super) circular: Vec<StorePath>,
    /// The files that are not valid, and that a temporary root or a damaged row keeps.
    spared: Vec<StorePath>,
    /// Whether everything stays, because a live path has lost a reference.
    pub(super) keeps_all: bool,
}

/// A file of the store directory that is not a valid path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct UnregisteredFile {
    pub(super) name: OsString,
    /// The path as which the name parses.
    pub(super) path: Option<StorePath>,
}

impl DeadPaths {
    /// Finds the dead paths. `temporary` has the hash parts of the temporary roots.
    pub(super) fn find(
        layout: &StoreLayout,
        database: &Database,
        settings: &GcSettings,
        roots: &FoundRoots,
        temporary: &HashSet<HashPart>,
    ) -> Result<DeadPaths, StoreError> {
        let graph = PathGraph::read(database, settings)?;
        let mut is_live = vec![false; graph.len()];
        let permanent = roots.roots.iter().map(|root| root.path.hash_part());
        let all = permanent.chain(temporary.iter().copied());
        let known = all.flat_map(|hash_part| graph.numbers_of_hash_part(hash_part));
        let damaged = graph.kept_by_damaged_rows().iter().copied();
        graph.mark_live(known.chain(damaged), &mut is_live);
        let lost = graph.find_dangling(database, |path| is_live[index(path)]);
        let keeps_all = lost.is_some();
        if keeps_all {
            is_live.fill(true);
        }
        let mut has_files = vec![false; graph.len()];
        let (mut unregistered, mut spared) = (Vec::new(), Vec::new());
        for name in names(&layout.real_store_dir)? {
            let text = name.to_str();
            let path = text.and_then(|text| StorePath::parse(text).ok());
            let number = path.as_ref().and_then(|path| graph.number(path));
            match (number, path) {
                (Some(number), _) => has_files[index(number)] = true,
                (None, path) if keeps_all => spared.extend(path),
                (None, Some(path)) if temporary.contains(&path.hash_part()) => spared.push(path),
                (None, path) if graph.is_in_damaged_row(&name) => spared.extend(path),
                (None, None) if is_in_use(&layout.real_store_dir, &name) => {}
                (None, path) => unregistered.push(UnregisteredFile { name, path }),
            }
        }
        let is_dead: Vec<bool> = is_live.iter().map(|is_live| !is_live).collect();
        let sorted = graph.referrers_first(&is_dead);
        Ok(DeadPaths {
            circular: circular(&graph, &is_dead, &sorted),
            valid: dead_with_files(&graph, sorted, &is_dead, has_files),
            graph,
            is_live,
            unregistered,
            spared,
            keeps_all,
        })
    }

    /// Returns the dead paths that a user has chosen.
    pub(super) fn chosen(
        graph: PathGraph,
        is_dead: &[bool],
        unregistered: Vec<UnregisteredFile>,
    ) -> DeadPaths {
        DeadPaths {
            valid: graph.referrers_first(is_dead),
            is_live: is_dead.iter().map(|is_dead| !is_dead).collect(),
            graph,
            unregistered,
            circular: Vec::new(),
            spared: Vec::new(),
            keeps_all: false,
        }
    }

    /// The number of dead files and paths.
    pub(super) fn len(&self) -> u64 {
        (self.valid.len() + self.unregistered.len()) as u64
    }

    /// The sum of the NAR sizes of the dead valid paths, in bytes.
    pub(super) fn nar_bytes(&self) -> u64 {
        let sizes = self.valid.iter();
        sum_of_sizes(sizes.map(|number| self.graph.row(*number).nar_size))
    }

    pub(super) fn describe(self, layout: &StoreLayout, unreadable: Vec<Unreadable>) -> Garbage {
        let valid = self.valid.iter().map(|number| {
            let row = self.graph.row(*number);
            let size = match row.nar_size {
                0 => tree_bytes(&layout.real_path(&row.path)),
                size => size,
            };
            DeadFile {
                name: row.path.as_str().into(),
                bytes: size,
            }
        });
        let others = self.unregistered.iter().map(|file| DeadFile {
            name: file.name.clone(),
            bytes: tree_bytes(&layout.real_store_dir.join(&file.name)),
        });
        let live = self
            .graph
            .all()
            .filter(|it| self.is_live[index(*it)])
            .map(|number| self.graph.row(number).path.clone());
        Garbage {
            circular: self.circular.clone(),
            dead: valid.chain(others).collect(),
            live: live.chain(self.spared.iter().cloned()).collect(),
            stale: Vec::new(),
            unreadable,
            damaged_rows: Vec::new(),
        }
    }
}

/// Returns the dead paths that have files or keep a dead path that has files, referrers first.
fn dead_with_files(
    graph: &PathGraph,
    mut sorted: Vec<PathNumber>,
    is_dead: &[bool],
    mut is_included: Vec<bool>,
) -> Vec<PathNumber> {
    for (is_included, is_dead) in is_included.iter_mut().zip(is_dead) {
        *is_included &= is_dead;
    }
    // References have their state before their referrers, so one round is enough unless derivers
    // and outputs are kept too.
    loop {
        let mut has_changed = false;
        for number in sorted.iter().rev() {
            let keeps_files = || graph.kept(*number).any(|kept| is_included[index(kept)]);
            if !is_included[index(*number)] && keeps_files() {
                is_included[index(*number)] = true;
                has_changed = true;
            }
        }
        if !has_changed {
            break;
        }
    }
    sorted.retain(|number| is_included[index(*number)]);
    sorted
}

/// Returns the dead paths that the sorted ones lack, because they refer to each other.
fn circular(graph: &PathGraph, is_dead: &[bool], sorted: &[PathNumber]) -> Vec<StorePath> {
    let mut is_left = is_dead.to_vec();
    for number in sorted {
        is_left[index(*number)] = false;
    }
    let left = graph.all().filter(|number| is_left[index(*number)]);
    left.map(|number| graph.row(number).path.clone()).collect()
}

/// Whether a file is the temporary directory of a builder and a process uses it, or may use it. As
/// in Nix, such names begin with `tmp-`, and the process has locked the directory.
fn is_in_use(store: &Path, name: &OsStr) -> bool {
    name.as_bytes().starts_with(b"tmp-") && lock_unused_directory(&store.join(name)).is_none()
}

/// Locks the temporary directory of a builder. Returns `None` if a process uses it, or if it is no
/// directory.
pub(super) fn lock_unused_directory(place: &Path) -> Option<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let directory = openat(CWD, place, flags, Mode::empty()).ok()?;
    flock(&directory, FlockOperation::NonBlockingLockExclusive).ok()?;
    Some(directory)
}

/// Lists the store directory, without the links of `nix-store --optimise`.
fn names(store: &Path) -> Result<Vec<OsString>, StoreError> {
    let mut names = Vec::new();
    for entry in list_directory(store).io_context("list", store)? {
        let entry = entry.io_context("list", store)?;
        if entry.file_name() != ".links" {
            names.push(entry.file_name().to_owned());
        }
    }
    Ok(names)
}
