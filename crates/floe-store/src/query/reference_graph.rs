//! The references between valid paths in memory, for many questions about closures.

use std::collections::{HashMap, VecDeque};

use floe_format::{PathInfo, StorePath};

use super::reader::StoreReader;
use crate::error::StoreError;

/// Paths and the references between them.
#[derive(Debug)]
pub struct ReferenceGraph {
    infos: Vec<PathInfo>,
    numbers: HashMap<StorePath, usize>,
    /// For each path, the numbers of its references without itself.
    references: Vec<Vec<usize>>,
}

/// The size of a set of paths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClosureSize {
    /// The number of paths.
    pub paths: usize,
    /// The sum of their NAR sizes, in bytes.
    pub nar_bytes: u64,
}

impl StoreReader {
    /// Reads the closure of some paths.
    ///
    /// Errors: those of the database.
    pub fn reference_graph(&self, paths: &[StorePath]) -> Result<ReferenceGraph, StoreError> {
        self.closure(paths).map(ReferenceGraph::new)
    }
}

impl ReferenceGraph {
    fn new(infos: Vec<PathInfo>) -> ReferenceGraph {
        let numbers: HashMap<_, _> = infos
            .iter()
            .enumerate()
            .map(|(number, info)| (info.path.clone(), number))
            .collect();
        let references = infos.iter().enumerate().map(|(own, info)| {
            let known = info.references.iter().filter_map(|path| numbers.get(path));
            known.copied().filter(|number| *number != own).collect()
        });
        ReferenceGraph {
            references: references.collect(),
            numbers,
            infos,
        }
    }

    /// Returns what is registered about a path.
    pub fn info(&self, path: &StorePath) -> Option<&PathInfo> {
        self.numbers.get(path).map(|number| &self.infos[*number])
    }

    /// Returns the size of the closure of some paths.
    pub fn closure_size<'a>(&self, paths: impl IntoIterator<Item = &'a StorePath>) -> ClosureSize {
        self.size(&self.closure(paths))
    }

    /// Returns the paths that are in the closure of `paths` and not in that of `others`.
    pub fn only_in<'a>(
        &self,
        paths: impl IntoIterator<Item = &'a StorePath>,
        others: impl IntoIterator<Item = &'a StorePath>,
    ) -> Vec<&PathInfo> {
        let (paths, others) = (self.closure(paths), self.closure(others));
        let infos = self.infos.iter().enumerate();
        infos
            .filter(|(number, _)| paths[*number] && !others[*number])
            .map(|(_, info)| info)
            .collect()
    }

    /// Returns a shortest chain of references between two paths, with both ends.
    pub fn chain(&self, from: &StorePath, to: &StorePath) -> Option<Vec<&StorePath>> {
        let (from, to) = (*self.numbers.get(from)?, *self.numbers.get(to)?);
        let mut referrers: HashMap<usize, usize> = HashMap::from([(from, from)]);
        let mut queue = VecDeque::from([from]);
        while let Some(number) = queue.pop_front() {
            if number == to {
                break;
            }
            for reference in &self.references[number] {
                referrers.entry(*reference).or_insert_with(|| {
                    queue.push_back(*reference);
                    number
                });
            }
        }
        let mut chain = vec![to];
        while let Some(last) = chain.last()
            && *last != from
        {
            chain.push(*referrers.get(last)?);
        }
        let paths = chain.iter().rev().map(|number| &self.infos[*number].path);
        Some(paths.collect())
    }

    /// For each path, whether it is in the closure.
    fn closure<'a>(&self, paths: impl IntoIterator<Item = &'a StorePath>) -> Vec<bool> {
        let mut is_inside = vec![false; self.infos.len()];
        let numbers = paths.into_iter().filter_map(|path| self.numbers.get(path));
        let mut todo: Vec<usize> = numbers.copied().collect();
        while let Some(number) = todo.pop() {
            if !std::mem::replace(&mut is_inside[number], true) {
                todo.extend(&self.references[number]);
            }
        }
        is_inside
    }

    fn size(&self, is_inside: &[bool]) -> ClosureSize {
        let infos = self
            .infos
            .iter()
            .zip(is_inside)
            .filter(|(_, inside)| **inside);
        infos.fold(ClosureSize::default(), |size, (info, _)| ClosureSize {
            paths: size.paths + 1,
            nar_bytes: size.nar_bytes.saturating_add(info.nar_size),
        })
    }
}
