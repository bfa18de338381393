//! Changes of signatures, and their outcome.

use std::collections::BTreeSet;

use floe_format::{Signature, StorePath};
use floe_store::Signing;

/// A change of the signatures of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SignatureChange {
    /// The new signatures.
    pub added: Vec<Signature>,
    /// The signatures that are removed.
    pub removed: Vec<Signature>,
}

impl SignatureChange {
    /// Whether nothing changes.
    pub fn is_empty(&self) -> bool {
        self.added.is_empty() && self.removed.is_empty()
    }

    /// Changes signatures. Returns whether they have changed.
    pub fn apply_to(&self, signatures: &mut BTreeSet<Signature>) -> bool {
        let before = signatures.clone();
        signatures.extend(self.added.iter().cloned());
        signatures.retain(|it| !self.removed.contains(it));
        *signatures != before
    }
}

/// The outcome of a request for signatures. It lists no path that had all of them.
#[derive(Debug, Default)]
pub struct SigningOutcome {
    /// The signed paths.
    pub signed: Vec<StorePath>,
    /// The paths that were not signed, because the target has other facts, and which of them.
    pub different: Vec<(StorePath, &'static str)>,
    /// The paths that the target does not have.
    pub absent: Vec<StorePath>,
    /// The paths whose metadata cannot be used, with the reason.
    pub unusable: Vec<(StorePath, String)>,
}

impl SigningOutcome {
    /// Adds the result for a path of a local store.
    pub fn add(&mut self, path: &StorePath, signing: Signing) {
        let path = path.clone();
        match signing {
            Signing::Added => self.signed.push(path),
            Signing::Present => {}
            Signing::Absent => self.absent.push(path),
            Signing::Different(what) => self.different.push((path, what)),
            Signing::NoNarSize => self.unusable.push((path, NO_NAR_SIZE.into())),
            Signing::DamagedRow(reason) => {
                let reason = format!("its row in the database: {reason}; try floe verify --repair");
                self.unusable.push((path, reason));
            }
        }
    }
}

/// The reason against a signature of a path without a size.
pub const NO_NAR_SIZE: &str = "its NAR size is not registered; try floe verify --repair";
