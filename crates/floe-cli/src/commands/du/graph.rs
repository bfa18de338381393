//! The references of a closure as a graph.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use floe_format::StorePath;
use petgraph::algo::dominators;
use petgraph::graph::{DiGraph, NodeIndex};
use petgraph::visit::{DfsPostOrder, Walker as _};

use crate::closures::Closures;

/// The closure of a path. References of a path to itself are left out.
pub(super) struct ClosureGraph<'a> {
    closures: &'a Closures,
    root: NodeIndex,
    /// Each node is a path of the closure.
    graph: DiGraph<&'a StorePath, ()>,
    /// All paths. A path comes before its references, unless a cache declares a circle.
    order: Vec<NodeIndex>,
}

/// The part of a closure that a reference of its root brings in.
pub(super) struct Share<'a> {
    pub(super) path: &'a StorePath,
    /// The size of the closure of the reference, in bytes.
    pub(super) closure_size: u64,
    /// The size of the paths that no other reference brings in, in bytes.
    pub(super) only_size: u64,
}

/// A path in the tree of what each path brings in.
pub(super) struct Branch<'a> {
    pub(super) path: &'a StorePath,
    /// The nearest path without which the closure would not have this one. The root has none.
    pub(super) parent: Option<&'a StorePath>,
    /// The size of what the closure loses without this path, in bytes.
    pub(super) only_size: u64,
}

impl<'a> ClosureGraph<'a> {
    pub(super) fn of(closures: &'a Closures, root: &'a StorePath) -> ClosureGraph<'a> {
        let mut graph = DiGraph::new();
        let paths = closures.closure(root);
        let nodes: BTreeMap<&StorePath, NodeIndex> =
            paths.iter().map(|it| (*it, graph.add_node(*it))).collect();
        for (path, node) in &nodes {
            for reference in closures.other_references(path) {
                graph.add_edge(*node, nodes[reference], ());
            }
        }
        let root = nodes[root];
        let mut order: Vec<NodeIndex> = DfsPostOrder::new(&graph, root).iter(&graph).collect();
        order.reverse();
        ClosureGraph {
            closures,
            root,
            graph,
            order,
        }
    }

    /// The number of paths.
    pub(super) fn len(&self) -> usize {
        self.order.len()
    }

    /// The sum of the NAR sizes, in bytes.
    pub(super) fn nar_size(&self) -> u64 {
        self.closures.size(self.graph.node_weights().copied())
    }

    /// Returns the shares of the references of the root, the largest one first.
    pub(super) fn shares(&self) -> Vec<Share<'a>> {
        let references: Vec<NodeIndex> = self.graph.neighbors(self.root).collect();
        let share = |node: &NodeIndex| Share {
            path: self.graph[*node],
            closure_size: 0,
            only_size: 0,
        };
        let mut shares: Vec<Share<'_>> = references.iter().map(share).collect();
        // How many references lead to each path, and the last of them.
        let mut leading = vec![(0, 0); self.graph.node_count()];
        for (first, group) in (0..).step_by(GROUP_LEN).zip(references.chunks(GROUP_LEN)) {
            let reached = self.reached_from(group);
            for node in &self.order {
                let mut group = reached[node.index()];
                let (count, last) = &mut leading[node.index()];
                *count += group.count_ones();
                while group != 0 {
                    *last = first + group.trailing_zeros() as usize;
                    group &= group - 1;
                    add(&mut shares[*last].closure_size, self.size(*node));
                }
            }
        }
        for node in &self.order {
            if let (1, reference) = leading[node.index()] {
                add(&mut shares[reference].only_size, self.size(*node));
            }
        }
        shares.sort_by_key(|it| (Reverse((it.only_size, it.closure_size)), it.path));
        shares
    }

    /// Returns for each node which of at most 64 nodes lead to it, a bit for each of them.
    fn reached_from(&self, nodes: &[NodeIndex]) -> Vec<u64> {
        let mut reached = vec![0; self.graph.node_count()];
        for (bit, node) in nodes.iter().enumerate() {
            reached[node.index()] = 1 << bit;
        }
        // The second round finds nothing new, unless there is a circle.
        let mut changes = true;
        while std::mem::take(&mut changes) {
            for node in self.order.iter().filter(|it| **it != self.root) {
                for reference in self.graph.neighbors(*node) {
                    let all = reached[reference.index()] | reached[node.index()];
                    changes |= all != reached[reference.index()];
                    reached[reference.index()] = all;
                }
            }
        }
        reached
    }

    /// Returns the dominator tree, a parent before its branches.
    pub(super) fn branches(&self) -> Vec<Branch<'a>> {
        let dominators = dominators::simple_fast(&self.graph, self.root);
        let mut only_sizes = vec![0; self.graph.node_count()];
        for node in self.order.iter().rev() {
            add(&mut only_sizes[node.index()], self.size(*node));
            if let Some(parent) = dominators.immediate_dominator(*node) {
                let size = only_sizes[node.index()];
                add(&mut only_sizes[parent.index()], size);
            }
        }
        let branch = |node: &NodeIndex| Branch {
            path: self.graph[*node],
            parent: dominators
                .immediate_dominator(*node)
                .map(|it| self.graph[it]),
            only_size: only_sizes[node.index()],
        };
        self.order.iter().map(branch).collect()
    }

    fn size(&self, node: NodeIndex) -> u64 {
        self.closures.nar_size(self.graph[node])
    }
}

/// Adds sizes. A cache may declare any.
fn add(sum: &mut u64, size: u64) {
    *sum = sum.saturating_add(size);
}

/// How many references are followed at once: the bits of a number.
const GROUP_LEN: usize = u64::BITS as usize;

#[cfg(test)]
mod tests {
    use super::*;

    /// The closure of `0`.
    fn closures() -> Closures {
        Closures::of(&[
            ("0", 1, &["0", "1", "2", "4"]),
            ("1", 10, &["3"]),
            ("2", 100, &["3", "4"]),
            ("3", 1000, &[]),
            ("4", 10_000, &["5"]),
            ("5", 100_000, &["5"]),
        ])
    }

    #[test]
    fn shared_paths_count_for_no_reference_alone() {
        let closures = closures();
        let graph = ClosureGraph::of(&closures, &closures.roots[0]);
        assert_eq!((graph.nar_size(), graph.len()), (111_111, 6));
        let shares = graph.shares();
        let shares = shares.iter();
        let shares: Vec<_> = shares
            .map(|it| (it.path.name(), it.closure_size, it.only_size))
            .collect();
        assert_eq!(
            shares,
            [("2", 111_100, 100), ("1", 1010, 10), ("4", 110_000, 0)]
        );
    }

    #[test]
    fn branch_has_what_the_closure_loses_without_it() {
        let closures = closures();
        let graph = ClosureGraph::of(&closures, &closures.roots[0]);
        let mut branches = graph.branches();
        branches.sort_by_key(|it| it.path);
        let branches = branches.iter();
        let branches: Vec<_> = branches
            .map(|it| (it.path.name(), it.parent.map(StorePath::name), it.only_size))
            .collect();
        assert_eq!(
            branches,
            [
                ("0", None, 111_111),
                ("1", Some("0"), 10),
                ("2", Some("0"), 100),
                ("3", Some("0"), 1000),
                ("4", Some("0"), 110_000),
                ("5", Some("4"), 100_000),
            ]
        );
    }

    /// The definition: a share is what the closure loses without the reference.
    #[test]
    fn shares_of_many_references_are_what_the_closure_loses() {
        let names: Vec<String> = (0..300_u32).map(|it| format!("{it:032}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let references: Vec<Vec<&str>> = (0..300)
            .map(|it| match it {
                0 => (1..300).step_by(3).map(|it| names[it]).collect(),
                // Each path names some later ones.
                _ => (1..4)
                    .map(|step| it + step * (it % 7 + 1))
                    .filter(|it| *it < 300)
                    .map(|it| names[it])
                    .collect(),
            })
            .collect();
        let paths = (0..300).map(|it| (names[it], 1 << (it % 40), &references[it][..]));
        let closures = Closures::of(&paths.collect::<Vec<_>>());
        let root = &closures.roots[0];
        let graph = ClosureGraph::of(&closures, root);
        let shares = graph.shares();
        assert_eq!(shares.len(), 100);
        for share in &shares {
            let without = closures.reachable([root], |from, to| (from, to) != (root, share.path));
            assert_eq!(share.only_size, graph.nar_size() - closures.size(without));
            let closure = closures.closure(share.path);
            assert_eq!(share.closure_size, closures.size(closure));
        }
        assert!(
            shares
                .iter()
                .any(|it| it.only_size > closures.nar_size(it.path))
        );
    }

    #[test]
    fn circles_and_sizes_that_no_store_can_have_are_no_fault() {
        let huge = u64::MAX - 1;
        let closures = Closures::of(&[
            ("0", huge, &["1", "2"]),
            ("1", huge, &["2"]),
            ("2", 1, &["1"]),
        ]);
        let graph = ClosureGraph::of(&closures, &closures.roots[0]);
        assert_eq!(graph.nar_size(), u64::MAX);
        let shares = graph.shares();
        assert_eq!(shares[0].only_size, 0);
        assert_eq!(shares[0].closure_size, huge + 1);
        assert_eq!(graph.branches()[0].only_size, u64::MAX);
    }
}
