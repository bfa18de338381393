//! `floe why-depends`: shows the references that lead from one path to another.

pub(crate) mod args;
pub(crate) mod page;
mod places;

use std::collections::{BTreeMap, BTreeSet};
use std::iter::{once, repeat};

use anyhow::{Context as _, bail};
use floe_format::{HashPart, StorePath};
use floe_transfer::PathSpec;
use serde_json::{Map, Value, json};

use crate::args::PathArgs;
use crate::closures::Closures;
use crate::requested_paths::OpenSource;
use crate::stdout::{LongOutput, print};
use crate::tree_lines::{Occurrence, draw_trees};
use args::WhyDependsArgs;
use places::{Place, places};

pub(crate) fn run(args: &WhyDependsArgs) -> anyhow::Result<()> {
    let paths = vec![args.package.clone(), args.dependency.clone()];
    let paths = PathArgs::new(false, false, paths);
    let query = &args.closure.query;
    let open = OpenSource::open(&query.source, &query.local, &query.options)?;
    let closures = Closures::query_in(&open, query, &paths)?;
    let [package, dependency] = &closures.roots[..] else {
        bail!("cannot compare {} paths; try two", closures.roots.len());
    };
    let distances = closures.distances(dependency);
    let Some(distance) = distances.get(package) else {
        bail!(
            "{} does not depend on {}",
            closures.store_dir.full_path(package),
            closures.store_dir.full_path(dependency)
        );
    };
    let chains = Chains {
        closures: &closures,
        package,
        dependency,
        distances: &distances,
        shows_all: args.all,
    };
    let source = args.precise.then_some(&open);
    if args.closure.json {
        return print(chains.to_json(*distance, source)?);
    }
    match source {
        Some(source) => chains.draw_places(source),
        None => chains.draw(),
    }
}

/// The chains of references between two paths.
struct Chains<'a> {
    closures: &'a Closures,
    package: &'a StorePath,
    dependency: &'a StorePath,
    distances: &'a BTreeMap<&'a StorePath, u64>,
    shows_all: bool,
}

impl<'a> Chains<'a> {
    /// The references of a path that lead to the dependency, the shortest chain first.
    fn next(&self, path: &'a StorePath) -> Vec<&'a StorePath> {
        if path == self.dependency && self.package != self.dependency {
            return Vec::new();
        }
        // As in Nix, a reference of a path to itself answers why the path needs itself.
        let is_shown = |it: &&StorePath| *it != path || self.package == self.dependency;
        let references = self.closures.references(path).filter(is_shown);
        let mut next: Vec<(u64, &StorePath)> = references
            .filter_map(|it| Some((*self.distances.get(it)?, it)))
            .collect();
        next.sort();
        if !self.shows_all {
            next.truncate(1);
        }
        next.into_iter().map(|(_, path)| path).collect()
    }

    /// Writes a line for each path on a chain.
    fn draw(&self) -> anyhow::Result<()> {
        let mut output = LongOutput::new();
        let mut write = |before: &str, path: &&StorePath, _| {
            let full = self.closures.store_dir.full_path(path);
            Ok(output.write(format_args!("{before}{full}\n")))
        };
        draw_trees([self.package], &mut |path| Ok(self.next(path)), &mut write)?;
        output.finish()
    }

    /// Writes the places that hold each reference, and then the path that it leads to. As in Nix,
    /// a path on the shortest chain has one place.
    fn draw_places(&self, source: &OpenSource) -> anyhow::Result<()> {
        let mut output = LongOutput::new();
        // The paths from the root to the last line, and the places of their references.
        let mut above: Vec<BTreeMap<HashPart, Vec<Place>>> = Vec::new();
        let mut write = |before: &str, path: &&StorePath, occurrence| {
            let full = self.closures.store_dir.full_path(path);
            let depth = before.chars().count() / BRANCH_LEN;
            above.truncate(depth);
            let lines = match above.last_mut() {
                None => format!("{full}\n"),
                Some(places) => {
                    let places = places.remove(&path.hash_part()).unwrap_or_default();
                    place_lines(before, &places, &full)
                }
            };
            above.push(match occurrence {
                Occurrence::First => self.places(source, path)?,
                Occurrence::Again => BTreeMap::new(),
            });
            Ok(output.write(lines))
        };
        draw_trees([self.package], &mut |path| Ok(self.next(path)), &mut write)?;
        output.finish()
    }

    /// Returns the places of the references of a path that lead to the dependency.
    fn places(
        &self,
        open: &OpenSource,
        path: &'a StorePath,
    ) -> anyhow::Result<BTreeMap<HashPart, Vec<Place>>> {
        let next = self.next(path);
        if next.is_empty() {
            return Ok(BTreeMap::new());
        }
        let found = open
            .query(&[PathSpec::Path(path.clone())], false)?
            .complete()?;
        let narinfo = found.get(path).context("the path was there a moment ago")?;
        places(open.source(), narinfo, &next, self.shows_all)
    }

    /// Returns the length of the shortest chain, and the references of each path on a chain, with
    /// their places if a source is given.
    fn to_json(&self, distance: u64, source: Option<&OpenSource>) -> anyhow::Result<Value> {
        let dir = &self.closures.store_dir;
        let mut found = BTreeSet::from([self.package]);
        let mut left = vec![self.package];
        let (mut references, mut all_places) = (Map::new(), Map::new());
        while let Some(path) = left.pop() {
            let next = self.next(path);
            let texts: Vec<String> = next.iter().map(|it| dir.full_path(it)).collect();
            references.insert(dir.full_path(path), texts.into());
            if let Some(source) = source {
                let places = self.places(source, path)?;
                let places = next.iter().map(|it| {
                    let places = places.get(&it.hash_part()).into_iter().flatten();
                    let places = places.map(Place::to_json).collect::<Vec<Value>>();
                    (dir.full_path(it), places.into())
                });
                let places = places.collect::<Map<String, Value>>();
                all_places.insert(dir.full_path(path), places.into());
            }
            left.extend(next.into_iter().filter(|it| found.insert(it)));
        }
        let mut object = json!({
            "package": dir.full_path(self.package),
            "dependency": dir.full_path(self.dependency),
            "distance": distance,
            "references": references,
        });
        if source.is_some() {
            object["places"] = all_places.into();
        }
        Ok(object)
    }
}

/// Returns the lines of the places that hold a reference, and of the path that it leads to.
/// `before` ends with the branch of the first line.
fn place_lines(before: &str, places: &[Place], path: &str) -> String {
    let branch_start = before.char_indices().nth_back(BRANCH_LEN - 1);
    let (padding, branch) = before.split_at(branch_start.map_or(0, |(at, _)| at));
    let rest = if branch.starts_with('├') {
        "│   "
    } else {
        "    "
    };
    let mut lines = String::new();
    for (place, branch) in places.iter().zip(once(branch).chain(repeat(rest))) {
        lines += &format!("{padding}{branch}{}\n", place.to_text());
    }
    lines + &format!("{padding}{rest}→ {path}\n")
}

/// How many characters a level of the tree takes.
const BRANCH_LEN: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shortest_chain_comes_first_and_others_are_shown_on_demand() {
        let closures = Closures::of(&[
            ("0", 1, &["0", "1", "2", "4"]),
            ("1", 1, &["2"]),
            ("2", 1, &["3"]),
            ("3", 1, &["3"]),
            ("4", 1, &[]),
        ]);
        let paths: Vec<&StorePath> = closures.closure(&closures.roots[0]).into_iter().collect();
        let distances = closures.distances(paths[3]);
        assert_eq!(distances.get(paths[0]), Some(&2));
        assert_eq!(distances.get(paths[4]), None);
        for (shows_all, expected) in [(false, "2"), (true, "21")] {
            let chains = Chains {
                closures: &closures,
                package: paths[0],
                dependency: paths[3],
                distances: &distances,
                shows_all,
            };
            let names: String = chains.next(paths[0]).iter().map(|it| it.name()).collect();
            assert_eq!(names, expected);
        }
    }
}
