//! Narinfos: the texts in a binary cache that describe a store path and its NAR file.

use serde_json::{Value, json};

use crate::compression::Compression;
use crate::hash::Hash;
use crate::path_info::{JsonFormat, PathInfo};
use crate::store_path::{StoreDir, StorePath};

mod error;
mod parse;

pub use error::{FieldProblem, NarInfoError};

/// A narinfo: the description of a store path in a binary cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NarInfo {
    /// The fields that every store has for a path.
    pub info: PathInfo,
    /// The URL of the NAR file, relative to the cache or absolute.
    pub url: String,
    /// The compression of the NAR file.
    pub compression: Compression,
    /// The hash of the NAR file as stored in the cache.
    pub file_hash: Option<Hash>,
    /// Size of the NAR file as stored in the cache, in bytes.
    pub file_size: Option<u64>,
}

impl NarInfo {
    /// Returns the text of the narinfo, with the fields in the order of Nix.
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
        // For Nix, a size of zero is an unknown size.
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

    /// The length of the body to download, in bytes; `None` if the narinfo does not tell.
    pub fn download_size(&self) -> Option<u64> {
        match self.compression {
            Compression::None => Some(self.info.nar_size),
            _ => self.file_size,
        }
    }

    /// Returns the value that `nix path-info --json` prints for a path in a binary cache, in the
    /// format that is Nix's default.
    pub fn to_json(&self, dir: &StoreDir) -> Value {
        self.to_json_of(dir, JsonFormat::V1)
    }

    /// Returns the value that `nix path-info --json` prints for a path in a binary cache.
    pub fn to_json_of(&self, dir: &StoreDir, format: JsonFormat) -> Value {
        let mut value = self.info.to_json_of(dir, format);
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

/// Length of the longest narinfo that parses, in bytes.
///
/// A narinfo with 10 000 references that have the longest names has 2.5 MB, and the largest known
/// closures have fewer paths. The limit protects the memory against a hostile cache.
pub const NARINFO_LEN_MAX: usize = 1024 * 1024;

/// Length of a typical narinfo, in bytes. Printing a typical narinfo then allocates once.
const TEXT_LEN_TYPICAL: usize = 1024;

#[cfg(test)]
mod tests;
