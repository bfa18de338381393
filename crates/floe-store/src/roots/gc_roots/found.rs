//! The roots of a store, as Nix's collectors find them (gc.cc, `findRoots`).

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fs;

use floe_format::{HashPart, StorePath};

use super::links::{FailedRoots, Links, StaleRegistration};
use super::root_place::{Candidate, RootPlace};
use super::unreadable::Unreadable;
use super::{processes, roots_daemon, temporary};
use crate::db::Database;
use crate::disk::StoreLayout;
use crate::error::StoreError;

/// A root of a valid path.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Root {
    /// Where the root is.
    pub place: RootPlace,
    /// The path that it keeps, with its closure.
    pub path: StorePath,
}

/// The roots of a store.
#[derive(Debug, Default)]
pub struct FoundRoots {
    /// The roots, each once, sorted by the texts of their places.
    pub roots: Vec<Root>,
    /// The temporary roots of paths that are not valid, such as those that a process is adding.
    pub not_valid: Vec<Root>,
    /// The links to paths that are on disk and not in the database. Their rows may be lost.
    pub unregistered: Vec<Root>,
    /// The registrations that point to nothing. A collection has removed them.
    pub stale: Vec<StaleRegistration>,
    /// The places that could not be read. They may hold further roots.
    pub unreadable: Vec<Unreadable>,
}

/// The source of the paths that running processes use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RuntimeRoots {
    /// `/proc`.
    #[default]
    Proc,
    /// The daemon at `gc-roots-socket/socket` in the state directory, with Nix's parameter
    /// `use-roots-daemon`.
    Daemon,
}

/// The search for the roots of a store.
pub(crate) struct RootSearch<'a> {
    pub(crate) layout: &'a StoreLayout,
    pub(crate) database: &'a Database,
    pub(crate) runtime_roots: RuntimeRoots,
    /// Whether to remove what Nix's collector removes: links in `gcroots/auto` that point to
    /// nothing, and the files of temporary roots of dead processes; and whether to record the
    /// roots. The caller must hold the lock of the collector.
    pub(crate) removes_stale: bool,
    pub(crate) failed_roots: FailedRoots,
}

impl RootSearch<'_> {
    /// Finds all roots: links, temporary roots, and the files that processes use.
    pub(crate) fn find_all(&self) -> Result<FoundRoots, StoreError> {
        let mut found = self.find_permanent()?;
        let temporary = self.find_temporary(&mut found.unreadable)?;
        let all = temporary.iter().map(|root| Root {
            place: root.place.clone(),
            path: root.path.clone(),
        });
        let all: BTreeSet<Root> = all.collect();
        found.roots = self.sorted(found.roots, temporary)?;
        let valid: BTreeSet<&Root> = found.roots.iter().collect();
        found.not_valid = all
            .into_iter()
            .filter(|root| !valid.contains(root))
            .collect();
        Ok(found)
    }

    /// Finds the links in `gcroots` and `profiles`, and those outside that these name.
    pub(crate) fn find_links(&self) -> Result<FoundRoots, StoreError> {
        let mut unreadable = Vec::new();
        let (candidates, stale) = self.find_candidates(&mut unreadable)?;
        let roots = self.sorted(Vec::new(), candidates)?;
        Ok(FoundRoots {
            roots,
            stale,
            unreadable,
            ..FoundRoots::default()
        })
    }

    /// Finds the roots of valid paths that are not temporary, sorted.
    pub(crate) fn find_permanent(&self) -> Result<FoundRoots, StoreError> {
        let mut unreadable = Vec::new();
        let (mut candidates, stale) = self.find_candidates(&mut unreadable)?;
        candidates.extend(match self.runtime_roots {
            RuntimeRoots::Proc => processes::roots(self.layout, &mut unreadable),
            RuntimeRoots::Daemon => roots_daemon::roots(self.layout)?,
        });
        let unregistered = self.unregistered(&candidates)?;
        let roots = self.sorted(Vec::new(), candidates)?;
        Ok(FoundRoots {
            roots,
            unregistered,
            stale,
            unreadable,
            ..FoundRoots::default()
        })
    }

    /// Returns the links to paths that are on disk and not valid.
    fn unregistered(&self, candidates: &[Candidate]) -> Result<Vec<Root>, StoreError> {
        let mut unregistered = Vec::new();
        for Candidate { place, path } in candidates {
            let is_link = matches!(place, RootPlace::Link(_));
            if !is_link || self.database.is_valid(path)? {
                continue;
            }
            if fs::symlink_metadata(self.layout.real_path(path)).is_ok() {
                let (place, path) = (place.clone(), path.clone());
                unregistered.push(Root { place, path });
            }
        }
        Ok(unregistered)
    }

    /// Refuses a deletion if a root leads to a path that is on disk and not in the database. If a
    /// process adds the path at the moment, nothing is lost: it makes a temporary root before the
    /// files. So `temporary`, the hash parts of temporary roots, must be read after `found`.
    ///
    /// Errors: [`StoreError::UnregisteredRoot`], and those of the database.
    pub(crate) fn check_registered(
        &self,
        found: &FoundRoots,
        temporary: &HashSet<HashPart>,
    ) -> Result<(), StoreError> {
        let mut lost = Vec::new();
        for root in &found.unregistered {
            let is_being_added = temporary.contains(&root.path.hash_part());
            // The process may have ended in between, after it registered the path.
            if !is_being_added && !self.database.is_valid(&root.path)? {
                lost.push(root);
            }
        }
        match lost.first() {
            Some(root) => Err(StoreError::UnregisteredRoot {
                root: root.place.to_string(),
                path: root.path.clone(),
                count: lost.len(),
            }),
            None => Ok(()),
        }
    }

    /// Finds the temporary roots. Their paths may not be valid.
    pub(crate) fn find_temporary(
        &self,
        unreadable: &mut Vec<Unreadable>,
    ) -> Result<Vec<Candidate>, StoreError> {
        if self.removes_stale {
            temporary::take(self.layout)
        } else {
            temporary::roots(self.layout, unreadable)
        }
    }

    /// Finds the links to paths, and the registrations that point to nothing.
    fn find_candidates(
        &self,
        unreadable: &mut Vec<Unreadable>,
    ) -> Result<(Vec<Candidate>, Vec<StaleRegistration>), StoreError> {
        let mut links = Links::new(self.layout, unreadable, self.failed_roots);
        if self.removes_stale {
            links = links.with_changes();
        }
        links.visit_all()?;
        Ok((links.candidates, links.stale))
    }

    /// Returns roots and those candidates whose paths are valid, each once, sorted.
    fn sorted(
        &self,
        roots: Vec<Root>,
        candidates: Vec<Candidate>,
    ) -> Result<Vec<Root>, StoreError> {
        let mut is_valid: HashMap<StorePath, bool> = HashMap::new();
        let mut roots: BTreeSet<(String, Root)> = roots
            .into_iter()
            .map(|root| (root.place.to_string(), root))
            .collect();
        for Candidate { place, path } in candidates {
            let known = is_valid.get(&path).copied();
            let valid = known.map_or_else(|| self.database.is_valid(&path), Ok)?;
            if known.is_none() {
                is_valid.insert(path.clone(), valid);
            }
            if valid {
                roots.insert((place.to_string(), Root { place, path }));
            }
        }
        Ok(roots.into_iter().map(|(_, root)| root).collect())
    }
}
