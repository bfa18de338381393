//! All valid paths of a store and the edges between them, in little memory: about 200 bytes for
//! each path and 8 bytes for each reference.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;

use floe_format::{HashPart, StoreDir, StorePath};

use super::GcSettings;
use crate::db::Database;
use crate::disk::{StoreLayout, list_directory};
use crate::error::StoreError;

/// The number of a path in a [`PathGraph`].
pub(super) type PathNumber = u32;

/// The valid paths of a store with their references.
#[derive(Debug)]
pub(super) struct PathGraph {
    rows: Vec<PathRow>,
    numbers: Numbers,
    references: Edges,
    /// The paths that a live path keeps besides its references: its deriver with
    /// `keep-derivations`, its outputs with `keep-outputs`.
    also_kept: Edges,
    /// The paths that rows name which do not parse. The collector keeps them, because it does not
    /// understand these rows.
    kept_by_damaged_rows: Vec<PathNumber>,
    /// The names of files that such rows name.
    names_in_damaged_rows: HashSet<OsString>,
    /// The hash parts that such rows name.
    hash_parts_in_damaged_rows: HashSet<HashPart>,
    /// The references of valid paths that name no known path. Any file may be the missing one.
    dangling: Vec<DanglingReference>,
}

/// A reference of a valid path to a row that does not exist, or that names no file of the store.
#[derive(Debug)]
pub(super) struct DanglingReference {
    pub(super) referrer: PathNumber,
    /// The number of the row in the table of references.
    row: i64,
    /// The number of the row of the reference, if it is a number.
    reference: Option<i64>,
}

/// The numbers of paths by their hash parts.
#[derive(Debug, Default)]
struct Numbers {
    first: HashMap<HashPart, PathNumber>,
    /// Paths whose hash part another path has too, which only a damaged database has.
    others: Vec<(HashPart, PathNumber)>,
}

impl Numbers {
    fn insert(&mut self, hash_part: HashPart, number: PathNumber) {
        if let Entry::Vacant(entry) = self.first.entry(hash_part) {
            entry.insert(number);
        } else {
            self.others.push((hash_part, number));
        }
    }

    /// Returns the numbers of all paths with a hash part.
    fn all(&self, hash_part: HashPart) -> impl Iterator<Item = PathNumber> + '_ {
        let first = self.first.get(&hash_part).copied();
        let others = self.others.iter().filter(move |it| it.0 == hash_part);
        first.into_iter().chain(others.map(|it| it.1))
    }
}

/// The rows whose paths do not parse, and what they name.
#[derive(Default)]
struct DamagedNames {
    /// The bytes of the paths, by the numbers of the rows.
    texts: HashMap<i64, Vec<u8>>,
    /// The hash parts of their derivers and outputs.
    hash_parts: HashSet<HashPart>,
}

impl DamagedNames {
    /// Returns the names of files in the store directory that the rows name, and the hash parts of
    /// paths.
    fn names(mut self, dir: &StoreDir) -> (HashSet<OsString>, HashSet<HashPart>) {
        let texts = self.texts.values();
        let names: HashSet<OsString> = texts
            .filter_map(|text| named_file(text, dir))
            .map(|name| OsStr::from_bytes(name).into())
            .collect();
        // The damage may be in the name that follows.
        let hash_parts = names.iter().filter_map(|name| leading_hash_part(name));
        self.hash_parts.extend(hash_parts);
        (names, self.hash_parts)
    }

    /// Whether a row names a file of the store directory, or one with the same hash part.
    fn is_on_disk(&self, row: i64, layout: &StoreLayout) -> bool {
        let text = self.texts.get(&row);
        let name = text.and_then(|text| named_file(text, &layout.store_dir));
        let Some(name) = name.map(OsStr::from_bytes) else {
            return false;
        };
        let hash_part = leading_hash_part(name);
        let names = list_directory(&layout.real_store_dir);
        let mut names = names.into_iter().flatten().flatten();
        names.any(|found| {
            let found = found.file_name();
            found == name || hash_part.is_some() && leading_hash_part(found) == hash_part
        })
    }
}

/// Returns the hash part at the beginning of a name.
fn leading_hash_part(name: &OsStr) -> Option<HashPart> {
    let first = name.as_bytes().get(..HashPart::LEN)?;
    HashPart::parse(str::from_utf8(first).ok()?)
}

/// Returns the name of the file that a text names: the first name in the store directory, or the
/// last name of a path elsewhere. Nix reads a text up to its first zero byte.
fn named_file<'a>(text: &'a [u8], dir: &StoreDir) -> Option<&'a [u8]> {
    let text = text.split(|byte| *byte == 0).next()?;
    let inside = text.strip_prefix(dir.as_str().as_bytes());
    let inside = inside.filter(|rest| rest.starts_with(b"/"));
    let mut names = inside.unwrap_or(text).split(|byte| *byte == b'/');
    match inside {
        Some(_) => names.find(|name| !name.is_empty()),
        None => names.rfind(|name| !name.is_empty()),
    }
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

/// The rows of the table of paths.
#[derive(Default)]
struct ListedPaths {
    /// The valid paths, sorted by the numbers of their rows.
    rows: Vec<PathRow>,
    numbers: Numbers,
    /// The derivers that keep-derivations keeps.
    derivers: Vec<(PathNumber, HashPart)>,
    damaged: DamagedNames,
}

/// The rows of the table of references.
#[derive(Default)]
struct References {
    /// The references between valid paths.
    edges: Vec<(PathNumber, PathNumber)>,
    /// The paths to which other rows refer.
    kept: Vec<PathNumber>,
    dangling: Vec<DanglingReference>,
}

impl ListedPaths {
    fn read(database: &Database, settings: &GcSettings) -> Result<ListedPaths, StoreError> {
        let mut listed = ListedPaths::default();
        database.for_each_row(&mut |row| {
            let path = match row.path {
                Ok(path) => path,
                Err(text) => {
                    listed.damaged.texts.insert(row.row, text);
                    listed.damaged.hash_parts.extend(row.deriver);
                    return;
                }
            };
            let number = number_of_len(listed.rows.len());
            listed.numbers.insert(path.hash_part(), number);
            let deriver = row.deriver.filter(|_| settings.keep_derivations);
            let deriver = deriver.map(|deriver| (number, deriver));
            listed.derivers.extend(deriver);
            listed.rows.push(PathRow {
                row: row.row,
                path,
                nar_size: row.nar_size.unwrap_or_default(),
            });
        })?;
        Ok(listed)
    }

    fn number_of_row(&self, row: i64) -> Option<PathNumber> {
        let found = self.rows.binary_search_by_key(&row, |it| it.row);
        found.ok().map(number_of_len)
    }

    fn read_references(&self, database: &Database) -> Result<References, StoreError> {
        let mut found = References::default();
        database.for_each_reference(&mut |row, [referrer, reference]| {
            let from = referrer.and_then(|row| self.number_of_row(row));
            let to = reference.and_then(|row| self.number_of_row(row));
            match (from, to) {
                (Some(from), Some(to)) => found.edges.extend((from != to).then_some((from, to))),
                // The database forbids to delete a path with such a reference.
                (None, Some(to)) => {
                    found.kept.push(to);
                    let is_damaged = |referrer| self.damaged.texts.contains_key(&referrer);
                    if !referrer.is_some_and(is_damaged) {
                        database.record_dangling_reference(row, referrer);
                    }
                }
                (Some(referrer), None) => found.dangling.push(DanglingReference {
                    referrer,
                    row,
                    reference,
                }),
                (None, None) => {}
            }
        })?;
        Ok(found)
    }

    /// Returns derivations with the outputs that keep-outputs keeps. Adds the outputs of damaged
    /// rows to their names.
    fn read_outputs(
        &mut self,
        database: &Database,
        settings: &GcSettings,
    ) -> Result<Vec<(PathNumber, PathNumber)>, StoreError> {
        let mut outputs = Vec::new();
        if !settings.keep_outputs && self.damaged.texts.is_empty() {
            return Ok(outputs);
        }
        database.for_each_output(&mut |derivation, output| {
            if self.damaged.texts.contains_key(&derivation) {
                self.damaged.hash_parts.insert(output);
            } else if settings.keep_outputs {
                let derivation = self.number_of_row(derivation).into_iter();
                let all = |it| self.numbers.all(output).map(move |to| (it, to));
                outputs.extend(derivation.flat_map(all));
            }
        })?;
        Ok(outputs)
    }
}

impl PathGraph {
    /// Reads the whole database at one moment.
    pub(super) fn read(
        database: &Database,
        settings: &GcSettings,
    ) -> Result<PathGraph, StoreError> {
        let snapshot = database.begin_snapshot()?;
        let mut listed = ListedPaths::read(database, settings)?;
        let References {
            edges,
            mut kept,
            mut dangling,
        } = listed.read_references(database)?;
        let mut also_kept = listed.read_outputs(database, settings)?;
        drop(snapshot);
        let ListedPaths {
            rows,
            numbers,
            derivers,
            damaged,
        } = listed;
        also_kept.extend(derivers.iter().flat_map(|(path, deriver)| {
            let derivers = numbers.all(*deriver);
            derivers.map(move |deriver| (*path, deriver))
        }));
        let layout = database.layout();
        let mut known = HashMap::new();
        dangling.retain(|it: &DanglingReference| {
            let mut is_known = |row| {
                *known
                    .entry(row)
                    .or_insert_with(|| damaged.is_on_disk(row, layout))
            };
            !it.reference.is_some_and(&mut is_known)
        });
        let (names, hash_parts) = damaged.names(&layout.store_dir);
        kept.extend(hash_parts.iter().flat_map(|part| numbers.all(*part)));
        Ok(PathGraph {
            references: Edges::new(rows.len(), &edges),
            also_kept: Edges::new(rows.len(), &also_kept),
            kept_by_damaged_rows: kept,
            names_in_damaged_rows: names,
            hash_parts_in_damaged_rows: hash_parts,
            dangling,
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

    /// Returns the numbers of the paths with this hash part.
    pub(super) fn numbers_of_hash_part(
        &self,
        hash_part: HashPart,
    ) -> impl Iterator<Item = PathNumber> + '_ {
        self.numbers.all(hash_part)
    }

    /// Returns the number of a valid path.
    pub(super) fn number(&self, path: &StorePath) -> Option<PathNumber> {
        let mut numbers = self.numbers_of_hash_part(path.hash_part());
        numbers.find(|number| self.row(*number).path == *path)
    }

    /// Returns the paths that stay because rows name them which do not parse.
    pub(super) fn kept_by_damaged_rows(&self) -> &[PathNumber] {
        &self.kept_by_damaged_rows
    }

    /// Whether a row that does not parse names this file of the store directory.
    pub(super) fn is_in_damaged_row(&self, name: &OsStr) -> bool {
        let hash_part = leading_hash_part(name);
        self.names_in_damaged_rows.contains(name)
            || hash_part.is_some_and(|part| self.hash_parts_in_damaged_rows.contains(&part))
    }

    /// Returns a reference of a path that names no known path, if any of the paths has one, and
    /// records all of them. `stays` tells whether a path is not to be deleted.
    pub(super) fn find_dangling(
        &self,
        database: &Database,
        stays: impl Fn(PathNumber) -> bool,
    ) -> Option<&DanglingReference> {
        let mut found = None;
        for dangling in self.dangling.iter().filter(|it| stays(it.referrer)) {
            let path = &self.row(dangling.referrer).path;
            database.record_lost_reference(dangling.row, path, dangling.reference);
            found.get_or_insert(dangling);
        }
        found
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
