//! A bounded cache that evicts values which were not used lately.
//!
//! It has two generations instead of a list in order of use. New values go into the young
//! generation. When that has used half of the budget, the old generation is dropped and the young
//! one becomes the old. A value that is found in the old generation moves to the young one. So no
//! operation costs more than two table lookups, and the budget is never exceeded.

use std::collections::HashMap;
use std::hash::Hash;

/// Values by key. Their total weight is bounded.
#[derive(Debug)]
pub(crate) struct LruCache<K, V> {
    young: HashMap<K, (V, usize)>,
    old: HashMap<K, (V, usize)>,
    young_weight: usize,
    half: usize,
}

impl<K: Hash + Eq + Clone, V: Clone> LruCache<K, V> {
    /// Makes a cache whose values weigh at most `budget` bytes together.
    pub(crate) fn new(budget: usize) -> LruCache<K, V> {
        LruCache {
            young: HashMap::new(),
            old: HashMap::new(),
            young_weight: 0,
            half: budget / 2,
        }
    }

    pub(crate) fn get(&mut self, key: &K) -> Option<V> {
        if let Some((value, _)) = self.young.get(key) {
            return Some(value.clone());
        }
        let (value, weight) = self.old.remove(key)?;
        self.put(key.clone(), value.clone(), weight);
        Some(value)
    }

    /// Keeps a value of `weight` bytes, unless it weighs more than half of the budget.
    pub(crate) fn put(&mut self, key: K, value: V, weight: usize) {
        self.remove(&key);
        if weight > self.half {
            return;
        }
        if self.young_weight + weight > self.half {
            self.old = std::mem::take(&mut self.young);
            self.young_weight = 0;
        }
        self.young_weight += weight;
        self.young.insert(key, (value, weight));
    }

    pub(crate) fn clear(&mut self) {
        self.young.clear();
        self.old.clear();
        self.young_weight = 0;
    }

    pub(crate) fn remove(&mut self, key: &K) {
        if let Some((_, weight)) = self.young.remove(key) {
            self.young_weight -= weight;
        }
        self.old.remove(key);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn weight(cache: &LruCache<u8, usize>) -> usize {
        let tables = [&cache.young, &cache.old];
        tables
            .iter()
            .flat_map(|table| table.values())
            .map(|(_, weight)| weight)
            .sum()
    }

    #[test]
    fn used_entries_stay_and_unused_ones_are_evicted() {
        let mut cache = LruCache::new(100);
        cache.put(0, 0, 10);
        for key in 1..100 {
            cache.put(key, 0, 10);
            assert_eq!(cache.get(&0), Some(0), "after {key}");
        }
        assert_eq!(cache.get(&1), None);
        cache.put(1, 0, 51);
        assert_eq!(cache.get(&1), None, "too big");
        cache.remove(&0);
        assert_eq!(cache.get(&0), None);
    }

    proptest! {
        #[test]
        fn total_weight_never_exceeds_the_budget(
            steps in prop::collection::vec((any::<u8>(), 0usize..40, 0u8..3), 0..99),
        ) {
            let mut cache = LruCache::new(100);
            for (key, size, step) in steps {
                match step {
                    0 => cache.put(key, size, size),
                    1 => { cache.get(&key); }
                    _ => cache.remove(&key),
                }
                prop_assert!(weight(&cache) <= 100);
                let young: usize = cache.young.values().map(|(_, weight)| weight).sum();
                prop_assert_eq!(young, cache.young_weight);
            }
        }
    }
}
