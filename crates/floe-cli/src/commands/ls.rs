//! `floe ls`: lists the files in a path.

pub(crate) mod args;
pub(crate) mod page;

use std::collections::HashMap;
use std::ops::ControlFlow;

use anyhow::bail;
use floe_format::nar::layout::{FoundNode, Node};
use serde_json::{Map, Value, json};

use crate::messages::escaped;
use crate::requested_paths::OpenSource;
use crate::stdout::{LongOutput, print};
use crate::store_files::{LINKS_MAX, StoreFile};
use args::LsArgs;

pub(crate) fn run(args: &LsArgs) -> anyhow::Result<()> {
    let (open, files) = OpenSource::with_files(&args.query, std::slice::from_ref(&args.path))?;
    let [file] = &files[..] else {
        bail!("cannot list {} files; try one", files.len());
    };
    let (tree, file) = find_tree(&open, file)?;
    let FoundNode::Node(node) = tree.find(&file.names()) else {
        bail!("cannot list {}: the path has no such file", file.text());
    };
    if args.json {
        let names = file.names();
        let offsets = offsets(&tree, &names);
        return print(to_json(node, &mut Vec::new(), &offsets, args.recursive));
    }
    let mut lister = Lister {
        args,
        output: LongOutput::new(),
    };
    // The rest of the lines is not wanted.
    let _: ControlFlow<()> = match node {
        Node::Directory { .. } if args.directory => lister.line(node, "."),
        Node::Directory { .. } => lister.entries(node, "."),
        _ => lister.line(node, &escaped(file.file_name())),
    };
    lister.output.finish()
}

/// Returns the tree of the path that a file is in. Follows symlinks on the way to the file.
fn find_tree(open: &OpenSource, file: &StoreFile) -> anyhow::Result<(Node, StoreFile)> {
    let mut file = file.clone();
    for _ in 0..=LINKS_MAX {
        let narinfo = open.narinfo_of(&mut file)?;
        let tree = open.source().tree(&narinfo)?;
        match tree.find(&file.names()) {
            FoundNode::Link { depth, target } => {
                let dir = open.source().store_dir();
                file = file.follow(&narinfo.info.path, (depth, target), dir)?;
            }
            _ => return Ok((tree, file)),
        }
    }
    bail!(
        "cannot list {}: it is behind more than {LINKS_MAX} symlinks",
        file.text()
    );
}

struct Lister<'a> {
    args: &'a LsArgs,
    output: LongOutput,
}

impl Lister<'_> {
    /// Writes a line for each entry of a directory. A tree is no deeper than a NAR may be.
    fn entries(&mut self, node: &Node, name: &str) -> ControlFlow<()> {
        let Node::Directory { entries } = node else {
            return ControlFlow::Continue(());
        };
        for (entry, node) in entries {
            let name = format!("{name}/{}", escaped(String::from_utf8_lossy(entry)));
            self.line(node, &name)?;
            if self.args.recursive {
                self.entries(node, &name)?;
            }
        }
        ControlFlow::Continue(())
    }

    /// Writes the line of a node, with the fields of Nix.
    fn line(&mut self, node: &Node, name: &str) -> ControlFlow<()> {
        if !self.args.long {
            return self.output.write(format_args!("{name}\n"));
        }
        let (mode, size) = match node {
            Node::File { executable, size } if *executable => ("-r-xr-xr-x", *size),
            Node::File { size, .. } => ("-r--r--r--", *size),
            Node::Symlink { .. } => ("lrwxrwxrwx", 0),
            Node::Directory { .. } => ("dr-xr-xr-x", 0),
        };
        let target = match node {
            Node::Symlink { target } => {
                format!(" -> {}", escaped(String::from_utf8_lossy(target)))
            }
            _ => String::new(),
        };
        self.output
            .write(format_args!("{mode} {size:>20} {name}{target}\n"))
    }
}

/// Returns the offsets of the files below a place, by the names from there.
fn offsets<'t>(tree: &'t Node, place: &[&[u8]]) -> HashMap<Vec<&'t [u8]>, u64> {
    let files = tree.layout().files.into_iter();
    let below = files.filter(|file| file.path.starts_with(place));
    below
        .map(|mut file| (file.path.split_off(place.len()), file.offset))
        .collect()
}

/// Returns the listing of a node as Nix prints it: without the contents of its directories, unless
/// they are wanted too.
fn to_json<'t>(
    node: &'t Node,
    names: &mut Vec<&'t [u8]>,
    offsets: &HashMap<Vec<&'t [u8]>, u64>,
    recursive: bool,
) -> Value {
    match node {
        Node::File { executable, size } => json!({
            "type": "regular",
            "size": size,
            "executable": executable,
            "narOffset": offsets.get(names),
        }),
        Node::Symlink { target } => json!({
            "type": "symlink",
            "target": String::from_utf8_lossy(target),
        }),
        Node::Directory { entries } => {
            let mut printed = Map::new();
            for (name, node) in entries {
                let entry = if recursive {
                    names.push(name);
                    let entry = to_json(node, names, offsets, recursive);
                    names.pop();
                    entry
                } else {
                    json!({})
                };
                printed.insert(String::from_utf8_lossy(name).into_owned(), entry);
            }
            json!({ "type": "directory", "entries": printed })
        }
    }
}
