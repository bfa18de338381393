//! The references between valid paths in memory, for many questions about closures.

mod closure_sizes;

use std::collections::{HashMap, VecDeque};

use floe_format::{PathInfo, StorePath};

use super::reader::StoreReader;
use crate::db::{ClosureRow, ClosureRows};
use crate::error::StoreError;

/// Paths and the references between them: about 250 bytes for each path and 4 for each reference.
#[derive(Debug)]
pub struct ReferenceGraph {
    /// The paths, sorted by name.
    rows: Vec<ClosureRow>,
    numbers: HashMap<StorePath, u32>,
    /// For each path the place of its first reference in `references`, and the number of all
    /// references.
    starts: Vec<usize>,
    /// The numbers of the references, without those of a path to itself.
    references: Vec<u32>,
}

/// A path of a [`ReferenceGraph`].
#[derive(Clone, Copy, Debug)]
pub struct GraphPath<'g>(&'g ClosureRow);

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
        let rows = self.database().closure_rows(paths)?;
        match rows {
            Some(rows) => Ok(ReferenceGraph::new(rows)),
            // This way records damaged rows and leaves them out.
            None => self.closure(paths).map(ReferenceGraph::of_infos),
        }
    }
}

impl<'g> GraphPath<'g> {
    /// The path.
    pub fn path(self) -> &'g StorePath {
        &self.0.path
    }

    /// The size of its NAR, in bytes; 0 if the database does not have it.
    pub fn nar_size(self) -> u64 {
        self.0.nar_size
    }

    /// When it was registered, in seconds since 1970.
    pub fn registration_time(self) -> Option<u64> {
        self.0.registration_time
    }
}

impl ReferenceGraph {
    /// Sorts the rows by name.
    fn new(closure: ClosureRows) -> ReferenceGraph {
        let ClosureRows {
            rows,
            starts: places,
            references: unsorted,
        } = closure;
        let mut order: Vec<u32> = (0..).take(rows.len()).collect();
        order.sort_unstable_by(|a, b| rows[index(*a)].path.cmp(&rows[index(*b)].path));
        let mut numbers = vec![0; rows.len()];
        for (number, place) in (0..).zip(&order) {
            numbers[index(*place)] = number;
        }
        let (mut starts, mut references) = (vec![0], Vec::with_capacity(unsorted.len()));
        for place in order.iter().map(|place| index(*place)) {
            let own = &unsorted[places[place]..places[place + 1]];
            let first = references.len();
            references.extend(own.iter().map(|place| numbers[index(*place)]));
            // Of several shortest chains, the first by name is found.
            references[first..].sort_unstable();
            starts.push(references.len());
        }
        let rows = order.iter().map(|place| rows[index(*place)].clone());
        ReferenceGraph::of_sorted(rows.collect(), starts, references)
    }

    fn of_infos(infos: Vec<PathInfo>) -> ReferenceGraph {
        let row = |info: &PathInfo| ClosureRow {
            path: info.path.clone(),
            nar_size: info.nar_size,
            registration_time: info.registration_time,
        };
        let mut graph = ReferenceGraph::of_sorted(infos.iter().map(row).collect(), vec![], vec![]);
        for (own, info) in (0..).zip(&infos) {
            graph.starts.push(graph.references.len());
            let known = info.references.iter();
            let known = known.filter_map(|path| graph.numbers.get(path).copied());
            graph
                .references
                .extend(known.filter(|number| *number != own));
        }
        graph.starts.push(graph.references.len());
        graph
    }

    fn of_sorted(
        rows: Vec<ClosureRow>,
        starts: Vec<usize>,
        references: Vec<u32>,
    ) -> ReferenceGraph {
        let numbers = rows.iter().zip(0..);
        ReferenceGraph {
            numbers: numbers
                .map(|(row, number)| (row.path.clone(), number))
                .collect(),
            rows,
            starts,
            references,
        }
    }

    /// The references of a path.
    fn of(&self, number: u32) -> &[u32] {
        let number = index(number);
        &self.references[self.starts[number]..self.starts[number + 1]]
    }

    /// Returns what is registered about a path.
    pub fn get(&self, path: &StorePath) -> Option<GraphPath<'_>> {
        let number = self.numbers.get(path)?;
        Some(GraphPath(&self.rows[index(*number)]))
    }

    /// Returns the size of the closure of some paths.
    pub fn closure_size<'a>(&self, paths: impl IntoIterator<Item = &'a StorePath>) -> ClosureSize {
        let is_inside = self.closure(paths);
        let rows = self.rows.iter().zip(is_inside);
        let rows = rows.filter(|(_, is_inside)| *is_inside);
        rows.fold(ClosureSize::default(), |size, (row, _)| ClosureSize {
            paths: size.paths + 1,
            nar_bytes: size.nar_bytes.saturating_add(row.nar_size),
        })
    }

    /// Returns the paths that are in the closure of `paths` and not in that of `others`.
    pub fn only_in<'a>(
        &self,
        paths: impl IntoIterator<Item = &'a StorePath>,
        others: impl IntoIterator<Item = &'a StorePath>,
    ) -> Vec<GraphPath<'_>> {
        let (paths, others) = (self.closure(paths), self.closure(others));
        let rows = self.rows.iter().enumerate();
        rows.filter(|(number, _)| paths[*number] && !others[*number])
            .map(|(_, row)| GraphPath(row))
            .collect()
    }

    /// Returns a shortest chain of references between two paths, with both ends.
    pub fn chain(&self, from: &StorePath, to: &StorePath) -> Option<Vec<&StorePath>> {
        let (from, to) = (*self.numbers.get(from)?, *self.numbers.get(to)?);
        let mut referrers: HashMap<u32, u32> = HashMap::from([(from, from)]);
        let mut queue = VecDeque::from([from]);
        while let Some(number) = queue.pop_front() {
            if number == to {
                break;
            }
            for reference in self.of(number) {
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
        let paths = chain.iter().rev();
        Some(
            paths
                .map(|number| &self.rows[index(*number)].path)
                .collect(),
        )
    }

    /// For each path, whether it is in the closure.
    fn closure<'a>(&self, paths: impl IntoIterator<Item = &'a StorePath>) -> Vec<bool> {
        let mut is_inside = vec![false; self.rows.len()];
        let numbers = paths.into_iter().filter_map(|path| self.numbers.get(path));
        let mut todo: Vec<u32> = numbers.copied().collect();
        while let Some(number) = todo.pop() {
            if !std::mem::replace(&mut is_inside[index(number)], true) {
                let new = self.of(number).iter();
                todo.extend(new.filter(|number| !is_inside[index(**number)]));
            }
        }
        is_inside
    }
}

/// Returns the place of a path in a list of all paths.
fn index(number: u32) -> usize {
    number as usize
}
