//! The replies of sources about packages.

use std::collections::BTreeMap;
use std::sync::Arc;

use floe_cache::{DocumentRequest, Fetched};
use floe_transfer::Error;
use serde::{Deserialize, Serialize};

/// Fetches documents, all at once.
pub type Fetch<'a> = dyn Fn(Vec<DocumentRequest>) -> Fetched + 'a;

/// A package as a source knows it.
#[derive(Clone, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
pub struct Candidate {
    /// The full store path of each output.
    pub outputs: BTreeMap<String, String>,
    /// The name with the version, such as `jq-1.7.1`, if the source tells it.
    #[serde(default)]
    pub nix_name: Option<String>,
    /// When it was built, in seconds since 1970, if the source tells it.
    #[serde(default)]
    pub built_at: Option<u64>,
    /// The number of the build, if the source numbers its builds.
    #[serde(default)]
    pub build: Option<u64>,
}

/// Why a source cannot reply.
#[derive(Clone, Debug)]
pub(crate) enum SourceError {
    /// A request failed.
    Fetch(Arc<Error>),
    /// The reply has another format.
    Reply { place: String, reason: String },
    /// The source has the package, but not as the user wants it.
    Unusable(Unusable),
}

/// Why a package cannot be used.
#[derive(Clone, Debug)]
pub(crate) struct Unusable(pub(crate) String);
