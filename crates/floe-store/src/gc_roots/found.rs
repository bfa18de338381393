//! The roots of a store, as Nix's collectors find them (gc.cc, `findRoots`).

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use floe_format::StorePath;

use super::processes::{self, Unreadable};
use super::{absolute_to, temporary};
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

/// The place of a root. Its text is that of `nix-store --gc --print-roots`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RootPlace {
    /// A symbolic link, or a file in `gcroots` that is named like a store path.
    Link(PathBuf),
    /// A file of a process, such as `/proc/1/exe`.
    Process(PathBuf),
    /// A temporary root of a process.
    Temporary(u32),
}

impl fmt::Display for RootPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RootPlace::Link(path) | RootPlace::Process(path) => path.display().fmt(f),
            RootPlace::Temporary(process) => write!(f, "{{temp:{process}}}"),
        }
    }
}

/// The roots of a store.
#[derive(Debug, Default)]
pub struct FoundRoots {
    /// The roots, each once, sorted by the texts of their places.
    pub roots: Vec<Root>,
    /// The places that could not be read. They may hold further roots.
    pub unreadable: Vec<Unreadable>,
}

/// A root whose path may not be valid.
pub(super) struct Candidate {
    pub(super) place: RootPlace,
    pub(super) path: StorePath,
}

impl StoreReader {
    /// Finds all roots: links, temporary roots, and the files that processes use. Changes nothing.
    ///
    /// Errors: those of the database, and those of the directories of roots.
    pub fn find_roots(&self) -> Result<FoundRoots, StoreError> {
        let mut unreadable = Vec::new();
        let mut candidates = self.link_candidates(&mut unreadable)?;
        candidates.extend(temporary::roots(self.layout(), &mut unreadable)?);
        candidates.extend(processes::roots(&self.layout().store_dir, &mut unreadable));
        let roots = self.only_valid(candidates)?;
        Ok(FoundRoots { roots, unreadable })
    }

    /// Finds the roots that are links in `gcroots` and `profiles`, and those outside that these
    /// name.
    ///
    /// Errors: those of the database, and those of the directories of roots.
    pub fn find_links(&self) -> Result<FoundRoots, StoreError> {
        let mut unreadable = Vec::new();
        let candidates = self.link_candidates(&mut unreadable)?;
        let roots = self.only_valid(candidates)?;
        Ok(FoundRoots { roots, unreadable })
    }

    fn link_candidates(
        &self,
        unreadable: &mut Vec<Unreadable>,
    ) -> Result<Vec<Candidate>, StoreError> {
        let mut links = Links {
            layout: self.layout(),
            candidates: Vec::new(),
            unreadable,
        };
        for directory in ["gcroots", "profiles"] {
            let directory = self.layout().state_dir.join(directory);
            if fs::metadata(&directory).is_ok_and(|found| !found.is_dir()) {
                links.unreadable.push(Unreadable::Link(directory));
                continue;
            }
            links.visit(&directory, None)?;
        }
        Ok(links.candidates)
    }

    fn only_valid(&self, candidates: Vec<Candidate>) -> Result<Vec<Root>, StoreError> {
        let mut is_valid: HashMap<StorePath, bool> = HashMap::new();
        let mut roots = BTreeSet::new();
        let database = self.database();
        for Candidate { place, path } in candidates {
            let known = is_valid.get(&path).copied();
            let valid = known.map_or_else(|| database.is_valid(&path), Ok)?;
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
            // A file that is no link, or nothing.
            Err(_) => {}
        }
        Ok(())
    }

    /// Adds a link if its target is in the store, and returns whether it is. As in Nix, the text of
    /// the target decides, and its first name there counts: `..` after it has no meaning.
    fn add_target(&mut self, link: &Path, target: &Path) -> bool {
        let dir = self.layout.store_dir.as_str();
        let text = target.to_str().and_then(|text| text.strip_prefix(dir));
        let Some(inside) = text.and_then(|text| text.strip_prefix('/')) else {
            return false;
        };
        let name = inside.split('/').next().unwrap_or_default();
        if let Ok(kept) = StorePath::parse(name) {
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

/// Whether a collector skips a root with this error.
fn is_skipped(error: &io::Error) -> bool {
    use io::ErrorKind::{NotADirectory, NotFound, PermissionDenied};
    matches!(error.kind(), NotADirectory | NotFound | PermissionDenied)
}
