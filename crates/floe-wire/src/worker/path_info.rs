//! The metadata of a path in messages.

use std::collections::BTreeSet;

use floe_format::{ContentAddress, Hash, HashAlgorithm, PathInfo, Signature, StoreDir, StorePath};

use crate::error::WireError;
use crate::input::{Input, TEXT_LEN_MAX};
use crate::output;

/// Reads a path.
pub(crate) fn read_path(input: &mut Input<'_>, dir: &StoreDir) -> Result<StorePath, WireError> {
    let text = input.text(PATH, PATH_LEN_MAX)?;
    let parsed = dir.parse(text);
    parsed.map_err(|error| WireError::value(PATH, text, error))
}

/// Reads a path that may be absent, as an empty text.
pub(crate) fn read_optional_path(
    input: &mut Input<'_>,
    dir: &StoreDir,
) -> Result<Option<StorePath>, WireError> {
    let text = input.text(PATH, PATH_LEN_MAX)?;
    if text.is_empty() {
        return Ok(None);
    }
    match dir.parse(text) {
        Ok(path) => Ok(Some(path)),
        Err(error) => Err(WireError::value(PATH, text, error)),
    }
}

/// Reads a set of paths.
pub(crate) fn read_paths(
    input: &mut Input<'_>,
    dir: &StoreDir,
) -> Result<BTreeSet<StorePath>, WireError> {
    let paths = input.list("the list of paths", PATH_LEN_MIN, |input| {
        read_path(input, dir)
    })?;
    Ok(paths.into_iter().collect())
}

/// Appends a set of paths.
pub(crate) fn write_paths(output: &mut Vec<u8>, dir: &StoreDir, paths: &BTreeSet<StorePath>) {
    output::texts(output, paths.iter().map(|path| dir.full_path(path)));
}

/// Appends a path that may be absent.
pub(crate) fn write_optional_path(output: &mut Vec<u8>, dir: &StoreDir, path: Option<&StorePath>) {
    output::text(
        output,
        path.map(|path| dir.full_path(path)).unwrap_or_default(),
    );
}

/// Reads the metadata of a path, without the path itself (`UnkeyedValidPathInfo`).
pub(crate) fn read_info(
    input: &mut Input<'_>,
    path: StorePath,
    dir: &StoreDir,
) -> Result<PathInfo, WireError> {
    let deriver = read_optional_path(input, dir)?;
    let hash = input.text(NAR_HASH, TEXT_LEN_MAX)?;
    let nar_hash = Hash::parse_any(hash, Some(HashAlgorithm::Sha256));
    let nar_hash = nar_hash.map_err(|error| WireError::value(NAR_HASH, hash, error))?;
    let references = read_paths(input, dir)?;
    let registration_time = Some(input.number()?).filter(|time| *time != 0);
    let nar_size = input.number()?;
    let ultimate = input.boolean()?;
    let signatures = read_signatures(input)?;
    let ca = read_content_address(input)?;
    Ok(PathInfo {
        path,
        nar_hash,
        nar_size,
        references,
        deriver,
        signatures,
        ca,
        registration_time,
        ultimate,
    })
}

/// Reads a content address that may be absent, as an empty text.
pub(crate) fn read_content_address(
    input: &mut Input<'_>,
) -> Result<Option<ContentAddress>, WireError> {
    match input.text(CONTENT_ADDRESS, TEXT_LEN_MAX)? {
        "" => Ok(None),
        text => match ContentAddress::parse(text) {
            Ok(ca) => Ok(Some(ca)),
            Err(error) => Err(WireError::value(CONTENT_ADDRESS, text, error)),
        },
    }
}

/// Reads a set of signatures. Drops those in no known form, which no key can have made: a store
/// keeps any text.
pub(crate) fn read_signatures(input: &mut Input<'_>) -> Result<BTreeSet<Signature>, WireError> {
    let texts = input.texts(SIGNATURE)?;
    let known = texts.iter().filter_map(|text| Signature::parse(text).ok());
    Ok(known.collect())
}

/// Appends the metadata of a path, without the path itself.
pub(crate) fn write_info(output: &mut Vec<u8>, info: &PathInfo, dir: &StoreDir) {
    write_optional_path(output, dir, info.deriver.as_ref());
    output::text(output, info.nar_hash.digest_base16());
    write_paths(output, dir, &info.references);
    output::number(output, info.registration_time.unwrap_or_default());
    output::number(output, info.nar_size);
    output::boolean(output, info.ultimate);
    output::texts(output, info.signatures.iter().map(ToString::to_string));
    let ca = info.ca.as_ref().map(ToString::to_string);
    output::text(output, ca.unwrap_or_default());
}

/// The longest path, in bytes: a store directory of 4096 bytes and a name.
const PATH_LEN_MAX: usize = 8 * 1024;

/// The shortest path with its length, in bytes: the hash part and a name of one letter below a
/// store directory of one letter, as a padded string.
const PATH_LEN_MIN: usize = 48;

const PATH: &str = "a store path";
const NAR_HASH: &str = "the NAR hash";
const SIGNATURE: &str = "a signature";
const CONTENT_ADDRESS: &str = "the content address";
