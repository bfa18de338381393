//! Which hash parts may be valid, in memory.

use std::sync::LazyLock;

use floe_format::base32;

use super::LiveStore;
use super::keys::Keys;
use super::watch::Identity;
use crate::error::StoreError;

/// Which hash parts may be valid: a superset of the valid paths in eight bytes each, so that a path
/// that is not there costs no question to the database.
#[derive(Clone, Debug)]
pub struct HashPartIndex {
    keys: Keys,
    /// The highest row number that was taken in. A database never gives one twice.
    last: i64,
    identity: Identity,
}

impl HashPartIndex {
    /// Takes in all valid paths.
    pub fn load(store: &LiveStore) -> Result<HashPartIndex, StoreError> {
        // Asked before the rows: a file that comes between is then noticed at the refresh.
        let identity = store.identity()?;
        let (keys, last) = read(store, None)?;
        Ok(HashPartIndex {
            keys: Keys::new(keys),
            last: last.unwrap_or(0),
            identity,
        })
    }

    /// Takes in what was registered since. What was deleted stays, until the database file is
    /// another one or an older state of it and all is loaded again.
    ///
    /// Call it when [`LiveStore::generation`] has gone up.
    pub fn refresh(&mut self, store: &LiveStore) -> Result<(), StoreError> {
        let highest = store.ask(|database| database.highest_id())?;
        if store.identity()? != self.identity || highest < self.last {
            *self = HashPartIndex::load(store)?;
            return Ok(());
        }
        let (keys, last) = read(store, Some(self.last))?;
        self.keys.extend(keys);
        self.last = last.unwrap_or(self.last);
        Ok(())
    }

    /// Whether a path with this hash part may be valid; if not, then none was at the last refresh.
    pub fn may_contain(&self, hash_part: &str) -> bool {
        key(hash_part.as_bytes()).is_some_and(|key| self.keys.contains(key))
    }

    /// How many hash parts may be valid.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether none is valid.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The keys of the rows after one of that number, and the highest of their numbers.
fn read(store: &LiveStore, after: Option<i64>) -> Result<(Vec<u64>, Option<i64>), StoreError> {
    let start = store.layout().store_dir.as_str().len() + 1;
    store.ask(|database| {
        let (mut keys, mut last) = (Vec::new(), None);
        database.each_path_after(after, &mut |id, path| {
            last = last.max(Some(id));
            // A row that is no store path is none that can be asked for.
            keys.extend(path.get(start..).and_then(key));
        })?;
        Ok((keys, last))
    })
}

/// The first 64 bits of a hash part: twelve digits and most of another. In the order of the texts.
fn key(hash_part: &[u8]) -> Option<u64> {
    let digits = hash_part.get(..DIGITS)?;
    let mut key: u128 = 0;
    for &byte in digits {
        let value = VALUES[usize::from(byte)];
        if value == NO_DIGIT {
            return None;
        }
        key = key << 5 | u128::from(value);
    }
    Some((key >> (DIGITS * 5 - 64)) as u64)
}

/// As many digits of five bits as 64 bits need.
const DIGITS: usize = 13;

const NO_DIGIT: u8 = u8::MAX;

/// The value of each digit: the alphabet is in the order of its characters.
static VALUES: LazyLock<[u8; 256]> = LazyLock::new(|| {
    let mut values = [NO_DIGIT; 256];
    let digits = (0..=u8::MAX).filter(|byte| base32::is_digit(char::from(*byte)));
    for (value, byte) in (0..).zip(digits) {
        values[usize::from(byte)] = value;
    }
    values
});

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_key_is_the_end_of_the_decoded_hash(hash in prop::array::uniform20(any::<u8>())) {
            let text = base32::encode(&hash);
            // The first digits of the text are the last bytes of the hash.
            let [.., a, b, c, d, e, f, g, h] = hash;
            let expected = u64::from_le_bytes([a, b, c, d, e, f, g, h]);
            prop_assert_eq!(key(text.as_bytes()), Some(expected));
        }

        #[test]
        fn keys_are_in_the_order_of_texts(
            a in prop::array::uniform20(any::<u8>()),
            b in prop::array::uniform20(any::<u8>()),
        ) {
            let (a, b) = (base32::encode(&a), base32::encode(&b));
            prop_assert_eq!(a.cmp(&b), key(a.as_bytes()).cmp(&key(b.as_bytes())));
        }

        #[test]
        fn what_is_no_hash_part_has_no_key_or_some(text in ".*") {
            let _: Option<u64> = key(text.as_bytes());
        }
    }

    #[test]
    fn letters_outside_the_alphabet_have_no_key() {
        assert_eq!(key(&[b'e'; 32]), None);
        assert_eq!(key(b"0123"), None);
        assert_eq!(key(&[b'0'; 32]), Some(0));
        assert_eq!(key(&[b'z'; 32]), Some(u64::MAX));
    }
}
