//! The roots of a store, as Nix's collectors find them (gc.cc, `findRoots`).

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use floe_format::StorePath;

use super::processes::{self, Unreadable};
use super::root_place::{Candidate, RootPlace, name_in_store, store_path_of_name};
use super::{absolute_to, roots_daemon, temporary};
use crate::db::Database;
use crate::error::{IoContext, StoreError};
use crate::layout::StoreLayout;
use crate::reader::StoreReader;

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

impl StoreReader {
    /// Finds all roots: links, temporary roots, and the files that processes use. Changes nothing.
    ///
    /// Errors: those of the database, of the directories of roots, and of the roots daemon.
    pub fn find_roots(&self, runtime_roots: RuntimeRoots) -> Result<FoundRoots, StoreError> {
        let database = self.database();
        let search = RootSearch {
            layout: self.layout(),
            database: &database,
            runtime_roots,
            removes_stale: false,
        };
        let mut found = search.find_permanent()?;
        let temporary = search.find_temporary(&mut found.unreadable)?;
        let all = temporary.iter().map(|root| Root {
            place: root.place.clone(),
            path: root.path.clone(),
        });
        let all: BTreeSet<Root> = all.collect();
        found.roots = search.sorted(found.roots, temporary)?;
        let valid: BTreeSet<&Root> = found.roots.iter().collect();
        found.not_valid = all
            .into_iter()
            .filter(|root| !valid.contains(root))
            .collect();
        Ok(found)
    }

    /// Finds the roots that are links in `gcroots` and `profiles`, and those outside that these
    /// name.
    ///
    /// Errors: those of the database, and those of the directories of roots.
    pub fn find_links(&self) -> Result<FoundRoots, StoreError> {
        let database = self.database();
        let search = RootSearch {
            layout: self.layout(),
            database: &database,
            runtime_roots: RuntimeRoots::Proc,
            removes_stale: false,
        };
        let mut unreadable = Vec::new();
        let candidates = search.link_candidates(&mut unreadable)?;
        let roots = search.sorted(Vec::new(), candidates)?;
        Ok(FoundRoots {
            roots,
            unreadable,
            ..FoundRoots::default()
        })
    }
}

/// The search for the roots of a store.
pub(crate) struct RootSearch<'a> {
    pub(crate) layout: &'a StoreLayout,
    pub(crate) database: &'a Database,
    pub(crate) runtime_roots: RuntimeRoots,
    /// Whether to remove what Nix's collector removes: links in `gcroots/auto` that point to
    /// nothing, and the files of temporary roots of dead processes. The caller must hold the lock
    /// of the collector.
    pub(crate) removes_stale: bool,
}

impl RootSearch<'_> {
    /// Finds the roots of valid paths that are not temporary, sorted.
    pub(crate) fn find_permanent(&self) -> Result<FoundRoots, StoreError> {
        let mut unreadable = Vec::new();
        let mut candidates = self.link_candidates(&mut unreadable)?;
        candidates.extend(match self.runtime_roots {
            RuntimeRoots::Proc => processes::roots(&self.layout.store_dir, &mut unreadable),
            RuntimeRoots::Daemon => roots_daemon::roots(self.layout)?,
        });
        let roots = self.sorted(Vec::new(), candidates)?;
        Ok(FoundRoots {
            roots,
            unreadable,
            ..FoundRoots::default()
        })
    }

    /// Finds the temporary roots. Their paths may not be valid.
    pub(crate) fn find_temporary(
        &self,
        unreadable: &mut Vec<Unreadable>,
    ) -> Result<Vec<Candidate>, StoreError> {
        match self.removes_stale {
            true => temporary::take(self.layout),
            false => temporary::roots(self.layout, unreadable),
        }
    }

    fn link_candidates(
        &self,
        unreadable: &mut Vec<Unreadable>,
    ) -> Result<Vec<Candidate>, StoreError> {
        let auto = self.layout.state_dir.join("gcroots/auto");
        let mut links = Links {
            layout: self.layout,
            candidates: Vec::new(),
            unreadable,
            stale_below: self.removes_stale.then_some(auto),
        };
        for directory in ["gcroots", "profiles"] {
            let directory = self.layout.state_dir.join(directory);
            if fs::metadata(&directory).is_ok_and(|found| !found.is_dir()) {
                links.unreadable.push(Unreadable::Link(directory));
                continue;
            }
            links.visit(&directory, None)?;
        }
        Ok(links.candidates)
    }

    /// Returns roots and those candidates whose paths are valid, each once, sorted.
    fn sorted(
        &self,
        roots: Vec<Root>,
        candidates: Vec<Candidate>,
    ) -> Result<Vec<Root>, StoreError> {
        let mut is_valid: HashMap<StorePath, bool> = HashMap::new();
        let roots = roots.into_iter().map(|root| (root.place.to_string(), root));
        let mut roots: BTreeSet<(String, Root)> = roots.collect();
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

/// The links in the directories of roots.
struct Links<'a> {
    layout: &'a StoreLayout,
    candidates: Vec<Candidate>,
    unreadable: &'a mut Vec<Unreadable>,
    /// The directory from which links that point to nothing are removed.
    stale_below: Option<PathBuf>,
}

impl Links<'_> {
    /// Visits a file of a directory of roots. A link to a directory is not followed.
    fn visit(&mut self, path: &Path, file_type: Option<fs::FileType>) -> Result<(), StoreError> {
        match self.try_visit(path, file_type) {
            Err(error) if is_skipped(&error) => {
                if error.kind() == io::ErrorKind::PermissionDenied {
                    self.unreadable.push(Unreadable::Link(path.to_path_buf()));
                }
                Ok(())
            }
            visited => visited.io_context("read the root", path)?,
        }
    }

    fn try_visit(
        &mut self,
        path: &Path,
        file_type: Option<fs::FileType>,
    ) -> io::Result<Result<(), StoreError>> {
        let file_type = match file_type {
            Some(file_type) => file_type,
            None => fs::symlink_metadata(path)?.file_type(),
        };
        if file_type.is_dir() {
            for entry in fs::read_dir(path)? {
                let entry = entry?;
                if let Err(error) = self.visit(&entry.path(), entry.file_type().ok()) {
                    return Ok(Err(error));
                }
            }
        } else if file_type.is_symlink() {
            self.add_link(path)?;
        } else if file_type.is_file() {
            let name = path.file_name().and_then(|name| name.to_str());
            if let Some(kept) = name.and_then(|name| StorePath::parse(name).ok()) {
                self.add(path, kept);
            }
        }
        Ok(Ok(()))
    }

    /// Adds a link into the store, or the link outside that a link names.
    fn add_link(&mut self, path: &Path) -> io::Result<()> {
        let target = fs::read_link(path)?;
        if self.add_target(path, &target) {
            return Ok(());
        }
        let indirect = absolute_to(path.parent().unwrap_or(path), &target);
        match fs::read_link(&indirect) {
            // Otherwise it is a link elsewhere.
            Ok(target) => {
                self.add_target(&indirect, &target);
            }
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                self.unreadable.push(Unreadable::Link(indirect));
            }
            found if is_nothing(&found) => self.remove_stale(path, &indirect),
            // A file that is no link.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => {}
            // A link that cannot be read now may be a root.
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Removes a link that points to nothing, `target`.
    ///
    /// Meanwhile another process may make the root again, and with it this link. The link is
    /// therefore moved aside first, and put back if the root exists by then. No other collector
    /// sees its absence, because this one holds the lock.
    fn remove_stale(&mut self, link: &Path, target: &Path) {
        let is_inside = |directory: &PathBuf| link.starts_with(directory);
        if !self.stale_below.as_ref().is_some_and(is_inside) {
            return;
        }
        let mut aside = link.as_os_str().to_owned();
        aside.push(format!(".floe-{}", std::process::id()));
        let aside = PathBuf::from(aside);
        // Another user may own the link. It keeps nothing.
        if fs::rename(link, &aside).is_err() {
            return;
        }
        let found = fs::read_link(target);
        if is_nothing(&found) {
            let _: io::Result<()> = fs::remove_file(&aside);
            return;
        }
        // Another process may have made the link again. Both links have the same target.
        let _: io::Result<()> = fs::rename(&aside, link);
        if let Ok(kept) = found {
            self.add_target(target, &kept);
        }
    }

    /// Adds a link if its target is in the store, and returns whether it is. As in Nix, the text of
    /// the target decides, and its first name there counts: `..` after it has no meaning.
    fn add_target(&mut self, link: &Path, target: &Path) -> bool {
        let Some(name) = name_in_store(&self.layout.store_dir, target) else {
            return false;
        };
        if let Some(kept) = store_path_of_name(name) {
            self.add(link, kept);
        }
        true
    }

    fn add(&mut self, link: &Path, path: StorePath) {
        self.candidates.push(Candidate {
            place: RootPlace::Link(link.to_path_buf()),
            path,
        });
    }
}

/// Whether there is nothing at the place of a link.
fn is_nothing(found: &io::Result<PathBuf>) -> bool {
    use io::ErrorKind::{NotADirectory, NotFound};
    matches!(found, Err(error) if matches!(error.kind(), NotFound | NotADirectory))
}

/// Whether a collector skips a root with this error.
fn is_skipped(error: &io::Error) -> bool {
    use io::ErrorKind::{NotADirectory, NotFound, PermissionDenied};
    matches!(error.kind(), NotADirectory | NotFound | PermissionDenied)
}
