//! The files of a path that hold its references.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use floe_format::nar::read::NarEvent;
use floe_format::reference_scan::ReferenceScanner;
use floe_format::{HashPart, NarInfo, StorePath};
use floe_transfer::Source;
use serde_json::{Value, json};

use crate::messages::escaped;

/// A place in the tree of a path that holds a reference.
pub(super) struct Place {
    /// The file or symlink in the tree, or `/` if the tree is one file.
    file: String,
    /// The first byte of the hash part in the contents or the target.
    offset: u64,
    /// The bytes around the hash part, or the whole target of a symlink.
    context: Vec<u8>,
    is_symlink: bool,
}

impl Place {
    /// Returns the place as a line of Nix, which has no offset for a file.
    pub(super) fn to_text(&self) -> String {
        let (file, context) = (escaped(&self.file), printable(&self.context));
        if self.is_symlink {
            format!("{file} -> {context}")
        } else {
            format!("{file}:{}: …{context}…", self.offset)
        }
    }

    pub(super) fn to_json(&self) -> Value {
        json!({
            "file": self.file,
            "offset": self.offset,
            "type": if self.is_symlink { "symlink" } else { "regular" },
        })
    }
}

/// Returns a text with a dot for each byte that no terminal prints, as Nix does.
fn printable(bytes: &[u8]) -> String {
    let printed = |byte: &u8| match byte {
        b' '..=b'~' => char::from(*byte),
        _ => '.',
    };
    bytes.iter().map(printed).collect()
}

/// Reads the NAR of a path, and returns for each reference the first place in each file, in the
/// order of the NAR, or only the first of them.
///
/// Errors: those of the source.
pub(super) fn places(
    source: &dyn Source,
    narinfo: &NarInfo,
    references: &[&StorePath],
    shows_all: bool,
) -> anyhow::Result<BTreeMap<HashPart, Vec<Place>>> {
    let mut finder = Finder {
        places: references
            .iter()
            .map(|it| (it.hash_part(), Vec::new()))
            .collect(),
        names: Vec::new(),
        file: OpenFile::default(),
        shows_all,
    };
    source.scan_nar(narinfo, &mut |event| {
        finder.visit(event);
        let is_done = !shows_all && finder.places.values().all(|places| !places.is_empty());
        if is_done {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    })?;
    Ok(finder.places)
}

struct Finder {
    places: BTreeMap<HashPart, Vec<Place>>,
    /// The names from the root to the current node.
    names: Vec<String>,
    file: OpenFile,
    shows_all: bool,
}

/// The file whose contents arrive.
#[derive(Default)]
struct OpenFile {
    scanner: ReferenceScanner,
    /// The last bytes before the current piece, which a context may need.
    recent: Vec<u8>,
    /// The number of bytes before `recent`.
    offset: u64,
    /// The first offset of each reference, and the context as far as it has arrived.
    found: Vec<(HashPart, u64, Vec<u8>)>,
}

impl Finder {
    fn visit(&mut self, event: NarEvent<'_>) {
        match event {
            NarEvent::Entry { name } => self.names.push(String::from_utf8_lossy(name).into_owned()),
            NarEvent::File { .. } => self.file = OpenFile::default(),
            NarEvent::Data(data) => self.file.scan(data, &self.places),
            NarEvent::EndFile => {
                for (hash_part, offset, context) in std::mem::take(&mut self.file.found) {
                    self.add(hash_part, (offset, context), false);
                }
                self.names.pop();
            }
            NarEvent::Symlink { target } => {
                let mut file = OpenFile::default();
                file.scan(target, &self.places);
                for (hash_part, offset, _) in file.found {
                    self.add(hash_part, (offset, target.to_vec()), true);
                }
                self.names.pop();
            }
            NarEvent::EndDirectory => _ = self.names.pop(),
            NarEvent::Directory | NarEvent::End => {}
        }
    }

    fn add(&mut self, hash_part: HashPart, (offset, context): (u64, Vec<u8>), is_symlink: bool) {
        let names = self.names.join("/");
        let place = Place {
            file: if names.is_empty() {
                "/".to_owned()
            } else {
                names
            },
            offset,
            context,
            is_symlink,
        };
        let places = self.places.entry(hash_part).or_default();
        if self.shows_all || places.is_empty() {
            places.push(place);
        }
    }
}

impl OpenFile {
    fn scan(&mut self, data: &[u8], wanted: &BTreeMap<HashPart, Vec<Place>>) {
        for (_, offset, context) in &mut self.found {
            let start = offset.saturating_sub(MARGIN as u64);
            let whole = (*offset - start) as usize + HashPart::LEN + MARGIN;
            let missing = whole - context.len();
            context.extend_from_slice(&data[..missing.min(data.len())]);
        }
        self.recent.extend_from_slice(data);
        let (found, recent, before) = (&mut self.found, &self.recent, self.offset);
        self.scanner.scan(data, &mut |hash_part, offset| {
            let is_new =
                |found: &[(HashPart, u64, Vec<u8>)]| !found.iter().any(|it| it.0 == hash_part);
            if wanted.contains_key(&hash_part) && is_new(found) {
                let start = (offset.saturating_sub(MARGIN as u64) - before) as usize;
                let end = (offset - before) as usize + HashPart::LEN + MARGIN;
                let context = recent[start..end.min(recent.len())].to_vec();
                found.push((hash_part, offset, context));
            }
        });
        // A hash part begins at most 31 bytes before the next piece.
        let old = self.recent.len().saturating_sub(MARGIN + HashPart::LEN);
        self.recent.drain(..old);
        self.offset += old as u64;
    }
}

/// How many bytes a context has before and after the hash part, as in Nix.
const MARGIN: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn context_spans_pieces() {
        let part = "7bw2d1cqdpnxi05lr3s6pmcgl5xazl2c";
        let contents = format!("{}{part}-hello\n{}", "é".repeat(40), "z".repeat(50));
        let hash_part = HashPart::parse(part).unwrap();
        let wanted = BTreeMap::from([(hash_part, Vec::new())]);
        for piece_len in 1..contents.len() {
            let mut file = OpenFile::default();
            for piece in contents.as_bytes().chunks(piece_len) {
                file.scan(piece, &wanted);
            }
            let [(_, 80, context)] = &file.found[..] else {
                panic!("{:?}", file.found);
            };
            assert_eq!(context.len(), 96);
            assert_eq!(
                printable(context),
                format!("{}{part}-hello.{}", ".".repeat(32), "z".repeat(25))
            );
        }
    }
}
