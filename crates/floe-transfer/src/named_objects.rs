//! Small objects of a store beside its paths, such as pins.

use std::fmt::Debug;
use std::time::{Duration, SystemTime};

use crate::cancel::Cancel;
use crate::error::Error;

/// Reads and writes small objects of a store by their names, such as `pins/NAME`. Every method
/// waits for the store.
pub trait NamedObjects: Debug + Send + Sync {
    /// Gets objects, many at once. Returns the results in the order of the names; `None` for an
    /// object that the store does not have. No cache between floe and the store may reply.
    fn get(&self, names: &[String], cancel: &Cancel) -> Vec<Result<Option<NamedObject>, Error>>;

    /// Gets an object of up to `len_max` bytes, as [`NamedObjects::get`] does.
    fn get_large(
        &self,
        name: &str,
        len_max: usize,
        cancel: &Cancel,
    ) -> Result<Option<NamedObject>, Error>;

    /// Writes an object whole or not at all, if the store has the expected version.
    fn put(&self, name: &str, contents: &[u8], expected: &Expected) -> Result<Written, Error>;

    /// Writes an object whole or not at all. It need not survive a crash of the system, as the
    /// lease of a process.
    fn put_volatile(&self, name: &str, contents: &[u8]) -> Result<(), Error>;

    /// Deletes an object, if the store has the expected version. An absent object is not an error.
    fn delete(&self, name: &str, expected: &Expected) -> Result<Written, Error>;

    /// Whether the store can list its objects, so that it can be collected.
    fn can_list(&self) -> bool;

    /// Returns the names of the objects in a folder, such as `pins/`; `None` if the store cannot
    /// list them.
    fn list(&self, folder: &str, cancel: &Cancel) -> Result<Option<Vec<String>>, Error>;
}

/// An object and its version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedObject {
    /// The bytes; cut off if they are too many for an object of this kind.
    pub contents: Vec<u8>,
    /// The version, such as the `ETag`; `None` if the store tells none.
    pub version: Option<String>,
    /// When it was written, by the clock of the store.
    pub modified: Option<SystemTime>,
    /// The time of the reply, by the clock of the store.
    pub replied_at: Option<SystemTime>,
}

impl NamedObject {
    /// Returns how old the object is, by the clock of the store alone; zero if the store tells no
    /// times.
    pub fn age(&self) -> Duration {
        let age = self
            .replied_at
            .zip(self.modified)
            .and_then(|(now, modified)| now.duration_since(modified).ok());
        age.unwrap_or_default()
    }
}

/// The version that a write replaces or deletes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expected {
    /// None: the object is new.
    Absent,
    /// This version.
    Version(String),
    /// Any version.
    Any,
}

/// The result of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    /// The store has done it. A store that knows no conditions has replaced any version.
    Yes,
    /// The store has another version, and has changed nothing.
    Conflict,
}
