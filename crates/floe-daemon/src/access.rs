//! The rights of a client.

use floe_format::content_address::ContentAddressMethod;
use floe_format::{PathInfo, StoreDir, TrustedKeys};
use floe_transfer::Error;

use crate::error::HostError;

/// The rights of a client of a store.
#[derive(Clone, Debug)]
pub struct Access {
    /// Whether it may add paths.
    pub may_write: bool,
    /// Whether its paths need no signature: its user owns the store, or is a trusted user.
    pub is_trusted: bool,
    /// Whether paths of other clients need one.
    pub requires_signatures: bool,
    /// The keys that may have signed paths.
    pub trusted_keys: TrustedKeys,
}

impl Access {
    /// Whether the client may add what has no signature.
    pub(crate) fn accepts_unsigned(&self) -> bool {
        self.is_trusted || !self.requires_signatures
    }

    /// Checks whether the client may add a path with this description. `is_trusted` tells whether
    /// the client is trusted and wants no check. Returns whether only the content address makes the
    /// path trusted.
    ///
    /// Errors: [`HostError::Forbidden`], [`Error::ContentAddressMismatch`],
    /// [`Error::Untrusted`].
    pub(crate) fn check_path(
        &self,
        info: &PathInfo,
        dir: &StoreDir,
        is_trusted: bool,
    ) -> Result<bool, HostError> {
        let path = || info.path.clone();
        if !self.may_write {
            return Err(HostError::Forbidden {
                action: format!("add {}", info.path),
                reason: "the client may only read; use --write".into(),
            });
        }
        let matches_address = info.matches_content_address(dir);
        if let (Some(ca), Some(false)) = (&info.ca, matches_address) {
            let mismatch = Error::ContentAddressMismatch {
                path: path(),
                source_name: CLIENT.into(),
                ca: ca.to_string(),
            };
            return Err(mismatch.into());
        }
        let needs_none = is_trusted || !self.requires_signatures;
        if needs_none || info.is_signed_by(dir, &self.trusted_keys) {
            return Ok(false);
        }
        // floe cannot compare contents with the hash of a Git tree.
        let is_git = info
            .ca
            .is_some_and(|ca| ca.method == ContentAddressMethod::Git);
        if matches_address == Some(true) && !is_git {
            return Ok(true);
        }
        let signers = info.signatures.iter();
        let untrusted = Error::Untrusted {
            path: path(),
            source_name: CLIENT.into(),
            signed_by: signers.map(|it| it.key_name().to_owned()).collect(),
            trusted: self.trusted_keys.names().map(str::to_owned).collect(),
        };
        Err(untrusted.into())
    }
}

/// The source of a path in messages.
pub(crate) const CLIENT: &str = "the client";
