//! A set of many numbers in eight bytes each, to which small batches are added.

/// A set of evenly distributed numbers, such as hashes.
#[derive(Clone, Debug, Default)]
pub(super) struct SortedKeySet {
    /// Sorted, without duplicates.
    main: Vec<u64>,
    /// Recent additions, sorted, without duplicates and disjoint from `main`.
    recent: Vec<u64>,
}

impl SortedKeySet {
    /// Builds a set of `keys`. Sorted keys are the fastest.
    pub(super) fn new(mut keys: Vec<u64>) -> SortedKeySet {
        keys.sort_unstable();
        keys.dedup();
        keys.shrink_to_fit();
        SortedKeySet {
            main: keys,
            recent: Vec::new(),
        }
    }

    /// Adds keys to the set.
    pub(super) fn extend(&mut self, mut keys: Vec<u64>) {
        keys.retain(|key| !contains(&self.main, *key));
        self.recent.append(&mut keys);
        self.recent.sort_unstable();
        self.recent.dedup();
        if self.recent.len() > RECENT_MAX {
            self.merge();
        }
    }

    pub(super) fn contains(&self, key: u64) -> bool {
        contains(&self.main, key) || self.recent.binary_search(&key).is_ok()
    }

    pub(super) fn len(&self) -> usize {
        self.main.len() + self.recent.len()
    }

    /// Merges `recent` into `main` from the end, so that no second copy of `main` is needed.
    fn merge(&mut self) {
        let mut left = self.main.len();
        self.main.reserve_exact(self.recent.len());
        self.main.extend_from_slice(&self.recent);
        let mut end = self.main.len();
        while let Some(&key) = self.recent.last() {
            end -= 1;
            if left > 0 && self.main[left - 1] > key {
                left -= 1;
                self.main[end] = self.main[left];
            } else {
                self.main[end] = key;
                self.recent.pop();
            }
        }
        self.recent = Vec::new();
    }
}

fn contains(keys: &[u64], key: u64) -> bool {
    // Interpolation search: the position of an evenly distributed key follows from its value. Each
    // refinement repeats this for the remaining distance. This touches about four cache lines; a
    // binary search touches many more.
    let share = |distance: u64| ((u128::from(distance) * keys.len() as u128) >> 64) as usize;
    let mut guess = share(key);
    for _ in 0..REFINEMENTS {
        match keys.get(guess) {
            Some(&found) if found < key => guess += share(key - found),
            Some(&found) => guess -= share(found - key).min(guess),
            None => break,
        }
    }
    let guess = guess.min(keys.len().saturating_sub(1));
    // Then the range grows in doubling steps until it contains the key.
    let (mut low, mut high, mut step) = (guess, guess, FIRST_STEP);
    while low > 0 && keys[low] > key {
        low = low.saturating_sub(step);
        step *= 2;
    }
    step = FIRST_STEP;
    while high < keys.len() && keys[high] < key {
        high = high.saturating_add(step);
        step *= 2;
    }
    let end = high.saturating_add(1).min(keys.len());
    keys[low.min(end)..end].binary_search(&key).is_ok()
}

/// Sorting thousands of recent keys takes microseconds. Merging them into a million takes a
/// millisecond.
const RECENT_MAX: usize = 4096;

/// In a million keys, the first guess is wrong by some hundreds, the second by about twenty, the
/// third by a few.
const REFINEMENTS: usize = 2;

/// The number of keys in a cache line.
const FIRST_STEP: usize = 8;

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    /// Numbers anywhere, close together, or at the ends.
    fn key() -> impl Strategy<Value = u64> {
        prop_oneof![any::<u64>(), 0..200u64, (u64::MAX - 200)..=u64::MAX]
    }

    proptest! {
        #[test]
        fn key_set_equals_btree_set(
            first in prop::collection::vec(key(), 0..300),
            more in prop::collection::vec(prop::collection::vec(key(), 0..300), 0..5),
            merged in any::<bool>(),
            asked in prop::collection::vec(key(), 0..100),
        ) {
            let mut expected: BTreeSet<u64> = first.iter().copied().collect();
            let mut keys = SortedKeySet::new(first);
            for batch in more {
                expected.extend(&batch);
                keys.extend(batch);
                if merged {
                    keys.merge();
                }
                prop_assert_eq!(keys.len(), expected.len());
            }
            for key in expected.iter().chain(&asked) {
                prop_assert_eq!(keys.contains(*key), expected.contains(key));
            }
            keys.merge();
            prop_assert_eq!(keys.main, expected.into_iter().collect::<Vec<_>>());
        }
    }

    #[test]
    fn many_recent_keys_are_merged() {
        let spread = |n: u64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut keys = SortedKeySet::new((0..10_000).map(spread).collect());
        for start in 0..10u64 {
            let batch = (10_000 + start * 1000)..(11_000 + start * 1000);
            keys.extend(batch.map(spread).collect());
            assert!(keys.recent.len() <= RECENT_MAX);
        }
        assert_eq!((keys.len(), keys.main.len() > 10_000), (20_000, true));
        assert!((0..20_000).all(|n| keys.contains(spread(n))));
        assert!(!(20_000..40_000).any(|n| keys.contains(spread(n))));
    }
}
