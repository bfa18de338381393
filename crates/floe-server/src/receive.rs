//! Uploads: the interface of a place that receives them.

use std::fmt::{self, Debug};
use std::fs::File;
use std::io;
use std::sync::Arc;

use floe_format::pin::PIN_LEN_MAX;
use floe_format::{DrvOutput, HashPart, SecretKey, StorePath, nix32};

/// A binary cache that a server receives and serves beside its store. Workers call it, so it may
/// wait for disks.
pub trait Receiver: Debug + Send + Sync {
    /// Begins to receive an object, of a length if the client tells it.
    ///
    /// Errors: [`ReceiveError`].
    fn begin(&self, upload: &UploadRequest) -> Result<Box<dyn Upload>, ReceiveError>;

    /// Opens an object that was received; `None` if there is none.
    ///
    /// Errors: [`ReceiveError`] of the system.
    fn open(&self, object: &Object) -> Result<Option<File>, ReceiveError>;

    /// Replaces the keys of the server: those that sign what it receives, or that may have signed
    /// it.
    fn replace_keys(&self, keys: &[SecretKey]);

    /// Ends all uploads, because the server stops.
    fn stop(&self);
}

/// An object that is being received. A drop before the end leaves nothing.
pub trait Upload: Debug + Send {
    /// Takes the next bytes of the body.
    ///
    /// Errors: [`ReceiveError`].
    fn write(&mut self, bytes: &[u8]) -> Result<(), ReceiveError>;

    /// Checks the object and gives it its name.
    ///
    /// Errors: [`ReceiveError`].
    fn finish(self: Box<Self>) -> Result<(), ReceiveError>;
}

/// The object of an upload, and the rights of its client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UploadRequest {
    /// The object.
    pub object: Object,
    /// Whether the client deletes the object, and sends none.
    pub is_deletion: bool,
    /// The present object that the client expects.
    pub condition: Condition,
    /// The length of the body in bytes, if the client tells it.
    pub len: Option<u64>,
    /// The login of the client.
    pub user: String,
    /// The paths that the client may push.
    pub may_push: PushScope,
}

/// The present object that a client expects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Condition {
    /// Any, or none.
    #[default]
    Any,
    /// Any one.
    Present,
    /// None.
    Absent,
    /// One with this `ETag`, without its quotes.
    Version(String),
}

/// An object that a server receives, by its name in a binary cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Object {
    /// `HASH.narinfo`
    NarInfo(HashPart),
    /// `nar/NAME`
    Nar(String),
    /// `HASH.ls`
    Listing(HashPart),
    /// `log/NAME`
    Log(StorePath),
    /// `realisations/…` or `build-trace-v2/…`
    Realisation(DrvOutput),
    /// `pins/NAME`
    Pin(String),
    /// `pins-info`
    PinsInfo,
}

impl Object {
    /// Returns the name in a binary cache.
    pub fn name(&self) -> String {
        match self {
            Object::NarInfo(hash) => format!("{hash}.narinfo"),
            Object::Nar(name) => format!("nar/{name}"),
            Object::Listing(hash) => format!("{hash}.ls"),
            Object::Log(path) => format!("log/{path}"),
            Object::Realisation(id) => id.object_name(),
            Object::Pin(name) => format!("pins/{name}"),
            Object::PinsInfo => "pins-info".into(),
        }
    }

    /// Returns the most bytes of such an object; `None` for a NAR.
    pub fn len_max(&self) -> Option<u64> {
        match self {
            Object::Nar(_) => None,
            Object::NarInfo(_) | Object::Realisation(_) => Some(1024 * 1024),
            Object::Pin(_) | Object::PinsInfo => Some(PIN_LEN_MAX as u64),
            Object::Listing(_) | Object::Log(_) => Some(64 * 1024 * 1024),
        }
    }
}

/// Returns the SHA-256 hash in base 32 that the name of the file of a NAR states, as those of Nix
/// and floe do. Nothing else has such a name.
pub fn stated_hash(name: &str) -> Option<&str> {
    let (stem, _) = name.split_once('.')?;
    let is_hash = stem.len() == nix32::encoded_len(32) && stem.chars().all(nix32::is_digit);
    is_hash.then_some(stem)
}

/// The names of the paths that a login may push.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PushScope {
    /// The names begin with one of these texts; any name without one.
    prefixes: Arc<[String]>,
}

impl PushScope {
    /// The scope of the paths whose names begin with one of some texts, or of all paths if there is
    /// no text.
    pub fn new(prefixes: impl IntoIterator<Item = String>) -> PushScope {
        PushScope {
            prefixes: prefixes.into_iter().collect(),
        }
    }

    /// Returns the texts.
    pub fn prefixes(&self) -> &[String] {
        &self.prefixes
    }

    /// Whether the login may push a path.
    pub fn allows(&self, path: &StorePath) -> bool {
        self.prefixes.is_empty() || self.prefixes.iter().any(|it| path.name().starts_with(it))
    }
}

/// The reason why an object is not received. The client gets the message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceiveError {
    /// The kind, from which the status follows.
    pub kind: ReceiveErrorKind,
    /// The message, without a line end.
    pub message: String,
}

/// The kinds of failures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReceiveErrorKind {
    /// The object is not valid, or is not what it says.
    Invalid,
    /// The login may not push this path.
    Forbidden,
    /// The cache has another object of this name, or lacks one that this one needs.
    Conflict,
    /// The object to delete does not exist.
    Absent,
    /// The cache does not have the object that the client expects.
    Outdated,
    /// The object is too large.
    TooLarge,
    /// The client uploads too much at once.
    TooMany,
    /// The cache or its disk is full.
    Full,
    /// The server stops, or another process uses the object.
    Busy,
    /// The system has failed. The message is for the operator alone.
    System,
}

impl ReceiveErrorKind {
    /// Returns the status of the response.
    pub fn status(self) -> u16 {
        match self {
            ReceiveErrorKind::Invalid => 400,
            ReceiveErrorKind::Forbidden => 403,
            ReceiveErrorKind::Conflict => 409,
            ReceiveErrorKind::Absent => 404,
            ReceiveErrorKind::Outdated => 412,
            ReceiveErrorKind::TooLarge => 413,
            ReceiveErrorKind::TooMany => 429,
            ReceiveErrorKind::Busy => 503,
            ReceiveErrorKind::Full => 507,
            ReceiveErrorKind::System => 500,
        }
    }
}

impl ReceiveError {
    /// Makes an error.
    pub fn new(kind: ReceiveErrorKind, message: impl Into<String>) -> ReceiveError {
        let message = message.into();
        ReceiveError { kind, message }
    }
}

impl fmt::Display for ReceiveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for ReceiveError {}

impl From<io::Error> for ReceiveError {
    fn from(error: io::Error) -> ReceiveError {
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                ReceiveError::new(ReceiveErrorKind::Full, "the disk of the server is full")
            }
            _ => ReceiveError::new(ReceiveErrorKind::System, error.to_string()),
        }
    }
}
