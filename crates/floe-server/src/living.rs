//! What somebody still uses, so that the next who needs it shares it.
//!
//! A cache forgets what is large or was not asked for lately. As long as a connection still sends
//! it, a second one must not hold it twice: a thousand of them would hold it a thousand times.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Weak};

use crate::identity::Identity;

/// Values by what they are about, each made of a tree. Holds none of them itself.
#[derive(Debug)]
pub(crate) struct Living<K, T: ?Sized> {
    values: HashMap<K, (Identity, Weak<T>)>,
    /// With so many, those that nobody uses any more are dropped from the table.
    sweep_at: usize,
}

impl<K: Eq + Hash, T: ?Sized> Living<K, T> {
    pub(crate) fn new() -> Living<K, T> {
        Living {
            values: HashMap::new(),
            sweep_at: SWEEP_MIN,
        }
    }

    /// The value that was made of just this tree, if anybody still uses it.
    pub(crate) fn get(&self, key: &K, identity: Identity) -> Option<Arc<T>> {
        let (of, value) = self.values.get(key)?;
        (*of == identity).then(|| value.upgrade()).flatten()
    }

    /// Takes note of a value.
    pub(crate) fn put(&mut self, key: K, identity: Identity, value: &Arc<T>) {
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
    use crate::identity::identity;

    #[test]
    fn what_is_used_is_shared_and_what_is_not_is_gone() {
        let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let [tree, another] = [dir.path(), other.path()].map(|path| identity(path).unwrap());
        let mut living: Living<usize, str> = Living::new();
        let value: Arc<str> = "value".into();
        living.put(1, tree, &value);
        assert!(Arc::ptr_eq(&living.get(&1, tree).unwrap(), &value));
        assert_eq!(living.get(&1, another), None, "another tree");
        for number in 2..2 * SWEEP_MIN {
            living.put(number, tree, &Arc::from("dropped"));
        }
        assert!(living.values.len() <= SWEEP_MIN);
        assert!(living.get(&1, tree).is_some());
        drop(value);
        assert_eq!(living.get(&1, tree), None);
    }
}
