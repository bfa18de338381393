//! Listings of NARs, the JSON files `.ls` that a binary cache may hold beside its narinfos.
//!
//! They show what is in a path, and where in the NAR, without fetching the NAR.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::nar::layout::Node;
use crate::nar::{is_valid_entry_name, is_valid_symlink_target};

/// Why a tree cannot be listed, or bytes are not a listing.
#[derive(Debug, thiserror::Error)]
pub enum ListingError {
    /// It is longer than [`LISTING_LEN_MAX`].
    #[error(
        "cannot parse listing of {0} bytes: longer than LISTING_LEN_MAX, {LISTING_LEN_MAX} bytes"
    )]
    TooLong(usize),
    /// It is not JSON, or nested too deep.
    #[error("cannot parse listing: {0}")]
    Json(#[from] serde_json::Error),
    /// It is of a version that this crate does not know, or says none.
    #[error("cannot parse listing: version {0} is not {LISTING_VERSION}")]
    Version(Value),
    /// A field is absent or of the wrong type.
    #[error("cannot parse listing: {path:?} has no valid {field:?}")]
    Field {
        /// The names that lead to the node, joined by slashes.
        path: String,
        /// The field.
        field: &'static str,
    },
    /// A directory entry has a name that no NAR can have.
    #[error("cannot parse listing: {path:?} has an entry with the invalid name {name:?}")]
    Name {
        /// The names that lead to the directory, joined by slashes.
        path: String,
        /// The invalid name.
        name: String,
    },
    /// A name or a symlink target is not UTF-8, so JSON cannot hold it.
    #[error("cannot list NAR: {0:?} is not UTF-8")]
    NotUtf8(String),
    /// Directories are nested deeper than [`LISTING_DEPTH_MAX`].
    #[error("cannot list NAR: nodes nested deeper than LISTING_DEPTH_MAX, {LISTING_DEPTH_MAX}")]
    TooDeep,
}

/// A listing as it was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listing {
    /// The tree.
    pub root: Node,
    /// For each file, in the order of [`Node::layout`], where the listing says that its contents
    /// are in the NAR.
    pub offsets: Vec<Option<u64>>,
}

impl Listing {
    /// Parses a listing of version 1. As in Nix, `executable` and `narOffset` may be absent and an
    /// offset of zero means none. Stricter than Nix: names, targets and sizes must be those of a
    /// NAR, and the length is limited.
    pub fn parse(text: &[u8]) -> Result<Listing, ListingError> {
        if text.len() > LISTING_LEN_MAX {
            return Err(ListingError::TooLong(text.len()));
        }
        let mut listing: Map<String, Value> = serde_json::from_slice(text)?;
        match listing.remove("version") {
            Some(version) if version.as_u64() == Some(LISTING_VERSION) => {}
            version => return Err(ListingError::Version(version.unwrap_or_default())),
        }
        let mut offsets = Vec::new();
        let root = listing.remove("root").unwrap_or_default();
        let root = parse_node(root, &mut Vec::new(), &mut offsets)?;
        Ok(Listing { root, offsets })
    }

    /// Whether every offset that the listing states is the one that the tree implies.
    ///
    /// There is only one NAR of a tree, so a listing for which this is false does not describe
    /// any NAR, and reading at its offsets would give wrong bytes.
    pub fn offsets_match(&self) -> bool {
        let layout = self.root.layout();
        layout.files.len() == self.offsets.len()
            && layout
                .files
                .iter()
                .zip(&self.offsets)
                .all(|(extent, offset)| offset.is_none_or(|offset| offset == extent.offset))
    }
}

/// The listing of a tree, byte for byte as Nix 2.34 writes it.
///
/// The development version of Nix also says `"executable":false` where earlier ones are silent.
///
/// Nix fails to write the listing of a tree with a name or a target that is not UTF-8; here, too,
/// that is an error.
pub fn to_text(root: &Node) -> Result<String, ListingError> {
    let layout = root.layout();
    let mut offsets = layout.files.iter().map(|extent| extent.offset);
    let root = print_node(root, &mut offsets, 0)?;
    // The names stand in alphabetical order, which Nix writes, even if serde_json keeps them in
    // the order of insertion.
    Ok(json!({ "root": root, "version": LISTING_VERSION }).to_string())
}

/// The longest listing that is parsed. A tree of 300 000 files has about 30 MB.
pub const LISTING_LEN_MAX: usize = 64 * 1024 * 1024;

/// How many nodes may contain one another in a listing. A NAR may have one level more, but each
/// takes two of the 127 levels of JSON that are parsed.
pub const LISTING_DEPTH_MAX: usize = 63;

/// The version of the format.
const LISTING_VERSION: u64 = 1;

fn print_node(
    node: &Node,
    offsets: &mut dyn Iterator<Item = u64>,
    depth: usize,
) -> Result<Value, ListingError> {
    if depth >= LISTING_DEPTH_MAX {
        return Err(ListingError::TooDeep);
    }
    Ok(match node {
        Node::File { executable, size } => {
            let mut printed = Map::new();
            if *executable {
                printed.insert("executable".into(), json!(true));
            }
            printed.insert("narOffset".into(), json!(offsets.next()));
            printed.insert("size".into(), json!(size));
            printed.insert("type".into(), json!("regular"));
            Value::Object(printed)
        }
        Node::Symlink { target } => json!({ "target": utf8(target)?, "type": "symlink" }),
        Node::Directory { entries } => {
            let mut printed = Map::new();
            for (name, node) in entries {
                printed.insert(utf8(name)?.into(), print_node(node, offsets, depth + 1)?);
            }
            json!({ "entries": printed, "type": "directory" })
        }
    })
}

fn utf8(bytes: &[u8]) -> Result<&str, ListingError> {
    std::str::from_utf8(bytes)
        .map_err(|_| ListingError::NotUtf8(String::from_utf8_lossy(bytes).into_owned()))
}

/// Takes a node apart. The offsets of its files are appended in the order of the NAR.
fn parse_node(
    node: Value,
    path: &mut Vec<String>,
    offsets: &mut Vec<Option<u64>>,
) -> Result<Node, ListingError> {
    if path.len() >= LISTING_DEPTH_MAX {
        return Err(ListingError::TooDeep);
    }
    let invalid = |field, path: &[String]| ListingError::Field {
        path: path.join("/"),
        field,
    };
    let Value::Object(mut node) = node else {
        return Err(invalid("type", path));
    };
    match node.get("type").and_then(Value::as_str) {
        Some("regular") => {
            let executable = match node.get("executable") {
                None => false,
                Some(value) => value.as_bool().ok_or_else(|| invalid("executable", path))?,
            };
            let size = node.get("size").and_then(Value::as_u64);
            let offset = match node.get("narOffset") {
                None => None,
                Some(value) => {
                    let offset = value.as_u64().ok_or_else(|| invalid("narOffset", path))?;
                    Some(offset).filter(|&offset| offset != 0)
                }
            };
            offsets.push(offset);
            Ok(Node::File {
                executable,
                size: size.ok_or_else(|| invalid("size", path))?,
            })
        }
        Some("symlink") => match node.get("target").and_then(Value::as_str) {
            Some(target) if is_valid_symlink_target(target.as_bytes()) => Ok(Node::Symlink {
                target: target.into(),
            }),
            _ => Err(invalid("target", path)),
        },
        Some("directory") => match node.remove("entries") {
            Some(Value::Object(entries)) => parse_entries(entries, path, offsets),
            _ => Err(invalid("entries", path)),
        },
        _ => Err(invalid("type", path)),
    }
}

fn parse_entries(
    entries: Map<String, Value>,
    path: &mut Vec<String>,
    offsets: &mut Vec<Option<u64>>,
) -> Result<Node, ListingError> {
    // Sorted here because serde_json may keep the order of the text.
    let sorted: BTreeMap<String, Value> = entries.into_iter().collect();
    let mut entries = BTreeMap::new();
    for (name, node) in sorted {
        if !is_valid_entry_name(name.as_bytes()) {
            return Err(ListingError::Name {
                path: path.join("/"),
                name,
            });
        }
        path.push(name);
        let node = parse_node(node, path, offsets)?;
        if let Some(name) = path.pop() {
            entries.insert(name.into_bytes(), node);
        }
    }
    Ok(Node::Directory { entries })
}

#[cfg(test)]
mod tests;
