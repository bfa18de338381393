//! What somebody still uses, so that the next who needs it shares it.
//!
//! A cache forgets what is large or was not asked for lately. As long as a connection still sends
//! it, a second one must not hold it twice: a thousand of them would hold it a thousand hits.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Weak};

use crate::caches::tree_identity::TreeIdentity;

/// Values by what they are about, each made of a tree. Holds none of them itself.
#[derive(Debug)]
pub(crate) struct WeakCache<K, T: ?Sized> {
    values: HashMap<K, (TreeIdentity, Weak<T>)>,
    /// With so many, those that nobody uses any more are dropped from the table.
    sweep_at: usize,
}

impl<K: Eq + Hash, T: ?Sized> WeakCache<K, T> {
    pub(crate) fn new() -> WeakCache<K, T> {
        WeakCache {
            values: HashMap::new(),
            sweep_at: SWEEP_MIN,
        }
    }

    /// The value that was made of just this tree, if anybody still uses it.
    pub(crate) fn get(&self, key: &K, identity: TreeIdentity) -> Option<Arc<T>> {
        let (of, value) = self.values.get(key)?;
        (*of == identity).then(|| value.upgrade()).flatten()
    }

    /// Takes note of a value.
    pub(crate) fn put(&mut self, key: K, identity: TreeIdentity, value: &Arc<T>) {
        if self.values.len() >= self.sweep_at {
            self.values.retain(|_, (_, value)| value.strong_count() > 0);
            self.sweep_at = SWEEP_MIN.max(2 * self.values.len());
        }
        self.values.insert(key, (identity, Arc::downgrade(value)));
    }
}

/// A table of this size is nothing beside what it is about.
const SWEEP_MIN: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::caches::tree_identity::tree_identity;

    #[test]
    fn weak_cache_returns_values_only_while_they_are_used() {
        let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let [tree, another] = [dir.path(), other.path()].map(|path| tree_identity(path).unwrap());
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
