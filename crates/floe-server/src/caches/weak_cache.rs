//! Values that a connection still uses, for other connections to share.
//!
//! An [`crate::lru::LruCache`] does not keep values that are large or were not used lately. While
//! a connection still sends such a value, other connections must not make copies of it: a thousand
//! connections would hold a thousand copies.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Weak};

use super::tree_identity::TreeIdentity;

/// Values by key, each made from a tree. The cache itself keeps none of them alive.
#[derive(Debug)]
pub(crate) struct WeakCache<K, T: ?Sized> {
    values: HashMap<K, (TreeIdentity, Weak<T>)>,
    /// The number of entries at which those of dropped values are removed.
    sweep_at: usize,
}

impl<K: Eq + Hash, T: ?Sized> WeakCache<K, T> {
    pub(crate) fn new() -> WeakCache<K, T> {
        WeakCache {
            values: HashMap::new(),
            sweep_at: SWEEP_MIN,
        }
    }

    /// Returns the value if it was made from this very tree and is still in use.
    pub(crate) fn get(&self, key: &K, identity: TreeIdentity) -> Option<Arc<T>> {
        let (made_from, value) = self.values.get(key)?;
        (*made_from == identity).then(|| value.upgrade()).flatten()
    }

    pub(crate) fn put(&mut self, key: K, identity: TreeIdentity, value: &Arc<T>) {
        if self.values.len() >= self.sweep_at {
            self.values.retain(|_, (_, value)| value.strong_count() > 0);
            self.sweep_at = SWEEP_MIN.max(2 * self.values.len());
        }
        self.values.insert(key, (identity, Arc::downgrade(value)));
    }
}

/// A table of this size is small compared with the values that it is about.
const SWEEP_MIN: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weak_cache_returns_values_only_while_they_are_used() {
        let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let [tree, another] =
            [dir.path(), other.path()].map(|path| TreeIdentity::read(path).unwrap());
        let mut cache: WeakCache<usize, str> = WeakCache::new();
        let value: Arc<str> = "value".into();
        cache.put(1, tree, &value);
        assert!(Arc::ptr_eq(&cache.get(&1, tree).unwrap(), &value));
        assert_eq!(cache.get(&1, another), None, "another tree");
        for number in 2..2 * SWEEP_MIN {
            cache.put(number, tree, &Arc::from("dropped"));
        }
        assert!(cache.values.len() <= SWEEP_MIN);
        assert!(cache.get(&1, tree).is_some());
        drop(value);
        assert_eq!(cache.get(&1, tree), None);
    }
}
