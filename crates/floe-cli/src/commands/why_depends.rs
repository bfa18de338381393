//! `floe why-depends`: shows the references that lead from one path to another.

pub(crate) mod args;
pub(crate) mod page;

use std::collections::{BTreeMap, BTreeSet};

use anyhow::bail;
use floe_format::StorePath;
use serde_json::{Map, Value, json};

use crate::args::PathArgs;
use crate::closures::Closures;
use crate::stdout::{LongOutput, print};
use crate::tree_lines::draw_trees;
use args::WhyDependsArgs;

pub(crate) fn run(args: &WhyDependsArgs) -> anyhow::Result<()> {
    let paths = vec![args.package.clone(), args.dependency.clone()];
    let closures = Closures::query(&args.closure, &PathArgs::new(false, false, paths))?;
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
    if args.closure.json {
        return print(chains.to_json(*distance));
    }
    let mut output = LongOutput::new();
    let mut write = |before: &str, path: &&StorePath, _| {
        let full = closures.store_dir.full_path(path);
        Ok(output.write(format_args!("{before}{full}\n")))
    };
    draw_trees([package], &mut |path| Ok(chains.next(path)), &mut write)?;
    output.finish()
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

    /// Returns the length of the shortest chain, and the references of each path on a chain.
    fn to_json(&self, distance: u64) -> Value {
        let dir = &self.closures.store_dir;
        let mut found = BTreeSet::from([self.package]);
        let mut left = vec![self.package];
        let mut references = Map::new();
        while let Some(path) = left.pop() {
            let next = self.next(path);
            let texts: Vec<String> = next.iter().map(|it| dir.full_path(it)).collect();
            references.insert(dir.full_path(path), texts.into());
            left.extend(next.into_iter().filter(|it| found.insert(it)));
        }
        json!({
            "package": dir.full_path(self.package),
            "dependency": dir.full_path(self.dependency),
            "distance": distance,
            "references": references,
        })
    }
}

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
