//! All valid paths of a store and the edges between them, in little memory: about 200 bytes for
//! each path and 8 bytes for each reference.

use std::collections::HashMap;

use floe_format::{HashPart, StorePath};

use super::GcSettings;
use crate::db::Database;
use crate::error::StoreError;

/// The number of a path in a [`PathGraph`].
pub(super) type PathNumber = u32;

/// The valid paths of a store with their references.
#[derive(Debug)]
pub(super) struct PathGraph {
    rows: Vec<PathRow>,
    numbers: HashMap<HashPart, PathNumber>,
    references: Edges,
    /// The paths that a live path keeps besides its references: its deriver with
    /// `keep-derivations`, its outputs with `keep-outputs`.
    also_kept: Edges,
}

/// The row of a valid path.
#[derive(Debug)]
pub(super) struct PathRow {
    /// The number of the row in the database.
    pub(super) row: i64,
    pub(super) path: StorePath,
    /// The size of the NAR in bytes; 0 if the database does not have it.
    pub(super) nar_size: u64,
}

impl PathGraph {
    /// Reads the whole database at one moment.
    pub(super) fn read(
        database: &Database,
        settings: &GcSettings,
    ) -> Result<PathGraph, StoreError> {
        let mut rows: Vec<PathRow> = Vec::new();
        let mut numbers = HashMap::new();
        let (mut derivers, mut outputs) = (Vec::new(), Vec::new());
        let mut references = Vec::new();
        let snapshot = database.begin_snapshot()?;
        database.for_each_row(&mut |row, path, nar_size, deriver| {
            let number = number_of_len(rows.len());
            numbers.insert(path.hash_part(), number);
            let deriver = deriver.filter(|_| settings.keep_derivations);
            derivers.extend(deriver.map(|deriver| (number, deriver)));
            rows.push(PathRow {
                row,
                path,
                nar_size,
            });
        })?;
        let number_of_row = |row: i64| {
            let found = rows.binary_search_by_key(&row, |it| it.row);
            found.ok().map(number_of_len)
        };
        database.for_each_reference(&mut |referrer, reference| {
            let ends = number_of_row(referrer).zip(number_of_row(reference));
            references.extend(ends.filter(|(from, to)| from != to));
        })?;
        if settings.keep_outputs {
            database.for_each_output(&mut |derivation, output| {
                outputs.extend(number_of_row(derivation).zip(numbers.get(&output).copied()));
            })?;
        }
        drop(snapshot);
        let mut also_kept = outputs;
        also_kept.extend(derivers.iter().filter_map(|(path, deriver)| {
            let deriver = numbers.get(deriver).copied();
            deriver.map(|deriver| (*path, deriver))
        }));
        Ok(PathGraph {
            references: Edges::new(rows.len(), &references),
            also_kept: Edges::new(rows.len(), &also_kept),
            numbers,
            rows,
        })
    }

    /// The number of paths.
    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }

    /// The numbers of all paths.
    pub(super) fn all(&self) -> impl Iterator<Item = PathNumber> + use<> {
        0..number_of_len(self.rows.len())
    }

    /// Returns the row of a path.
    pub(super) fn row(&self, number: PathNumber) -> &PathRow {
        &self.rows[index(number)]
    }

    /// Returns the number of the path with this hash part.
    pub(super) fn number_of_hash_part(&self, hash_part: HashPart) -> Option<PathNumber> {
        self.numbers.get(&hash_part).copied()
    }

    /// Returns the number of a valid path.
    pub(super) fn number(&self, path: &StorePath) -> Option<PathNumber> {
        let number = self.number_of_hash_part(path.hash_part())?;
        (self.row(number).path == *path).then_some(number)
    }

    /// Returns the references of a path without the path itself.
    pub(super) fn references(&self, number: PathNumber) -> &[PathNumber] {
        self.references.of(number)
    }

    /// Returns the paths that a live path keeps: its references, and what the settings keep.
    pub(super) fn kept(&self, number: PathNumber) -> impl Iterator<Item = PathNumber> + '_ {
        let also = self.also_kept.of(number);
        self.references(number).iter().chain(also).copied()
    }

    /// Marks paths and all that they keep. `is_live` has an entry for each path.
    pub(super) fn mark_live(
        &self,
        paths: impl IntoIterator<Item = PathNumber>,
        is_live: &mut [bool],
    ) {
        let mut todo: Vec<PathNumber> = paths.into_iter().collect();
        while let Some(number) = todo.pop() {
            if !std::mem::replace(&mut is_live[index(number)], true) {
                todo.extend(self.kept(number).filter(|kept| !is_live[index(*kept)]));
            }
        }
    }

    /// Returns the chosen paths, each after those of them that refer to it. Paths that refer to
    /// each other in a circle, and their references, are left out.
    pub(super) fn referrers_first(&self, is_chosen: &[bool]) -> Vec<PathNumber> {
        let chosen = || self.all().filter(|number| is_chosen[index(*number)]);
        let mut referrers = vec![0_u32; self.len()];
        for reference in chosen().flat_map(|number| self.references(number)) {
            referrers[index(*reference)] += 1;
        }
        let has_none = |number: &PathNumber| referrers[index(*number)] == 0;
        let mut sorted: Vec<PathNumber> = chosen().filter(has_none).collect();
        let mut next = 0;
        while let Some(number) = sorted.get(next).copied() {
            next += 1;
            for reference in self.references(number) {
                let left = &mut referrers[index(*reference)];
                *left -= 1;
                if *left == 0 && is_chosen[index(*reference)] {
                    sorted.push(*reference);
                }
            }
        }
        sorted
    }

    /// Returns the referrers of each path.
    pub(super) fn referrers(&self) -> Edges {
        let pairs = self.all().flat_map(|referrer| {
            let references = self.references(referrer).iter();
            references.map(move |reference| (*reference, referrer))
        });
        Edges::new(self.len(), &pairs.collect::<Vec<_>>())
    }

    /// Returns the paths that keep each path if they live: its referrers, and others by the
    /// settings.
    pub(super) fn keepers(&self) -> Edges {
        let pairs = self.all().flat_map(|keeper| {
            let kept = self.kept(keeper);
            kept.map(move |kept| (kept, keeper))
        });
        Edges::new(self.len(), &pairs.collect::<Vec<_>>())
    }
}

/// Edges between paths, in the order of the paths from which they start.
#[derive(Debug)]
pub(super) struct Edges {
    /// For each path the place of its first edge in `ends`, and the number of all edges.
    starts: Vec<usize>,
    ends: Vec<PathNumber>,
}

impl Edges {
    /// Sorts pairs of start and end.
    fn new(paths: usize, pairs: &[(PathNumber, PathNumber)]) -> Edges {
        let mut starts = vec![0; paths + 1];
        for (start, _) in pairs {
            starts[index(*start) + 1] += 1;
        }
        for number in 0..paths {
            starts[number + 1] += starts[number];
        }
        let mut next = starts.clone();
        let mut ends = vec![0; pairs.len()];
        for (start, end) in pairs {
            let place = &mut next[index(*start)];
            ends[*place] = *end;
            *place += 1;
        }
        Edges { starts, ends }
    }

    /// Returns the ends of the edges that start at a path.
    pub(super) fn of(&self, number: PathNumber) -> &[PathNumber] {
        let number = index(number);
        &self.ends[self.starts[number]..self.starts[number + 1]]
    }
}

/// Returns the place of a path in a list of all paths.
pub(super) fn index(number: PathNumber) -> usize {
    number as usize
}

/// Row numbers have 63 bits, but no store has 2³² paths.
fn number_of_len(len: usize) -> PathNumber {
    PathNumber::try_from(len).unwrap_or(PathNumber::MAX)
}
