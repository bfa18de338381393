//! A shortage of space on a file system.

use std::fmt;
use std::path::PathBuf;

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
                format!("about {}", Bytes(self.wanted)),
                Bytes(self.free).to_string(),
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

/// Prints a number of bytes with a binary unit.
struct Bytes(u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let size = self.0 as f64;
        let units = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
        let scaled = units
            .iter()
            .zip(1..)
            .map(|(unit, n)| (unit, size / 1024_f64.powi(n)));
        match scaled.take_while(|(_, scaled)| *scaled >= 1.0).last() {
            Some((unit, scaled)) => write!(f, "{scaled:.1} {unit}"),
            None => write!(f, "{} bytes", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_display_uses_binary_units() {
        let said = |bytes| Bytes(bytes).to_string();
        assert_eq!(said(1023), "1023 bytes");
        assert_eq!(said(4 << 30), "4.0 GiB");
        assert_eq!(said(u64::MAX), "16.0 EiB");
    }
}
