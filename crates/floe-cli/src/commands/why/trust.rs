//! The keys of signatures, and the places that make them trusted.

use floe_format::{NarInfo, StoreDir, TrustedKeys};

use crate::args::TrustArgs;
use crate::options::Settings;

/// A signature of a narinfo.
pub(super) struct ShownSignature {
    /// The name of its key.
    pub(super) key: String,
    pub(super) state: SignatureState,
}

pub(super) enum SignatureState {
    /// A trusted key made it. The text names the place of the key.
    Trusted(String),
    /// No trusted key has this name.
    Unknown,
    /// A trusted key has this name and did not make it.
    Wrong,
}

/// The trusted keys of a command.
pub(super) struct Trust<'a> {
    pub(super) settings: &'a Settings,
    pub(super) args: &'a TrustArgs,
    pub(super) keys: &'a TrustedKeys,
}

impl Trust<'_> {
    /// Returns the signatures of a narinfo, at most [`SIGNATURES_MAX`], trusted ones
    /// first.
    pub(super) fn signatures(&self, narinfo: &NarInfo, dir: &StoreDir) -> Vec<ShownSignature> {
        let fingerprint = narinfo.info.fingerprint(dir);
        let show = |signature: &floe_format::Signature| {
            let key = signature.key_name();
            let is_known = self.keys.names().any(|name| name == key);
            let state = if self.keys.verify(fingerprint.as_bytes(), signature) {
                SignatureState::Trusted(self.origin(key))
            } else if is_known {
                SignatureState::Wrong
            } else {
                SignatureState::Unknown
            };
            let key = key.to_owned();
            ShownSignature { key, state }
        };
        let mut shown: Vec<ShownSignature> = narinfo.info.signatures.iter().map(show).collect();
        // The trusted ones are the answer.
        shown.sort_by_key(|it| !matches!(it.state, SignatureState::Trusted(_)));
        shown.truncate(SIGNATURES_MAX);
        shown
    }

    /// Returns the place that makes a key trusted: a file and its line, a variable or a flag.
    fn origin(&self, key: &str) -> String {
        let setting = &self.settings.config.trusted_public_keys;
        let index = setting.get().0.iter().position(|it| it.name() == key);
        let is_replaced =
            self.args.trusted_public_keys.is_some() || !self.args.trusted_public_key.is_empty();
        match index.filter(|_| !is_replaced) {
            Some(index) => setting.origin_of_word(index).to_string(),
            None => "the command line".into(),
        }
    }
}

/// More signatures tell a reader nothing.
const SIGNATURES_MAX: usize = 8;
