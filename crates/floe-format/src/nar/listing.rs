//! Listings of NARs: the JSON files `.ls` in a binary cache, beside the narinfos.
//!
//! A listing has the file tree of a store path and the offsets of the files in the NAR. A client
//! can show it without downloading the NAR.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::nar::layout::Node;
use crate::nar::{is_valid_entry_name, is_valid_symlink_target};

/// Reason why a tree has no listing, or bytes are not a valid listing.
#[derive(Debug, thiserror::Error)]
pub enum ListingError {
    /// The listing is longer than [`LISTING_LEN_MAX`].
    #[error("cannot parse listing: longer than {LISTING_LEN_MAX} bytes")]
    TooLong(usize),
    /// The text is not valid JSON, or is nested too deep.
    #[error("cannot parse listing: {0}")]
    Json(#[from] serde_json::Error),
    /// The version is absent or not supported.
    #[error("cannot parse listing: version {0} is not {LISTING_VERSION}")]
    Version(Value),
    /// A field is absent or has the wrong type.
    #[error("cannot parse listing: {path:?} has no valid {field:?}")]
    Field {
        /// The names from the root to the node, joined by slashes.
        path: String,
        /// The name of the field.
        field: &'static str,
    },
    /// A directory entry has a name that no NAR can have.
    #[error("cannot parse listing: {path:?} has an entry with the invalid name {name:?}")]
    Name {
        /// The names from the root to the directory, joined by slashes.
        path: String,
        /// The invalid name.
        name: String,
    },
    /// A name or a symlink target is not UTF-8, which JSON requires.
    #[error("cannot list NAR: {0:?} is not UTF-8")]
    NotUtf8(String),
    /// Nodes are nested deeper than [`LISTING_DEPTH_MAX`].
    #[error("cannot list NAR: nodes nested deeper than {LISTING_DEPTH_MAX} levels")]
    TooDeep,
}

/// A parsed listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listing {
    /// The file tree.
    pub root: Node,
    /// The stated offset of each file in the NAR, in the order of [`Node::layout`].
    pub offsets: Vec<Option<u64>>,
}

impl Listing {
    /// Parses a listing of version 1.
    ///
    /// As in Nix, `executable` and `narOffset` are optional, and an offset of zero means none.
    /// Stricter than Nix: a NAR must be able to have the names, targets and sizes, and the length
    /// is limited.
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

    /// Returns whether every stated offset is the one that the tree implies.
    ///
    /// A tree has exactly one NAR. If the result is false, the listing describes no NAR, and the
    /// bytes at its offsets are not the contents of its files.
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

/// Returns the listing of a tree, byte for byte as Nix 2.34 writes it.
///
/// The development version of Nix also writes `"executable":false`, which earlier versions omit.
///
/// Errors: as in Nix, a name or a symlink target that is not UTF-8.
pub fn to_text(root: &Node) -> Result<String, ListingError> {
    let layout = root.layout();
    let mut offsets = layout.files.iter().map(|extent| extent.offset);
    let root = print_node(root, &mut offsets, 0)?;
    // Nix sorts the fields by name. They are written in this order here, so that the output does
    // not depend on whether serde_json keeps the order of insertion.
    Ok(json!({ "root": root, "version": LISTING_VERSION }).to_string())
}

/// Length of the longest listing that parses, in bytes. 300 000 files have about 30 MB.
pub const LISTING_LEN_MAX: usize = 64 * 1024 * 1024;

/// Maximum number of nested nodes in a listing.
///
/// Each takes two of the 127 levels that serde_json parses. A NAR may have one level more.
pub const LISTING_DEPTH_MAX: usize = 63;

/// The supported version of the format.
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

/// Parses a node and appends the offsets of its files, in the order of the NAR.
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
    // serde_json may keep the order of the text, but the offsets must be in the order of the NAR.
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
