//! The order of the plan for a target that compresses slowly.
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

/// Sorts paths for this number of workers, which take them from the front. `items` are sorted by
/// their size, largest first.
pub(super) fn references_first(
    items: Vec<Arc<PlannedPath>>,
    workers: usize,
) -> Vec<Arc<PlannedPath>> {
    let heights = heights(&items);
    let size = |index: usize| items[index].narinfo.info.nar_size;
    let height = |index: &usize| heights.get(&items[*index].narinfo.info.path);
    let mut by_height: Vec<usize> = (0..items.len()).collect();
    by_height.sort_by_key(height);
    let mut by_height = by_height.into_iter();
    let mut by_size = 0..items.len();
    let mut remaining = (0..items.len()).map(size).fold(0, u64::saturating_add);
    let (mut order, mut taken) = (Vec::new(), HashSet::new());
    while order.len() < items.len() {
        let largest = by_size.clone().find(|index| !taken.contains(index));
        let is_late = |index: &usize| size(*index).saturating_mul(workers as u64) >= remaining;
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
    let mut items: Vec<Option<Arc<PlannedPath>>> = items.into_iter().map(Some).collect();
    let in_order = order.into_iter().filter_map(|index| items[index].take());
    in_order.collect()
}

/// Returns the height of each path. Paths in a circle, which only a wrong narinfo can claim, have
/// the height zero.
fn heights(items: &[Arc<PlannedPath>]) -> HashMap<StorePath, usize> {
    let mut pending: HashMap<&StorePath, usize> = HashMap::new();
    let mut referrers: HashMap<&StorePath, Vec<&StorePath>> = HashMap::new();
    for item in items {
        pending.insert(&item.narinfo.info.path, 0);
    }
    for item in items {
        let info = &item.narinfo.info;
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

    fn item(number: usize, nar_size: u64, references: &[usize]) -> PlannedPath {
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
        }
    }

    fn order(items: Vec<PlannedPath>, workers: usize) -> Vec<StorePath> {
        let items = items.into_iter().map(Arc::new).collect();
        let items = references_first(items, workers).into_iter();
        items.map(|item| item.narinfo.info.path.clone()).collect()
    }

    #[test]
    fn references_come_before_referrers() {
        let items = vec![
            item(0, 9, &[1, 2]),
            item(1, 8, &[2, 3]),
            item(2, 8, &[2]),
            item(3, 7, &[2]),
            item(4, 6, &[]),
            item(5, 5, &[]),
        ];
        assert_eq!(order(items, 1), [2, 4, 5, 3, 1, 0].map(path));
    }

    #[test]
    fn large_path_does_not_run_alone_at_the_end() {
        let mut items = vec![item(0, 100, &[1])];
        items.extend((1..21).map(|number| item(number, 10, &[])));
        // Two workers need 100 for the small paths that remain when the large one begins.
        let place = order(items, 2).iter().position(|it| *it == path(0));
        assert_eq!(place, Some(10));
    }

    #[test]
    fn circle_of_references_keeps_all_paths() {
        let items = vec![item(0, 3, &[1]), item(1, 2, &[0]), item(2, 1, &[0])];
        let sorted: BTreeSet<StorePath> = order(items, 2).into_iter().collect();
        assert_eq!(sorted, (0..3).map(path).collect());
    }
}
