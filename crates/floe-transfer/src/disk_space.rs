//! What a file system has too little of.

use std::fmt;
use std::path::PathBuf;

/// Something of which a file system has less than a move wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shortage {
    /// The directory that receives it.
    pub directory: PathBuf,
    /// Where its file system is mounted.
    pub mount_point: PathBuf,
    /// What that is, if it is known.
    pub kind: Option<&'static str>,
    /// What there is too little of.
    pub resource: Resource,
    /// How much of it is wanted; an estimate unless `is_certain`.
    pub wanted: u64,
    /// How much of it this user has left.
    pub free: u64,
    /// Whether the move cannot end well, rather than may not.
    pub is_certain: bool,
}

/// What a file system runs out of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resource {
    /// Room for contents, in bytes.
    Bytes,
    /// Files, directories and links.
    Inodes,
}

impl fmt::Display for Shortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (directory, mount_point) = (self.directory.display(), self.mount_point.display());
        let (wanted, free) = match self.resource {
            Resource::Bytes => (
                format!("about {}", Bytes(self.wanted)),
                Bytes(self.free).to_string(),
            ),
            Resource::Inodes if self.is_certain => (
                format!("{} paths, each of an inode or more,", self.wanted),
                format!("{} inodes", self.free),
            ),
            Resource::Inodes => (
                format!("about {} inodes", self.wanted),
                format!("{} inodes", self.free),
            ),
        };
        write!(
            f,
            "{wanted} are to be written to {directory}, and {mount_point}"
        )?;
        if let Some(kind) = self.kind {
            write!(f, " ({kind})")?;
        }
        write!(f, ", where that lies, has {free} free")
    }
}

/// A number of bytes for people.
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
