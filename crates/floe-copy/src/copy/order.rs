//! The order of the plan for a target that compresses slowly, and for one that needs references
//! first.
//!
//! If the largest paths come first, an interrupted run has committed little, because small paths to
//! which everything refers come last. References first, however, leave a large path alone at the
//! end. Therefore paths come in the order of their height, the length of the longest chain of
//! references below them, but a large path comes as soon as all other remaining paths would take
//! the other workers less time.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use floe_format::StorePath;
use floe_transfer::PlannedPath;

/// Sorts paths for workers, which take them from the front. `planned_paths` are sorted by their
/// size, largest first. Without a number of workers, every path comes after its references.
pub(super) fn references_first(
    planned_paths: Vec<Arc<PlannedPath>>,
    workers: Option<usize>,
) -> Vec<Arc<PlannedPath>> {
    let heights = heights(&planned_paths);
    let size = |index: usize| planned_paths[index].narinfo.info.nar_size;
    let height = |index: &usize| heights.get(&planned_paths[*index].narinfo.info.path);
    let mut by_height: Vec<usize> = (0..planned_paths.len()).collect();
    by_height.sort_by_key(height);
    let mut by_height = by_height.into_iter();
    let mut by_size = 0..planned_paths.len();
    let mut remaining = (0..planned_paths.len())
        .map(size)
        .fold(0, u64::saturating_add);
    let (mut order, mut taken) = (Vec::new(), HashSet::new());
    while order.len() < planned_paths.len() {
        let largest = by_size.clone().find(|index| !taken.contains(index));
        let is_late = |index: &usize| {
            workers.is_some_and(|it| size(*index).saturating_mul(it as u64) >= remaining)
        };
        let next = match largest.filter(is_late) {
            Some(index) => {
                by_size.start = index + 1;
                Some(index)
            }
            None => by_height.find(|index| !taken.contains(index)),
        };
        let Some(next) = next else { break };
        taken.insert(next);
        order.push(next);
        remaining = remaining.saturating_sub(size(next));
    }
    let mut planned_paths: Vec<Option<Arc<PlannedPath>>> =
        planned_paths.into_iter().map(Some).collect();
    let in_order = order
        .into_iter()
        .filter_map(|index| planned_paths[index].take());
    in_order.collect()
}

/// Returns the height of each path. Paths in a circle, which only a wrong narinfo can claim, have
/// the height zero.
fn heights(planned_paths: &[Arc<PlannedPath>]) -> HashMap<StorePath, usize> {
    let mut pending: HashMap<&StorePath, usize> = HashMap::new();
    let mut referrers: HashMap<&StorePath, Vec<&StorePath>> = HashMap::new();
    for planned in planned_paths {
        pending.insert(&planned.narinfo.info.path, 0);
    }
    for planned in planned_paths {
        let info = &planned.narinfo.info;
        for reference in info.references.iter().filter(|path| **path != info.path) {
            if pending.contains_key(reference) {
                referrers.entry(reference).or_default().push(&info.path);
                *pending.entry(&info.path).or_default() += 1;
            }
        }
    }
    let mut heights: HashMap<StorePath, usize> = HashMap::new();
    let leaves = pending.iter().filter(|(_, count)| **count == 0);
    let mut ready: Vec<(&StorePath, usize)> = leaves.map(|(path, _)| (*path, 0)).collect();
    while let Some((path, height)) = ready.pop() {
        let known = heights.entry(path.clone()).or_default();
        *known = height.max(*known);
        let below = *known;
        for referrer in referrers.get(path).into_iter().flatten() {
            let Some(count) = pending.get_mut(referrer) else {
                continue;
            };
            *count -= 1;
            let known = heights.entry((*referrer).clone()).or_default();
            *known = (below + 1).max(*known);
            if *count == 0 {
                ready.push((referrer, *known));
            }
        }
    }
    heights
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use floe_format::{Compression, Hash, NarInfo, PathInfo};

    use super::*;

    fn path(number: usize) -> StorePath {
        StorePath::parse(&format!("{number:032}-path")).unwrap()
    }

    fn planned(number: usize, nar_size: u64, references: &[usize]) -> PlannedPath {
        let info = PathInfo {
            path: path(number),
            nar_hash: Hash::sha256([0; 32]),
            nar_size,
            references: references
                .iter()
                .copied()
                .map(path)
                .collect::<BTreeSet<_>>(),
            deriver: None,
            signatures: BTreeSet::new(),
            ca: None,
            registration_time: None,
            ultimate: false,
        };
        let narinfo = NarInfo {
            info,
            url: String::new(),
            compression: Compression::Xz,
            file_hash: None,
            file_size: None,
        };
        PlannedPath {
            narinfo,
            source: 0,
            local_copies: Vec::new(),
            is_recovered: false,
            relies_on_content_address: false,
            keeps_signatures: false,
        }
    }

    fn order(planned_paths: Vec<PlannedPath>, workers: usize) -> Vec<StorePath> {
        let planned_paths = planned_paths.into_iter().map(Arc::new).collect();
        let planned_paths = references_first(planned_paths, Some(workers)).into_iter();
        planned_paths
            .map(|planned| planned.narinfo.info.path.clone())
            .collect()
    }

    #[test]
    fn references_come_before_referrers() {
        let planned_paths = vec![
            planned(0, 9, &[1, 2]),
            planned(1, 8, &[2, 3]),
            planned(2, 8, &[2]),
            planned(3, 7, &[2]),
            planned(4, 6, &[]),
            planned(5, 5, &[]),
        ];
        assert_eq!(order(planned_paths, 1), [2, 4, 5, 3, 1, 0].map(path));
    }

    #[test]
    fn large_path_does_not_run_alone_at_the_end() {
        let mut planned_paths = vec![planned(0, 100, &[1])];
        planned_paths.extend((1..21).map(|number| planned(number, 10, &[])));
        // Two workers need 100 for the small paths that remain when the large one begins.
        let place = order(planned_paths, 2).iter().position(|it| *it == path(0));
        assert_eq!(place, Some(10));
    }

    #[test]
    fn circle_of_references_keeps_all_paths() {
        let planned_paths = vec![
            planned(0, 3, &[1]),
            planned(1, 2, &[0]),
            planned(2, 1, &[0]),
        ];
        let sorted: BTreeSet<StorePath> = order(planned_paths, 2).into_iter().collect();
        assert_eq!(sorted, (0..3).map(path).collect());
    }
}
