//! The index of valid hash parts, in memory.

use std::sync::LazyLock;

use floe_format::{HashPart, nix32};

use super::LiveStore;
use super::file_watch::FileIdentity;
use super::key_set::SortedKeySet;
use crate::error::StoreError;

/// An index of the hash parts that may be valid. It holds a superset of the valid paths in eight
/// bytes each, so that a request for a missing path needs no query.
///
/// Each applied change increments `version`. A change that was read from the database knows the
/// version it started from, so that an old reload cannot overwrite a newer one.
#[derive(Clone, Debug)]
pub struct HashPartIndex {
    keys: SortedKeySet,
    state: IndexCursor,
}

impl HashPartIndex {
    /// Builds an index of all valid paths.
    pub fn load(store: &LiveStore) -> Result<HashPartIndex, StoreError> {
        // The identity is read before the rows. If the file is replaced in between, the next
        // delta notices it.
        let identity = store.identity()?;
        let rows = read_rows(store, None)?;
        Ok(HashPartIndex {
            keys: SortedKeySet::new(rows.keys),
            state: IndexCursor {
                last_row: rows.last.unwrap_or_default(),
                identity,
                version: 0,
            },
        })
    }

    /// Returns the state from which [`IndexCursor::delta`] continues.
    pub fn cursor(&self) -> IndexCursor {
        self.state.clone()
    }

    /// Applies a change, or skips rows that no longer fit the index. Deleted paths stay in the
    /// index until a full reload. A reload happens if the last row was deleted, or if the database
    /// file was replaced or restored to an older state.
    ///
    /// Returns `false` and changes nothing if the index has changed since the cursor of the reload
    /// was made. The caller then needs a new delta from a new cursor.
    pub fn apply(&mut self, delta: IndexDelta) -> bool {
        let (state, since) = (&mut self.state, delta.since);
        match delta.change {
            Change::Reloaded(_) if since.version != state.version => return false,
            Change::Reloaded(index) => {
                let version = state.version;
                *self = index;
                self.state.version = version;
            }
            // The index was reloaded from another file or an older state after the cursor was made,
            // so these rows do not fit.
            Change::Appended(_)
                if since.identity != state.identity || since.last_row > state.last_row => {}
            Change::Appended(rows) => {
                self.keys.extend(rows.keys);
                state.last_row = state.last_row.max(rows.last.unwrap_or_default());
            }
        }
        self.state.version += 1;
        true
    }

    /// Whether this index describes the database file that `store` reads.
    pub fn matches_database_of(&self, store: &LiveStore) -> Result<bool, StoreError> {
        Ok(store.identity()? == self.state.identity)
    }

    /// Whether a path with this hash part may be valid. If not, no such path was valid at the last
    /// applied change.
    pub fn may_contain(&self, hash_part: HashPart) -> bool {
        key_of(hash_part.as_str().as_bytes()).is_some_and(|key| self.keys.contains(key))
    }

    /// The number of hash parts in the index.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether the index is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The state of an index: the database file, the last row and the version.
#[derive(Clone, Debug)]
pub struct IndexCursor {
    /// The highest row in the index. A database never uses a row number twice.
    last_row: Row,
    identity: FileIdentity,
    /// The number of applied changes.
    version: u64,
}

/// A row number, and the key of its path if the path has one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Row {
    id: i64,
    key: Option<u64>,
}

/// The keys of some rows, with the first and the last row.
#[derive(Clone, Debug, Default)]
struct Rows {
    keys: Vec<u64>,
    first: Option<Row>,
    last: Option<Row>,
}

/// A change for an index, read from the database after the cursor `since`.
#[derive(Clone, Debug)]
pub struct IndexDelta {
    since: IndexCursor,
    change: Change,
}

#[derive(Clone, Debug)]
enum Change {
    /// The rows after the cursor.
    Appended(Rows),
    /// A new index of all rows.
    Reloaded(HashPartIndex),
}

impl IndexCursor {
    /// Reads the changes since this cursor. It may wait for the database, so the caller must not
    /// hold a lock on the index.
    ///
    /// Call it after [`LiveStore::generation`] has increased.
    pub fn delta(&self, store: &LiveStore) -> Result<IndexDelta, StoreError> {
        let rows = read_rows(store, Some(self.last_row.id.saturating_sub(1)))?;
        // The last known row is read again. If it differs or is missing, the file may have been
        // restored to older contents, and other rows may have reused the same numbers since.
        let same_row = self.last_row == Row::default() || rows.first == Some(self.last_row);
        let change = if store.identity()? == self.identity && same_row {
            Change::Appended(rows)
        } else {
            Change::Reloaded(HashPartIndex::load(store)?)
        };
        let since = self.clone();
        Ok(IndexDelta { since, change })
    }
}

/// Reads the rows with numbers greater than `after`.
fn read_rows(store: &LiveStore, after: Option<i64>) -> Result<Rows, StoreError> {
    let start = store.layout().store_dir.as_str().len() + 1;
    store.query(|database| {
        let mut rows = Rows::default();
        database.for_each_path_after(after, &mut |id, path| {
            // A row that is not a store path has no key, because no request can name it.
            let key = path.get(start..).and_then(key_of);
            rows.keys.extend(key);
            let row = Row { id, key };
            rows.first = Some(rows.first.map_or(row, |first| first.min(row)));
            rows.last = rows.last.max(Some(row));
        })?;
        Ok(rows)
    })
}

/// Returns the first 64 bits of a hash part: twelve digits and most of the next. The order of keys
/// is the order of the texts.
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

/// The number of five-bit digits that 64 bits need.
const DIGITS: usize = 13;

const INVALID_DIGIT: u8 = u8::MAX;

/// The value of each digit. The digits of the alphabet are sorted by character.
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
