//! Narinfos: the small texts in which a binary cache describes a path and where its NAR is.

use serde_json::{Value, json};

use crate::compression::Compression;
use crate::hash::Hash;
use crate::path_info::PathInfo;
use crate::store_path::{StoreDir, StorePath};

mod error;
mod parse;

pub use error::{FieldProblem, NarInfoError};

/// A path's description in a binary cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NarInfo {
    /// What any store knows about the path.
    pub info: PathInfo,
    /// Where the NAR file is, relative to the cache or absolute.
    pub url: String,
    /// How the NAR file is compressed.
    pub compression: Compression,
    /// The hash of the NAR file as it lies in the cache.
    pub file_hash: Option<Hash>,
    /// The size of the NAR file as it lies in the cache.
    pub file_size: Option<u64>,
}

impl NarInfo {
    /// Parses a narinfo, accepting what Nix accepts:
    ///
    /// - a field is what stands before a colon, its value what stands between the second byte
    ///   after the colon and the next newline, so `URL:` directly followed by a newline takes
    ///   the following line for its value;
    /// - unknown fields are skipped, of equal fields the last counts, except that `Sig` fields
    ///   add up and that `References` and `CA` must not come again once they held something;
    /// - `StorePath`, `URL`, `NarHash` and a `NarSize` other than zero must be there;
    /// - no `Compression`, or an empty one, means bzip2;
    /// - a `Sig` that is not `name:base64` makes the whole narinfo invalid, as in the newest
    ///   Nix; older ones carried such a signature along.
    ///
    /// Stricter than Nix: a `NarHash` must be SHA-256, since Nix reads others only to fail later;
    /// the values must be UTF-8; [`Signature::parse`](crate::Signature::parse) limits key names;
    /// and the length is limited.
    pub fn parse(text: &[u8], dir: &StoreDir) -> Result<NarInfo, NarInfoError> {
        parse::parse(text, dir)
    }

    /// The narinfo's text, with the fields in the order of Nix.
    pub fn to_text(&self, dir: &StoreDir) -> String {
        let mut text = String::with_capacity(TEXT_LEN_TYPICAL);
        let mut field = |name: &str, value: &str| {
            text.push_str(name);
            text.push_str(": ");
            text.push_str(value);
            text.push('\n');
        };
        let info = &self.info;
        field("StorePath", &dir.full_path(&info.path));
        field("URL", &self.url);
        field("Compression", self.compression.name());
        if let Some(hash) = &self.file_hash {
            field("FileHash", &hash.to_nix32());
        }
        // Nix takes a size of zero for an unknown one.
        if let Some(size) = self.file_size.filter(|&size| size != 0) {
            field("FileSize", &size.to_string());
        }
        field("NarHash", &info.nar_hash.to_nix32());
        field("NarSize", &info.nar_size.to_string());
        let references: Vec<&str> = info.references.iter().map(StorePath::as_str).collect();
        field("References", &references.join(" "));
        if let Some(deriver) = &info.deriver {
            field("Deriver", deriver.as_str());
        }
        for signature in &info.signatures {
            field("Sig", &signature.to_string());
        }
        if let Some(ca) = &info.ca {
            field("CA", &ca.to_string());
        }
        text
    }

    /// What `nix path-info --json` says of a path of a binary cache: the value beside the path.
    pub fn to_json(&self, dir: &StoreDir) -> Value {
        let mut value = self.info.to_json(dir);
        if let Value::Object(fields) = &mut value {
            fields.insert("compression".into(), json!(self.compression.name()));
            if let Some(hash) = &self.file_hash {
                fields.insert("downloadHash".into(), json!(hash.to_sri()));
            }
            if let Some(size) = self.file_size.filter(|&size| size != 0) {
                fields.insert("downloadSize".into(), json!(size));
            }
            fields.insert("url".into(), json!(self.url));
        }
        value
    }
}

/// The longest narinfo that is parsed.
///
/// One that refers to 10 000 paths with the longest names has 2.5 MB, and the greatest closures
/// known have fewer paths in all; a cache that sends more wants to fill memory.
pub const NARINFO_LEN_MAX: usize = 4 * 1024 * 1024;

/// About as long as a narinfo with a few references, so that printing one allocates once.
const TEXT_LEN_TYPICAL: usize = 1024;

#[cfg(test)]
mod tests;
