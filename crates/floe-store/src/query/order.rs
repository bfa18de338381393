//! The order of an export and of the lists of `nix-store --query` (`topoSortPaths`).

use std::collections::{BTreeMap, BTreeSet, HashSet};

use floe_format::StorePath;

/// Sorts paths so that references come before their referrers, in the order of Nix: depth first, by
/// name. `references` has those of each path; others than these paths do not count.
pub fn references_first(references: &BTreeMap<StorePath, BTreeSet<StorePath>>) -> Vec<StorePath> {
    let mut order: Vec<StorePath> = Vec::new();
    let mut seen: HashSet<&StorePath> = HashSet::new();
    for (root, own) in references {
        // Each path with those of its references that were not visited.
        let mut open: Vec<(&StorePath, _)> = Vec::new();
        if seen.insert(root) {
            open.push((root, own.iter()));
        }
        while let Some((path, left)) = open.last_mut() {
            match left.find_map(|it| references.get_key_value(it)) {
                Some((next, own)) if seen.insert(next) => open.push((next, own.iter())),
                Some(_) => {}
                None => {
                    order.push(path.clone());
                    open.pop();
                }
            }
        }
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_come_first() {
        let path = |name: &str| StorePath::parse(&format!("{}-{name}", "0".repeat(32))).unwrap();
        let entry = |name: &str, references: &[&str]| {
            let references = references.iter().map(|name| path(name)).collect();
            (path(name), references)
        };
        let references = [
            entry("a", &["d", "c", "a"]),
            entry("b", &[]),
            entry("c", &["b", "absent"]),
            entry("d", &["c"]),
        ];
        let sorted = references_first(&references.into());
        let names: Vec<&str> = sorted.iter().map(StorePath::name).collect();
        assert_eq!(names, ["b", "c", "d", "a"]);
    }
}
