//! The parser of narinfos.

use std::collections::BTreeSet;

use crate::compression::Compression;
use crate::content_address::ContentAddress;
use crate::hash::{Hash, HashAlgorithm};
use crate::narinfo::{FieldProblem, NARINFO_LEN_MAX, NarInfo, NarInfoError};
use crate::path_info::PathInfo;
use crate::signature::Signature;
use crate::store_path::{StoreDir, StorePath};

impl NarInfo {
    /// Parses a narinfo by the rules of Nix:
    ///
    /// - A field name ends at the first colon. The value starts two bytes later and ends at the
    ///   next newline. If a newline directly follows `URL:`, the next line is its value.
    /// - Unknown fields are skipped. The last of several equal fields counts, with two
    ///   exceptions: all `Sig` fields count, and a second `References` or `CA` is an error if
    ///   the first one was not empty.
    /// - `StorePath`, `URL`, `NarHash` and a `NarSize` other than zero are required.
    /// - An absent or empty `Compression` means bzip2.
    /// - A `Sig` that is not `NAME:BASE64` makes the narinfo invalid, as in the newest Nix. Older
    ///   versions keep such a signature.
    ///
    /// Stricter than Nix:
    ///
    /// - `NarHash` must be SHA-256. Nix parses other algorithms, but fails later.
    /// - The values must be UTF-8.
    /// - [`Signature::parse`](crate::Signature::parse) restricts the names of keys.
    /// - The length is limited.
    pub fn parse(text: &[u8], dir: &StoreDir) -> Result<NarInfo, NarInfoError> {
        if text.len() > NARINFO_LEN_MAX {
            return Err(NarInfoError::TooLong(text.len()));
        }
        let is_web_page = text.trim_ascii_start().starts_with(b"<");
        Self::parse_fields(text, dir).map_err(|error| {
            if is_web_page {
                NarInfoError::WebPage
            } else {
                error
            }
        })
    }

    fn parse_fields(text: &[u8], dir: &StoreDir) -> Result<NarInfo, NarInfoError> {
        let mut fields = Fields::default();
        let mut rest = text;
        let mut line = 1;
        while !rest.is_empty() {
            let (field, after) = split_field(rest, line)?;
            fields.read(field, line, dir)?;
            rest = after;
            line += 1;
        }
        fields.into_narinfo()
    }
}

/// A field in the text.
struct Field<'text> {
    name: &'text [u8],
    value: &'text [u8],
}

/// Splits a text into its first field and the text after the newline of the field.
fn split_field(text: &[u8], line: usize) -> Result<(Field<'_>, &[u8]), NarInfoError> {
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
        (Some(value), Some(after)) => Ok((Field { name, value }, after)),
        _ => Err(NarInfoError::NoNewline { line }),
    }
}

/// The values of the fields that have been read.
#[derive(Default)]
struct Fields {
    path: Option<StorePath>,
    url: String,
    compression: Option<Compression>,
    file_hash: Option<Hash>,
    file_size: Option<u64>,
    nar_hash: Option<Hash>,
    nar_size: u64,
    references: BTreeSet<StorePath>,
    deriver: Option<StorePath>,
    signatures: BTreeSet<Signature>,
    ca: Option<ContentAddress>,
}

impl Fields {
    fn read(&mut self, found: Field<'_>, line: usize, dir: &StoreDir) -> Result<(), NarInfoError> {
        let Some(field) = FIELDS
            .into_iter()
            .find(|field| field.as_bytes() == found.name)
        else {
            return Ok(());
        };
        let is_duplicate = match field {
            "References" => !self.references.is_empty(),
            "CA" => self.ca.is_some(),
            _ => false,
        };
        if is_duplicate {
            return Err(NarInfoError::Duplicate { line, field });
        }
        std::str::from_utf8(found.value)
            .map_err(|_| FieldProblem::NotUtf8)
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
            "FileSize" => self.file_size = Some(number(value)?).filter(|&size| size != 0),
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

    fn into_narinfo(self) -> Result<NarInfo, NarInfoError> {
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
            file_size: self.file_size,
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

/// Parses a number as Nix does: decimal digits with an optional plus.
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

/// The value that old versions of Nix write if they do not know the deriver.
const UNKNOWN_DERIVER: &str = "unknown-deriver";
