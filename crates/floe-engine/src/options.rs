//! What a caller chooses, as plain values. Nothing here is read from files or the environment.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use floe_format::TrustedKeys;

/// Choices of one move.
#[derive(Clone, Debug)]
pub struct Options {
    /// Keys whose signature makes a path welcome.
    pub trusted_keys: TrustedKeys,
    /// Whether a path into a local store needs a signature or a content address.
    pub check_signatures: bool,
    /// How many paths are unpacked or packed at once; what suits the machine where it is not said.
    pub jobs: Option<NonZeroUsize>,
    /// Resolve and plan only.
    pub dry_run: bool,
    /// Certificates to trust for TLS instead of the system's, in PEM.
    pub certificates: Option<PathBuf>,
    /// Raised from outside to end the move soon.
    pub cancel: Cancel,
}

/// A flag that ends a move soon once it is raised.
#[derive(Clone, Debug, Default)]
pub struct Cancel(Arc<AtomicBool>);

impl Cancel {
    /// The flag itself, for a signal handler.
    pub fn flag(&self) -> Arc<AtomicBool> {
        self.0.clone()
    }

    /// Raises the flag.
    pub fn raise(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether the flag is up.
    pub fn is_raised(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
