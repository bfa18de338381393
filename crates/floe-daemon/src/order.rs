//! The order of an export.

use std::collections::{BTreeMap, HashSet};

use floe_format::{PathInfo, StorePath};

/// Sorts paths so that references come before their referrers, in the order of Nix: depth first, by
/// name.
pub(crate) fn references_first(infos: Vec<PathInfo>) -> Vec<PathInfo> {
    let infos: BTreeMap<StorePath, PathInfo> =
        infos.into_iter().map(|it| (it.path.clone(), it)).collect();
    let mut order: Vec<&StorePath> = Vec::new();
    let mut seen: HashSet<&StorePath> = HashSet::new();
    for root in infos.keys() {
        // Each path with those of its references that were not visited.
        let mut open: Vec<(&StorePath, _)> = Vec::new();
        if seen.insert(root) {
            open.push((root, infos[root].references.iter()));
        }
        while let Some((path, references)) = open.last_mut() {
            match references.find_map(|it| infos.get(it)) {
                Some(next) if seen.insert(&next.path) => {
                    open.push((&next.path, next.references.iter()));
                }
                Some(_) => {}
                None => {
                    order.push(path);
                    open.pop();
                }
            }
        }
    }
    order.into_iter().map(|path| infos[path].clone()).collect()
}

#[cfg(test)]
mod tests {
    use floe_format::Hash;

    use super::*;

    #[test]
    fn references_come_first() {
        let path = |name: &str| StorePath::parse(&format!("{}-{name}", "0".repeat(32))).unwrap();
        let info = |name: &str, references: &[&str]| PathInfo {
            path: path(name),
            nar_hash: Hash::sha256([0; 32]),
            nar_size: 1,
            references: references.iter().map(|name| path(name)).collect(),
            deriver: None,
            signatures: Default::default(),
            ca: None,
            registration_time: None,
            ultimate: false,
        };
        let infos = vec![
            info("a", &["d", "c", "a"]),
            info("b", &[]),
            info("c", &["b", "absent"]),
            info("d", &["c"]),
        ];
        let sorted = references_first(infos);
        let names: Vec<&str> = sorted.iter().map(|it| it.path.name()).collect();
        assert_eq!(names, ["b", "c", "d", "a"]);
    }
}
