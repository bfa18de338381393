//! Links from build IDs to files of debug information, in the form of Nix's `index-debug-info`.
//!
//! A debugger that knows the build ID of a program finds in the cache `debuginfo/BUILDID.debug`,
//! which names the NAR and the file in it.

use floe_format::nar::layout::Node;

/// Returns the links for the files below `lib/debug/.build-id` of a tree: names and contents. `url`
/// is the URL of the NAR, relative to the cache.
pub(super) fn links(tree: &Node, url: &str) -> Vec<(String, String)> {
    let mut names = DIRECTORY.split('/');
    let Some(ids) = names.try_fold(tree, |node, name| match node {
        Node::Directory { entries } => entries.get(name.as_bytes()),
        _ => None,
    }) else {
        return Vec::new();
    };
    let mut links = Vec::new();
    for (start, files) in entries(ids).filter(|(name, _)| is_hex(name, START_LEN)) {
        for (file, node) in entries(files) {
            let rest = file.strip_suffix(".debug").unwrap_or_default();
            if !matches!(node, Node::File { .. }) || !is_hex(rest, REST_LEN) {
                continue;
            }
            // No part has a character that JSON would escape.
            let member = format!("{DIRECTORY}/{start}/{file}");
            let link = format!(r#"{{"archive":"../{url}","member":"{member}"}}"#);
            links.push((format!("debuginfo/{start}{file}"), link));
        }
    }
    links
}

/// Returns the entries of a directory, except for those whose names are not UTF-8.
fn entries(node: &Node) -> impl Iterator<Item = (&str, &Node)> {
    let entries = match node {
        Node::Directory { entries } => Some(entries),
        _ => None,
    };
    let entries = entries.into_iter().flatten();
    entries.filter_map(|(name, node)| Some((std::str::from_utf8(name).ok()?, node)))
}

/// Whether a text has this many lower-case hexadecimal digits and nothing else.
fn is_hex(text: &str, len: usize) -> bool {
    let is_digit = |byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    text.len() == len && text.bytes().all(is_digit)
}

/// The directory in which separate debug information is installed.
const DIRECTORY: &str = "lib/debug/.build-id";

/// The number of digits of a build ID that name a directory.
const START_LEN: usize = 2;

/// The number of digits of a build ID that name a file. A build ID is a SHA-1.
const REST_LEN: usize = 38;
