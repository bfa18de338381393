//! Which hash parts may be valid, in memory.

use std::sync::LazyLock;

use floe_format::nix32;

use super::LiveStore;
use super::file_watch::FileIdentity;
use super::key_set::SortedKeySet;
use crate::error::StoreError;

/// Which hash parts may be valid: a superset of the valid paths in eight bytes each, so that a path
/// that is not there costs no question to the database.
#[derive(Clone, Debug)]
pub struct HashPartIndex {
    keys: SortedKeySet,
    /// The highest row that was taken in. A database never gives a number twice.
    last_row: Row,
    identity: FileIdentity,
    /// How many news were taken.
    version: u64,
}

impl HashPartIndex {
    /// Takes in all valid paths.
    pub fn load(store: &LiveStore) -> Result<HashPartIndex, StoreError> {
        // Asked before the rows: a file that comes between is then noticed at the refresh.
        let identity = store.identity()?;
        let rows = read_rows(store, None)?;
        Ok(HashPartIndex {
            keys: SortedKeySet::new(rows.keys),
            last_row: rows.last.unwrap_or_default(),
            identity,
            version: 0,
        })
    }

    /// Up to where this index knows the database: what [`IndexCursor::delta`] begins at.
    pub fn cursor(&self) -> IndexCursor {
        IndexCursor {
            last_row: self.last_row,
            identity: self.identity.clone(),
            version: self.version,
        }
    }

    /// Takes in what was registered since a mark. What was deleted stays, until all is loaded
    /// again: when the last row was among it, or the database file is another one or an older state
    /// of it.
    ///
    /// False if these news may be older than what the index has meanwhile: then they change
    /// nothing, and others have to be read since a new mark.
    pub fn apply(&mut self, delta: IndexDelta) -> bool {
        match delta.0 {
            Delta::Reloaded { since, .. } if since.version != self.version => return false,
            Delta::Reloaded { index, .. } => {
                let version = self.version;
                *self = HashPartIndex { version, ..index };
            }
            // Somebody has loaded another file, or an older state, since the mark was made.
            Delta::Appended { since, .. }
                if since.identity != self.identity || since.last_row > self.last_row => {}
            Delta::Appended { rows, .. } => {
                self.keys.extend(rows.keys);
                self.last_row = self.last_row.max(rows.last.unwrap_or_default());
            }
        }
        self.version += 1;
        true
    }

    /// Learns what was registered since the last time: [`IndexCursor::delta`] and
    /// [`HashPartIndex::apply`] in one, for an index that nobody else reads.
    pub fn refresh(&mut self, store: &LiveStore) -> Result<(), StoreError> {
        let delta = self.cursor().delta(store)?;
        // Nobody else can have taken any since.
        self.apply(delta);
        Ok(())
    }

    /// Whether this index is about the database file that a store reads.
    pub fn matches_database_of(&self, store: &LiveStore) -> Result<bool, StoreError> {
        Ok(store.identity()? == self.identity)
    }

    /// Whether a path with this hash part may be valid; if not, then none was at the last refresh.
    pub fn may_contain(&self, hash_part: &str) -> bool {
        key_of(hash_part.as_bytes()).is_some_and(|key| self.keys.contains(key))
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

/// Up to where an index knows a database: which file, and which was the last row.
#[derive(Clone, Debug)]
pub struct IndexCursor {
    last_row: Row,
    identity: FileIdentity,
    version: u64,
}

/// The number of a row, and the key of its path if it has one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Row {
    id: i64,
    key: Option<u64>,
}

/// Some rows: their keys, and those of the lowest and highest numbers.
#[derive(Clone, Debug, Default)]
struct Rows {
    keys: Vec<u64>,
    first: Option<Row>,
    last: Option<Row>,
}

/// What an index has to learn.
#[derive(Clone, Debug)]
pub struct IndexDelta(Delta);

#[derive(Clone, Debug)]
enum Delta {
    /// The rows since a mark.
    Appended { rows: Rows, since: IndexCursor },
    /// Everything anew.
    Reloaded {
        index: HashPartIndex,
        since: IndexCursor,
    },
}

impl IndexCursor {
    /// Reads what was registered since. It may wait for the database, so nobody who holds the
    /// index calls it.
    ///
    /// Call it when [`LiveStore::generation`] has gone up.
    pub fn delta(&self, store: &LiveStore) -> Result<IndexDelta, StoreError> {
        let rows = read_rows(store, Some(self.last_row.id.saturating_sub(1)))?;
        // The last row is read again: where it is another one or gone, the file may have been given
        // older contents, from which other rows got the same numbers since.
        let same_row = self.last_row == Row::default() || rows.first == Some(self.last_row);
        if store.identity()? != self.identity || !same_row {
            let (index, since) = (HashPartIndex::load(store)?, self.clone());
            return Ok(IndexDelta(Delta::Reloaded { index, since }));
        }
        Ok(IndexDelta(Delta::Appended {
            rows,
            since: self.clone(),
        }))
    }
}

/// The rows of higher numbers than that one.
fn read_rows(store: &LiveStore, after: Option<i64>) -> Result<Rows, StoreError> {
    let start = store.layout().store_dir.as_str().len() + 1;
    store.query(|database| {
        let mut rows = Rows::default();
        database.for_each_path_after(after, &mut |id, path| {
            // A row that is no store path is none that can be asked for.
            let key = path.get(start..).and_then(key_of);
            rows.keys.extend(key);
            let row = Row { id, key };
            rows.first = Some(rows.first.map_or(row, |first| first.min(row)));
            rows.last = rows.last.max(Some(row));
        })?;
        Ok(rows)
    })
}

/// The first 64 bits of a hash part: twelve digits and most of another. In the order of the texts.
fn key_of(hash_part: &[u8]) -> Option<u64> {
    let digits = hash_part.get(..DIGITS)?;
    let mut key: u128 = 0;
    for &byte in digits {
        let value = DIGIT_VALUES[usize::from(byte)];
        if value == INVALID_DIGIT {
            return None;
        }
        key = key << 5 | u128::from(value);
    }
    Some((key >> (DIGITS * 5 - 64)) as u64)
}

/// As many digits of five bits as 64 bits need.
const DIGITS: usize = 13;

const INVALID_DIGIT: u8 = u8::MAX;

/// The value of each digit: the alphabet is in the order of its characters.
static DIGIT_VALUES: LazyLock<[u8; 256]> = LazyLock::new(|| {
    let mut values = [INVALID_DIGIT; 256];
    let digits = (0..=u8::MAX).filter(|byte| nix32::is_digit(char::from(*byte)));
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
        fn key_equals_last_bytes_of_decoded_hash(hash in prop::array::uniform20(any::<u8>())) {
            let text = nix32::encode(&hash);
            // The first digits of the text are the last bytes of the hash.
            let [.., a, b, c, d, e, f, g, h] = hash;
            let expected = u64::from_le_bytes([a, b, c, d, e, f, g, h]);
            prop_assert_eq!(key_of(text.as_bytes()), Some(expected));
        }

        #[test]
        fn keys_sort_like_their_texts(
            a in prop::array::uniform20(any::<u8>()),
            b in prop::array::uniform20(any::<u8>()),
        ) {
            let (a, b) = (nix32::encode(&a), nix32::encode(&b));
            prop_assert_eq!(a.cmp(&b), key_of(a.as_bytes()).cmp(&key_of(b.as_bytes())));
        }

        #[test]
        fn key_of_arbitrary_text_does_not_panic(text in ".*") {
            let _: Option<u64> = key_of(text.as_bytes());
        }
    }

    #[test]
    fn invalid_digits_have_no_key() {
        assert_eq!(key_of(&[b'e'; 32]), None);
        assert_eq!(key_of(b"0123"), None);
        assert_eq!(key_of(&[b'0'; 32]), Some(0));
        assert_eq!(key_of(&[b'z'; 32]), Some(u64::MAX));
    }
}
