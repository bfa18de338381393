//! Deletes given paths, with the options of `nix store delete` of Nix 2.35. As in Nix up to 2.34, a
//! path that only `keep-derivations` or `keep-outputs` keeps is alive.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::fmt;
use std::fs;

use floe_format::{HashPart, StorePath};

use super::garbage::{DeadFile, DeadPaths, UnregisteredFile};
use super::path_graph::{Edges, PathGraph, PathNumber, index};
use super::{Collector, GcResults, GcSettings};
use crate::db::Database;
use crate::disk::StoreLayout;
use crate::error::StoreError;
use crate::progress::Progress;
use crate::query::StoreReader;
use crate::roots::{Root, RootPlace};

/// The paths that `Collector::delete` deletes besides the given ones, and those that it leaves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeleteOptions {
    /// Also the closures of the paths (`--recursive`).
    pub recursive: bool,
    /// Leave live paths, and delete the others (`--skip-alive`). Otherwise a live path is an error,
    /// and no path is deleted.
    pub skip_alive: bool,
    /// Also the paths that refer to the paths, directly or through others (`--also-referrers`).
    pub also_referrers: bool,
    /// Also paths that roots keep (`--ignore-liveness`), except temporary ones.
    pub ignore_liveness: bool,
}

/// A failure to delete given paths.
#[derive(Debug, thiserror::Error)]
pub enum DeleteError {
    /// A path is neither valid nor on disk.
    #[error("cannot delete {0}: the store does not have it")]
    NotInStore(StorePath),
    /// A path is alive. No path was deleted.
    #[error("cannot delete {path}: {obstacle}")]
    Alive {
        /// The path.
        path: StorePath,
        /// The obstacle.
        obstacle: AlivePath,
    },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// An obstacle that keeps a path from being deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AlivePath {
    /// A root keeps the path.
    Root {
        /// The root.
        place: RootPlace,
        /// The paths from that of the root to the path, with both.
        chain: Vec<StorePath>,
    },
    /// A process uses a path that refers to the path.
    InUse {
        /// The paths from that of the process to the path, with both.
        chain: Vec<StorePath>,
    },
    /// A row of the database that does not parse names a path that refers to the path.
    DamagedRow {
        /// The paths from that of the row to the path, with both.
        chain: Vec<StorePath>,
    },
    /// A valid path that is not to be deleted has lost a reference, which may be the path.
    LostReference {
        /// The valid path alone.
        chain: Vec<StorePath>,
    },
    /// A valid path that is not to be deleted refers to the path.
    Referrer {
        /// The paths from the referrer to the path, with both.
        chain: Vec<StorePath>,
    },
}

impl fmt::Display for AlivePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let chain = match self {
            AlivePath::Root { place, chain } => {
                write!(f, "the root {place} keeps it")?;
                chain
            }
            AlivePath::InUse { chain } => {
                f.write_str("a process uses it")?;
                chain
            }
            AlivePath::DamagedRow { chain } => {
                f.write_str("a damaged row of the database names it")?;
                chain
            }
            AlivePath::LostReference { chain } => {
                let paths: Vec<&str> = chain.iter().map(StorePath::as_str).collect();
                let paths = paths.join(" -> ");
                return write!(
                    f,
                    "{paths} has lost a reference in the database, which may be this path"
                );
            }
            AlivePath::Referrer { chain } => {
                f.write_str("a path that is not to be deleted refers to it")?;
                chain
            }
        };
        match chain.len() {
            0 | 1 => Ok(()),
            _ => {
                let paths: Vec<&str> = chain.iter().map(StorePath::as_str).collect();
                write!(f, ": {}", paths.join(" -> "))
            }
        }
    }
}

impl Collector {
    /// Deletes given paths. The results are complete even after an error.
    ///
    /// Errors: [`DeleteError::NotInStore`] and [`DeleteError::Alive`], which leave all paths, and
    /// those of [`Collector::collect`].
    pub fn delete(
        &self,
        paths: &[StorePath],
        options: DeleteOptions,
        settings: &GcSettings,
        progress: &dyn Progress,
    ) -> (GcResults, Result<(), DeleteError>) {
        let settings = &options.settings(settings);
        self.with_roots(settings, |collection| {
            let choice = Choice {
                layout: &self.store.layout,
                database: collection.database,
                roots: &collection.roots.roots,
                temporary: &collection.temporary(),
                settings: *settings,
                options,
            };
            let dead = choice.choose(paths)?;
            collection.start(&dead, progress);
            collection.delete(dead, None, progress)?;
            Ok(collection.finish(false)?)
        })
    }
}

impl StoreReader {
    /// Returns what [`Collector::delete`] would delete. Changes nothing and waits for no collector.
    ///
    /// Errors: [`DeleteError::NotInStore`], [`DeleteError::Alive`], and those of
    /// [`StoreReader::find_garbage`].
    pub fn find_deletable(
        &self,
        paths: &[StorePath],
        options: DeleteOptions,
        settings: &GcSettings,
    ) -> Result<Vec<DeadFile>, DeleteError> {
        let database = self.database();
        let settings = options.settings(settings);
        let (roots, temporary) = self.collection_roots(&database, &settings)?;
        let choice = Choice {
            layout: self.layout(),
            database: &database,
            roots: &roots.roots,
            temporary: &temporary,
            settings,
            options,
        };
        let dead = choice.choose(paths)?;
        Ok(dead.describe(self.layout(), Vec::new()).dead)
    }
}

impl DeleteOptions {
    /// As in Nix, a path that ignores the roots ignores derivers and outputs too.
    fn settings(self, settings: &GcSettings) -> GcSettings {
        GcSettings {
            keep_outputs: settings.keep_outputs && !self.ignore_liveness,
            keep_derivations: settings.keep_derivations && !self.ignore_liveness,
            ignore_unregistered_roots: self.ignore_liveness,
            ..*settings
        }
    }
}

/// The choice of the paths to delete.
struct Choice<'a> {
    layout: &'a StoreLayout,
    database: &'a Database,
    roots: &'a [Root],
    /// The hash parts of the temporary roots.
    temporary: &'a HashSet<HashPart>,
    settings: GcSettings,
    options: DeleteOptions,
}

impl Choice<'_> {
    fn choose(&self, paths: &[StorePath]) -> Result<DeadPaths, DeleteError> {
        let graph = PathGraph::read(self.database, &self.settings)?;
        let (given, unregistered) = self.find(&graph, paths)?;
        let mut is_given = vec![false; graph.len()];
        if self.options.recursive {
            mark_closure(&graph, given, &mut is_given);
        } else {
            for number in given {
                is_given[index(number)] = true;
            }
        }
        let kept = self.kept(&graph);
        let mut is_kept = vec![false; graph.len()];
        graph.mark_live(kept.iter().copied(), &mut is_kept);
        if !self.options.also_referrers {
            // Every other valid path stays, with its references.
            let others: Vec<PathNumber> = graph
                .all()
                .filter(|number| !is_given[index(*number)])
                .collect();
            graph.mark_live(others, &mut is_kept);
        }
        let given = || graph.all().filter(|number| is_given[index(*number)]);
        let alive = given().find(|number| is_kept[index(*number)]);
        if let Some(alive) = alive.filter(|_| !self.options.skip_alive) {
            let keepers = graph.keepers();
            // A root explains more than a referrer.
            let chain = chain_to(alive, &keepers, |number| kept.contains(&number));
            let from_other = || chain_to(alive, &keepers, |number| !is_given[index(number)]);
            let chain = chain.or_else(from_other).unwrap_or_default();
            return Err(DeleteError::Alive {
                path: graph.row(alive).path.clone(),
                obstacle: self.explain(&graph, &kept, &chain),
            });
        }
        let referrers = graph.referrers();
        let mut is_dead = vec![false; graph.len()];
        let mut todo: Vec<_> = given().filter(|number| !is_kept[index(*number)]).collect();
        while let Some(number) = todo.pop() {
            if !std::mem::replace(&mut is_dead[index(number)], true) {
                // A referrer is dead too, because otherwise it would keep this path.
                todo.extend(referrers.of(number));
            }
        }
        let dead = graph
            .all()
            .find(|number| is_dead[index(*number)])
            .map(|number| &graph.row(number).path)
            .or_else(|| unregistered.iter().find_map(|file| file.path.as_ref()));
        let lost = dead.and_then(|dead| {
            let stays = |path| !is_dead[index(path)];
            let lost = graph.find_dangling(self.database, stays)?;
            Some((dead.clone(), graph.row(lost.referrer).path.clone()))
        });
        match lost {
            Some(_) if self.options.skip_alive => {
                is_dead.fill(false);
                Ok(DeadPaths::chosen(graph, &is_dead, Vec::new()))
            }
            Some((path, referrer)) => Err(DeleteError::Alive {
                path,
                obstacle: AlivePath::LostReference {
                    chain: vec![referrer],
                },
            }),
            None => Ok(DeadPaths::chosen(graph, &is_dead, unregistered)),
        }
    }

    /// Finds the given paths in the store: valid ones, and files without a row.
    fn find(
        &self,
        graph: &PathGraph,
        paths: &[StorePath],
    ) -> Result<(Vec<PathNumber>, Vec<UnregisteredFile>), DeleteError> {
        let (mut valid, mut unregistered) = (Vec::new(), Vec::new());
        let paths: BTreeSet<&StorePath> = paths.iter().collect();
        for path in paths {
            if let Some(number) = graph.number(path) {
                valid.push(number);
                continue;
            }
            if fs::symlink_metadata(self.layout.real_path(path)).is_err() {
                return Err(DeleteError::NotInStore(path.clone()));
            }
            let chain = vec![path.clone()];
            let obstacle = if self.temporary.contains(&path.hash_part()) {
                Some(AlivePath::InUse { chain })
            } else if graph.is_in_damaged_row(path.as_str().as_ref()) {
                Some(AlivePath::DamagedRow { chain })
            } else {
                None
            };
            match obstacle {
                None => unregistered.push(UnregisteredFile {
                    name: path.as_str().into(),
                    path: Some(path.clone()),
                }),
                Some(_) if self.options.skip_alive => {}
                Some(obstacle) => {
                    let path = path.clone();
                    return Err(DeleteError::Alive { path, obstacle });
                }
            }
        }
        Ok((valid, unregistered))
    }

    /// Returns the valid paths that roots and damaged rows name.
    fn kept(&self, graph: &PathGraph) -> HashSet<PathNumber> {
        let temporary = self
            .temporary
            .iter()
            .flat_map(|it| graph.numbers_of_hash_part(*it));
        let mut kept: HashSet<PathNumber> = temporary.collect();
        kept.extend(graph.kept_by_damaged_rows());
        if !self.options.ignore_liveness {
            kept.extend(
                self.roots
                    .iter()
                    .filter_map(|root| graph.number(&root.path)),
            );
        }
        kept
    }

    /// Returns why the path at the end of the chain stays.
    fn explain(
        &self,
        graph: &PathGraph,
        kept: &HashSet<PathNumber>,
        chain: &[PathNumber],
    ) -> AlivePath {
        let paths: Vec<StorePath> = chain
            .iter()
            .map(|number| graph.row(*number).path.clone())
            .collect();
        let first = chain.first();
        let is_kept = first.is_some_and(|first| kept.contains(first));
        let has_damaged_row =
            first.is_some_and(|first| graph.kept_by_damaged_rows().contains(first));
        let mut roots = self
            .roots
            .iter()
            .filter(|_| is_kept && !self.options.ignore_liveness);
        match roots.find(|root| paths.first() == Some(&root.path)) {
            Some(root) => AlivePath::Root {
                place: root.place.clone(),
                chain: paths,
            },
            None if has_damaged_row => AlivePath::DamagedRow { chain: paths },
            None if is_kept => AlivePath::InUse { chain: paths },
            None => AlivePath::Referrer { chain: paths },
        }
    }
}

/// Marks paths with their closures.
fn mark_closure(graph: &PathGraph, paths: Vec<PathNumber>, is_inside: &mut [bool]) {
    let mut todo = paths;
    while let Some(number) = todo.pop() {
        if !std::mem::replace(&mut is_inside[index(number)], true) {
            todo.extend(graph.references(number));
        }
    }
}

/// Returns a shortest chain of references from an obstacle to a path, with both; `None` if no
/// obstacle leads to it.
fn chain_to(
    path: PathNumber,
    keepers: &Edges,
    is_obstacle: impl Fn(PathNumber) -> bool,
) -> Option<Vec<PathNumber>> {
    // For each visited path the reference through which it was found.
    let mut towards = HashMap::from([(path, path)]);
    let mut queue = VecDeque::from([path]);
    while let Some(number) = queue.pop_front() {
        if is_obstacle(number) {
            let chain = std::iter::successors(Some(number), |number| {
                towards.get(number).copied().filter(|next| next != number)
            });
            return Some(chain.collect());
        }
        for keeper in keepers.of(number) {
            towards.entry(*keeper).or_insert_with(|| {
                queue.push_back(*keeper);
                number
            });
        }
    }
    None
}
