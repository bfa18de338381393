//! The closures of paths in any store or cache, for the commands that look into them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use floe_format::{HashPart, StoreDir, StorePath, sum_of_sizes};
use floe_transfer::PathSpec;

use crate::args::{PathArgs, QueryArgs};
use crate::requested_paths::OpenSource;

/// The paths of one or more closures, with their references.
#[derive(Debug)]
pub(crate) struct Closures {
    pub(crate) store_dir: StoreDir,
    /// The paths that the user named, in their order.
    pub(crate) roots: Vec<StorePath>,
    paths: BTreeMap<StorePath, Node>,
}

/// A path in closures.
#[derive(Debug, Default)]
struct Node {
    nar_size: u64,
    references: BTreeSet<StorePath>,
}

impl Closures {
    /// Asks the store or cache of the arguments for the closures of paths.
    ///
    /// Errors: a path does not exist; those of the arguments and of the store.
    pub(crate) fn query(args: &QueryArgs, paths: &PathArgs) -> anyhow::Result<Closures> {
        let open = OpenSource::open(&args.source, &args.local, &args.options)?;
        Closures::query_in(&open, args, paths)
    }

    /// Asks an open store or cache for the closures of paths.
    ///
    /// Errors: a path does not exist; those of the store.
    pub(crate) fn query_in(
        open: &OpenSource,
        args: &QueryArgs,
        paths: &PathArgs,
    ) -> anyhow::Result<Closures> {
        let specs = open.requested(paths, &args.names)?;
        let queried = open.query(&specs, true)?;
        if let Some(absent) = queried.absent.into_iter().next() {
            return Err(absent.into());
        }
        let nodes = queried.found.into_iter().map(|(path, narinfo)| {
            let node = Node {
                nar_size: narinfo.info.nar_size,
                references: narinfo.info.references.into_iter().collect(),
            };
            (path, node)
        });
        let mut closures = Closures {
            store_dir: open.source().store_dir().clone(),
            roots: Vec::new(),
            paths: nodes.collect(),
        };
        closures.roots = closures.named(&specs);
        Ok(closures)
    }

    /// Returns the paths that specs name.
    fn named(&self, specs: &[PathSpec]) -> Vec<StorePath> {
        let by_hash_part: BTreeMap<HashPart, &StorePath> =
            self.paths.keys().map(|it| (it.hash_part(), it)).collect();
        let named = specs
            .iter()
            .filter_map(|it| by_hash_part.get(&it.hash_part()));
        named.map(|path| (*path).clone()).collect()
    }

    /// Returns a path if it is in the closures.
    pub(crate) fn find(&self, path: &StorePath) -> Option<&StorePath> {
        self.paths.get_key_value(path).map(|(path, _)| path)
    }

    /// The size of the NAR of a path, in bytes.
    pub(crate) fn nar_size(&self, path: &StorePath) -> u64 {
        self.paths.get(path).map_or(0, |node| node.nar_size)
    }

    /// The sum of the sizes of the NARs of paths, in bytes.
    pub(crate) fn size<'a>(&self, paths: impl IntoIterator<Item = &'a StorePath>) -> u64 {
        let sizes = paths.into_iter().map(|path| self.nar_size(path));
        // A cache may declare any sizes.
        sum_of_sizes(sizes)
    }

    /// The references of a path, by name, with itself if it refers to itself.
    pub(crate) fn references(&self, path: &StorePath) -> impl Iterator<Item = &StorePath> {
        self.paths
            .get(path)
            .into_iter()
            .flat_map(|it| &it.references)
    }

    /// The references of a path to others.
    pub(crate) fn other_references<'a>(
        &'a self,
        path: &'a StorePath,
    ) -> impl Iterator<Item = &'a StorePath> {
        self.references(path).filter(move |it| *it != path)
    }

    /// Returns the closure of a path.
    pub(crate) fn closure<'a>(&'a self, root: &'a StorePath) -> BTreeSet<&'a StorePath> {
        self.reachable([root], |_, _| true)
    }

    /// Returns the paths that can be reached over the references that `follows` allows.
    pub(crate) fn reachable<'a>(
        &'a self,
        from: impl IntoIterator<Item = &'a StorePath>,
        follows: impl Fn(&StorePath, &StorePath) -> bool,
    ) -> BTreeSet<&'a StorePath> {
        let mut found: BTreeSet<&StorePath> = from.into_iter().collect();
        let mut next: Vec<&StorePath> = found.iter().copied().collect();
        while let Some(path) = next.pop() {
            for reference in self.references(path) {
                if follows(path, reference) && found.insert(reference) {
                    next.push(reference);
                }
            }
        }
        found
    }

    /// Returns the number of references between each path and `target`, for the paths that need
    /// it.
    pub(crate) fn distances<'a>(&'a self, target: &'a StorePath) -> BTreeMap<&'a StorePath, u64> {
        let mut referrers: BTreeMap<&StorePath, Vec<&StorePath>> = BTreeMap::new();
        for path in self.paths.keys() {
            for reference in self.references(path) {
                referrers.entry(reference).or_default().push(path);
            }
        }
        let mut distances = BTreeMap::from([(target, 0)]);
        let mut next = VecDeque::from([(target, 0)]);
        while let Some((path, distance)) = next.pop_front() {
            for referrer in referrers.get(path).into_iter().flatten().copied() {
                if !distances.contains_key(referrer) {
                    distances.insert(referrer, distance + 1);
                    next.push_back((referrer, distance + 1));
                }
            }
        }
        distances
    }
}

#[cfg(test)]
impl Closures {
    /// Makes closures of paths with their sizes and references. The first path is the root.
    pub(crate) fn of(paths: &[(&str, u64, &[&str])]) -> Closures {
        let path = |name: &str| {
            let hash = name.repeat(32);
            StorePath::parse(&format!("{}-{name}", &hash[..32])).unwrap()
        };
        let nodes = paths.iter().map(|(name, nar_size, references)| {
            let node = Node {
                nar_size: *nar_size,
                references: references.iter().map(|it| path(it)).collect(),
            };
            (path(name), node)
        });
        Closures {
            store_dir: StoreDir::default(),
            roots: vec![path(paths[0].0)],
            paths: nodes.collect(),
        }
    }
}
