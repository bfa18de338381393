//! Realisations: which path an output of a derivation has, where the derivation does not tell.
//!
//! The path of a floating output follows from its contents. The builder records the path, signs the
//! record, and passes it on beside the output. There are two generations. Up to
//! Nix 2.34, a hash of the derivation identifies the output (`realisations/` in a cache). In later
//! versions, the path of the derivation does (`build-trace-v2/`; Nix calls the record an entry of
//! the build trace). No version reads the records of the other generation.

mod drv_output;
mod json;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::signature::{SecretKey, Signature, SignatureError, TrustedKeys, drop_junk};
use crate::store_path::{StorePath, StorePathError};
pub use drv_output::{DrvKey, DrvOutput, DrvOutputError, is_output_name};

/// Reason why bytes are not a valid realisation.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RealisationError {
    /// The object is longer than [`REALISATION_LEN_MAX`].
    #[error("cannot parse realisation: longer than {REALISATION_LEN_MAX} bytes")]
    TooLong,
    /// The object is not JSON.
    #[error("cannot parse realisation: it is not JSON: {0}")]
    Json(String),
    /// A field is absent, or has a value of another type.
    #[error("cannot parse realisation: the field {0} is absent or has the wrong type")]
    Field(&'static str),
    /// The realisation is that of another output.
    #[error("cannot parse realisation: it is that of {0}")]
    OtherOutput(String),
    /// An output is not valid.
    #[error("cannot parse realisation: {0}")]
    DrvOutput(#[from] DrvOutputError),
    /// A path is not valid.
    #[error("cannot parse realisation: {0}")]
    Path(#[from] StorePathError),
    /// A signature is not valid.
    #[error("cannot parse realisation: {0}")]
    Signature(#[from] SignatureError),
}

/// The path of an output of a derivation, as a store or a binary cache records it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Realisation {
    /// The output.
    pub id: DrvOutput,
    /// Its path.
    pub out_path: StorePath,
    /// The signatures of the realisation.
    pub signatures: BTreeSet<Signature>,
    /// The outputs that the output was built from, with their paths. Only Nix up to 2.8 records
    /// them, and only for an output that a hash identifies.
    pub dependent_realisations: BTreeMap<DrvOutput, StorePath>,
}

impl Realisation {
    /// Parses the object of a binary cache for an output.
    ///
    /// Nix 2.34 ignores the dependencies that it reads, and never writes any. The signatures of Nix
    /// 2.8 cover them, so floe keeps them.
    ///
    /// Errors: [`RealisationError`], also if the object is that of another output.
    pub fn parse(id: &DrvOutput, text: &[u8]) -> Result<Realisation, RealisationError> {
        json::parse(id, text)
    }

    /// Returns the object of a binary cache.
    pub fn to_json(&self) -> Value {
        json::to_json(self)
    }

    /// Returns the text that signatures sign.
    pub fn fingerprint(&self) -> String {
        json::fingerprint(self)
    }

    /// Adds a signature by a key.
    pub fn sign(&mut self, key: &SecretKey) {
        let signature = key.sign(self.fingerprint().as_bytes());
        self.signatures.insert(signature);
    }

    /// Drops signatures that no client needs, as
    /// [`PathInfo::drop_junk_signatures`](crate::PathInfo::drop_junk_signatures) does. Returns the
    /// number of dropped signatures.
    pub fn drop_junk_signatures(&mut self, keys: &TrustedKeys) -> usize {
        let mut signatures = std::mem::take(&mut self.signatures);
        let dropped = drop_junk(&mut signatures, keys, || self.fingerprint());
        self.signatures = signatures;
        dropped
    }

    /// Whether a trusted key has signed the realisation.
    pub fn is_signed_by(&self, keys: &TrustedKeys) -> bool {
        let fingerprint = self.fingerprint();
        let mut signatures = self.signatures.iter();
        signatures.any(|signature| keys.verify(fingerprint.as_bytes(), signature))
    }
}

/// Length of the longest realisation that parses, in bytes. One without dependencies has about 300.
pub const REALISATION_LEN_MAX: usize = 1024 * 1024;

#[cfg(test)]
mod tests;
