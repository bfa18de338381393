//! Narinfos: the small texts in which a binary cache describes a path and where its NAR is.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::compression::{Compression, CompressionError};
use crate::content_address::{ContentAddress, ContentAddressError};
use crate::hash::{Hash, HashAlgorithm, HashError};
use crate::path_info::PathInfo;
use crate::signature::{Signature, SignatureError};
use crate::store_path::{StoreDir, StorePath, StorePathError};

/// Why bytes are not a narinfo. Lines are counted from one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NarInfoError {
    /// It is longer than [`NARINFO_LEN_MAX`].
    #[error(
        "cannot parse narinfo of {0} bytes: longer than NARINFO_LEN_MAX, {NARINFO_LEN_MAX} bytes"
    )]
    TooLong(usize),
    /// A line has no colon.
    #[error("cannot parse narinfo: line {line} has no colon")]
    NoColon {
        /// The line.
        line: usize,
    },
    /// The last line does not end in a newline.
    #[error("cannot parse narinfo: line {line} does not end in a newline")]
    NoNewline {
        /// The line.
        line: usize,
    },
    /// A field comes twice that may come once only.
    #[error("cannot parse narinfo: line {line} has {field} once more")]
    Extra {
        /// The line.
        line: usize,
        /// The field's name.
        field: &'static str,
    },
    /// A field is absent, or empty or zero where that means nothing.
    #[error("cannot parse narinfo: {0} is missing")]
    Missing(&'static str),
    /// The value of a field is not valid.
    #[error("cannot parse narinfo: line {line}, field {field}: {problem}")]
    Field {
        /// The line.
        line: usize,
        /// The field's name.
        field: &'static str,
        /// What is wrong with the value.
        problem: FieldProblem,
    },
}

/// What is wrong with the value of a field of a narinfo.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FieldProblem {
    /// It is not UTF-8.
    #[error("not UTF-8")]
    Encoding,
    /// It is not a number, or one beyond 64 bits.
    #[error("{0:?} is not a number below 2^64")]
    Number(String),
    /// It is no hash.
    #[error("{0}")]
    Hash(#[from] HashError),
    /// It is a hash of an algorithm that NARs are not hashed with.
    #[error("NARs are hashed with sha256, not {}", .0.name())]
    NarHashAlgorithm(HashAlgorithm),
    /// It is no store path.
    #[error("{0}")]
    StorePath(#[from] StorePathError),
    /// It names no compression method.
    #[error("{0}")]
    Compression(#[from] CompressionError),
    /// It is no signature.
    #[error("{0}")]
    Signature(#[from] SignatureError),
    /// It is no content address.
    #[error("{0}")]
    ContentAddress(#[from] ContentAddressError),
}

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
    /// the values must be UTF-8; [`Signature::parse`] limits key names; and the length is limited.
    pub fn parse(text: &[u8], dir: &StoreDir) -> Result<NarInfo, NarInfoError> {
        if text.len() > NARINFO_LEN_MAX {
            return Err(NarInfoError::TooLong(text.len()));
        }
        let mut fields = Fields::default();
        let mut rest = text;
        let mut line = 1;
        while !rest.is_empty() {
            let (name, value, after) = split_field(rest, line)?;
            fields.read(name, value, line, dir)?;
            rest = after;
            line += 1;
        }
        fields.into_nar_info()
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
        field("StorePath", &dir.print(&info.path));
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

/// Splits a text into its first field's name and value and what follows the newline.
fn split_field(text: &[u8], line: usize) -> Result<(&[u8], &[u8], &[u8]), NarInfoError> {
    let colon = text
        .iter()
        .position(|&byte| byte == b':')
        .ok_or(NarInfoError::NoColon { line })?;
    let name = text.get(..colon).unwrap_or_default();
    let rest = text
        .get(colon + 2..)
        .ok_or(NarInfoError::NoNewline { line })?;
    let mut parts = rest.splitn(2, |&byte| byte == b'\n');
    match (parts.next(), parts.next()) {
        (Some(value), Some(after)) => Ok((name, value, after)),
        _ => Err(NarInfoError::NoNewline { line }),
    }
}

/// The fields read so far.
#[derive(Default)]
struct Fields {
    path: Option<StorePath>,
    url: String,
    compression: Option<Compression>,
    file_hash: Option<Hash>,
    file_size: u64,
    nar_hash: Option<Hash>,
    nar_size: u64,
    references: BTreeSet<StorePath>,
    deriver: Option<StorePath>,
    signatures: BTreeSet<Signature>,
    ca: Option<ContentAddress>,
}

impl Fields {
    fn read(
        &mut self,
        name: &[u8],
        value: &[u8],
        line: usize,
        dir: &StoreDir,
    ) -> Result<(), NarInfoError> {
        let Some(field) = FIELDS.into_iter().find(|field| field.as_bytes() == name) else {
            return Ok(());
        };
        let is_extra = match field {
            "References" => !self.references.is_empty(),
            "CA" => self.ca.is_some(),
            _ => false,
        };
        if is_extra {
            return Err(NarInfoError::Extra { line, field });
        }
        std::str::from_utf8(value)
            .map_err(|_| FieldProblem::Encoding)
            .and_then(|value| self.set(field, value, dir))
            .map_err(|problem| NarInfoError::Field {
                line,
                field,
                problem,
            })
    }

    fn set(&mut self, field: &str, value: &str, dir: &StoreDir) -> Result<(), FieldProblem> {
        match field {
            "StorePath" => self.path = Some(dir.parse_normalizing(value)?),
            "URL" => self.url = value.into(),
            "Compression" => self.compression = Some(Compression::parse(value)?),
            "FileHash" => self.file_hash = Some(Hash::parse_prefixed(value)?),
            "FileSize" => self.file_size = number(value)?,
            "NarHash" => self.nar_hash = Some(nar_hash(value)?),
            "NarSize" => self.nar_size = number(value)?,
            "References" => {
                for reference in value.split(' ').filter(|text| !text.is_empty()) {
                    self.references.insert(StorePath::parse(reference)?);
                }
            }
            "Deriver" if value == UNKNOWN_DERIVER => {}
            "Deriver" => self.deriver = Some(StorePath::parse(value)?),
            "Sig" => {
                self.signatures.insert(Signature::parse(value)?);
            }
            "CA" if value.is_empty() => {}
            "CA" => self.ca = Some(ContentAddress::parse(value)?),
            _ => {}
        }
        Ok(())
    }

    fn into_nar_info(self) -> Result<NarInfo, NarInfoError> {
        let path = self.path.ok_or(NarInfoError::Missing("StorePath"))?;
        let nar_hash = self.nar_hash.ok_or(NarInfoError::Missing("NarHash"))?;
        if self.url.is_empty() {
            return Err(NarInfoError::Missing("URL"));
        }
        if self.nar_size == 0 {
            return Err(NarInfoError::Missing("NarSize"));
        }
        let info = PathInfo {
            path,
            nar_hash,
            nar_size: self.nar_size,
            references: self.references,
            deriver: self.deriver,
            signatures: self.signatures,
            ca: self.ca,
            registration_time: None,
            ultimate: false,
        };
        Ok(NarInfo {
            info,
            url: self.url,
            compression: self.compression.unwrap_or(Compression::Bzip2),
            file_hash: self.file_hash,
            file_size: (self.file_size != 0).then_some(self.file_size),
        })
    }
}

fn nar_hash(value: &str) -> Result<Hash, FieldProblem> {
    let hash = Hash::parse_prefixed(value)?;
    match hash.algorithm() {
        HashAlgorithm::Sha256 => Ok(hash),
        other => Err(FieldProblem::NarHashAlgorithm(other)),
    }
}

/// Like Nix's numbers: decimal digits that may have a plus in front.
fn number(value: &str) -> Result<u64, FieldProblem> {
    value
        .parse()
        .map_err(|_| FieldProblem::Number(value.into()))
}

const FIELDS: [&str; 11] = [
    "StorePath",
    "URL",
    "Compression",
    "FileHash",
    "FileSize",
    "NarHash",
    "NarSize",
    "References",
    "Deriver",
    "Sig",
    "CA",
];

/// What old builds of Nix wrote in place of a deriver that they did not know.
const UNKNOWN_DERIVER: &str = "unknown-deriver";

/// About as long as a narinfo with a few references, so that printing one allocates once.
const TEXT_LEN_TYPICAL: usize = 1024;

#[cfg(test)]
mod tests;
