//! A shortage of space on a file system.

use std::fmt;
use std::path::PathBuf;

use floe_format::Size;

/// A resource of which a file system has less than a copy needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shortage {
    /// The directory that the copy writes to.
    pub directory: PathBuf,
    /// The mount point of its file system.
    pub mount_point: PathBuf,
    /// The kind of the file system, if it is known.
    pub kind: Option<&'static str>,
    /// The resource.
    pub resource: Resource,
    /// The amount that the copy needs; an estimate unless `is_certain`.
    pub wanted: u64,
    /// The amount that is free for this user.
    pub free: u64,
    /// Whether the copy must fail. Otherwise it may fail.
    pub is_certain: bool,
}

/// A resource of a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resource {
    /// Space for contents, in bytes.
    Bytes,
    /// Files, directories and links.
    Inodes,
}

impl fmt::Display for Shortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bound = if self.is_certain { "at least" } else { "about" };
        let (needed, free) = match self.resource {
            Resource::Bytes => (
                format!("about {}", Size(self.wanted)),
                Size(self.free).to_string(),
            ),
            Resource::Inodes => (
                format!("{bound} {} inodes", self.wanted),
                format!("{} inodes", self.free),
            ),
        };
        let (directory, mount_point) = (self.directory.display(), self.mount_point.display());
        write!(f, "it needs {needed} in {directory}, but {mount_point}")?;
        if let Some(kind) = self.kind {
            write!(f, " ({kind})")?;
        }
        write!(f, " has {free} free")
    }
}
