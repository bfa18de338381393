//! The replies of sources about packages.

use std::collections::BTreeMap;
use std::sync::Arc;

use floe_transfer::Error;
use serde::{Deserialize, Serialize};

use crate::cache_file::now;

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
    /// The facts of a pin, if a cache has pinned it.
    #[serde(default)]
    pub pin: Option<PinFacts>,
    /// The NAR hash that the path must have, such as `sha256-…`, if a lock file names it.
    #[serde(default)]
    pub nar_hash: Option<String>,
}

/// The facts of a pin beside its path.
#[derive(Clone, Debug, Deserialize, Serialize, PartialEq, Eq)]
pub struct PinFacts {
    /// The serial number.
    pub serial: u64,
    /// When the pin was made, in seconds since 1970.
    pub time: u64,
}

/// The reply of one source for one name.
#[derive(Clone, Debug)]
pub(crate) struct SourceReply {
    pub(crate) candidate: Candidate,
    /// When the source was asked, in seconds since 1970.
    pub(crate) resolved_at: u64,
    pub(crate) origin: Origin,
}

impl From<Candidate> for SourceReply {
    /// Makes a reply that the source has given now.
    fn from(candidate: Candidate) -> SourceReply {
        SourceReply {
            candidate,
            resolved_at: now(),
            origin: Origin::Source,
        }
    }
}

/// The result of a query for one name; `None` if the source does not have it.
pub(crate) type QueryResult = Result<Option<SourceReply>, SourceError>;

/// Where the reply of a source comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The source has replied now.
    Source,
    /// It is remembered, and not older than the user wants.
    Remembered,
    /// It is remembered, because the source does not reply; the text says why.
    Offline(String),
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
    /// A pin is not what it should be.
    Untrusted(String),
}

/// Why a package cannot be used.
#[derive(Clone, Debug)]
pub(crate) struct Unusable(pub(crate) String);
