//! The files in the tree of a path: from the source's own knowledge of the tree, or from the NAR.

use std::io::BufRead as _;
use std::ops::ControlFlow;

use floe_format::nar::layout::{FileExtent, FoundNode, Node};
use floe_format::nar::read::NarEvent;
use floe_format::{Hash, NarInfo, Size};
use floe_hash::Hasher;

use super::Source;
use crate::error::Error;
use crate::nar_stream::WriteChunk;
use crate::unhashed_body::UnhashedBody;

/// The result of a search for a file in the tree of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FoundFile {
    /// A file, whose contents were written.
    Contents,
    /// A symlink, at the place or on the way to it.
    Link {
        /// How many of the names lead to the symlink.
        depth: usize,
        /// Its target.
        target: Vec<u8>,
    },
    /// A directory.
    Directory,
    /// Nothing.
    Absent,
}

impl dyn Source + '_ {
    /// Returns the tree of a path. Reads the NAR, without verifying it, if the source does not know
    /// the tree.
    ///
    /// Errors: those of the source.
    pub fn tree(&self, narinfo: &NarInfo) -> Result<Node, Error> {
        if let Some(tree) = self.query_tree(narinfo)? {
            return Ok(tree);
        }
        let mut builder = TreeBuilder::default();
        self.scan_nar(narinfo, &mut |event| {
            builder.visit(event);
            if builder.len > TREE_LEN_MAX {
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        })?;
        builder.root.ok_or_else(|| Error::InvalidNar {
            path: narinfo.info.path.clone(),
            url: self.nar_url(narinfo),
            reason: format!(
                "its tree needs more than {} of memory",
                Size(TREE_LEN_MAX as u64)
            ),
        })
    }

    /// Writes the contents of the file at a place in the tree of a path, and says what stands
    /// there. Reads no more than the file if the source can open it alone; otherwise the NAR up to
    /// the end of the file. Verifies neither.
    ///
    /// Errors: those of the source and of `write`.
    pub fn read_file(
        &self,
        narinfo: &NarInfo,
        names: &[&[u8]],
        write: &mut WriteChunk<'_>,
    ) -> Result<FoundFile, Error> {
        if let Some(tree) = self.query_tree(narinfo)? {
            match tree.find(names) {
                FoundNode::Node(Node::File { .. }) => {
                    let files = tree.layout().files;
                    let file = files.iter().find(|file| file.path == names);
                    if let Some(file) = file
                        && self.copy_file(narinfo, file, write)?
                    {
                        return Ok(FoundFile::Contents);
                    }
                }
                FoundNode::Node(Node::Directory { .. }) => return Ok(FoundFile::Directory),
                FoundNode::Node(Node::Symlink { target }) => {
                    return Ok(FoundFile::link(names.len(), target));
                }
                FoundNode::Link { depth, target } => return Ok(FoundFile::link(depth, target)),
                FoundNode::Absent => return Ok(FoundFile::Absent),
            }
        }
        let mut finder = FileFinder {
            names,
            depth: 0,
            matching: 0,
            found: None,
            write,
        };
        let mut failure = None;
        self.scan_nar(narinfo, &mut |event| match finder.visit(event) {
            Ok(flow) => flow,
            Err(error) => {
                failure = Some(error);
                ControlFlow::Break(())
            }
        })?;
        match failure {
            Some(error) => Err(error),
            None => Ok(finder.found.unwrap_or(FoundFile::Absent)),
        }
    }

    /// Writes the contents of a file that the source opens alone. Returns whether it did.
    fn copy_file(
        &self,
        narinfo: &NarInfo,
        file: &FileExtent<'_>,
        write: &mut WriteChunk<'_>,
    ) -> Result<bool, Error> {
        let Some(body) = self.open_file(narinfo, file)? else {
            return Ok(false);
        };
        let url = self.nar_url(narinfo);
        let mut reader = UnhashedBody::new(body, &url, u64::MAX);
        let mut left = file.size;
        while left > 0 {
            let chunk = reader.next_bytes()?;
            if chunk.is_empty() {
                let reason = format!("it ends {left} bytes before the end of the file");
                return Err(Error::fetch(&url, reason, true));
            }
            let len = chunk.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            write(&chunk[..len])?;
            reader.consume(len);
            left -= len as u64;
        }
        Ok(true)
    }

    /// Writes the NAR of a path, and verifies its size and its hash at the end.
    ///
    /// Errors: those of the source and of `write`; [`Error::Mismatch`] after everything is written.
    pub fn dump_nar(&self, narinfo: &NarInfo, write: &mut WriteChunk<'_>) -> Result<(), Error> {
        let info = &narinfo.info;
        let mut hasher = Hasher::new(info.nar_hash.algorithm());
        let mut len = 0;
        self.read_nar(narinfo, &mut |chunk| {
            hasher.update(chunk);
            len += chunk.len() as u64;
            write(chunk)?;
            Ok(ControlFlow::Continue(()))
        })?;
        let mismatch = |what, expected: String, actual: String| Error::Mismatch {
            path: info.path.clone(),
            url: self.nar_url(narinfo),
            what,
            expected,
            actual,
        };
        if len != info.nar_size {
            let sizes = (info.nar_size.to_string(), len.to_string());
            return Err(mismatch("NAR size", sizes.0, sizes.1));
        }
        match Hash::new(info.nar_hash.algorithm(), &hasher.finish()) {
            Ok(hash) if hash == info.nar_hash => Ok(()),
            Ok(hash) => Err(mismatch(
                "NAR hash",
                info.nar_hash.to_nix32(),
                hash.to_nix32(),
            )),
            Err(_) => Err(Error::Internal(
                "a digest has another length than its algorithm",
            )),
        }
    }
}

impl FoundFile {
    fn link(depth: usize, target: &[u8]) -> FoundFile {
        FoundFile::Link {
            depth,
            target: target.to_vec(),
        }
    }
}

/// Builds the tree of a NAR without the contents.
#[derive(Default)]
struct TreeBuilder {
    root: Option<Node>,
    /// The open directories, and the name of the entry that follows in each.
    open: Vec<(Node, Vec<u8>)>,
    /// The length of all names and targets, and of the nodes.
    len: usize,
}

impl TreeBuilder {
    fn visit(&mut self, event: NarEvent<'_>) {
        match event {
            NarEvent::Directory => {
                let entries = Default::default();
                self.open.push((Node::Directory { entries }, Vec::new()));
            }
            NarEvent::Entry { name } => {
                self.len += name.len();
                if let Some((_, next)) = self.open.last_mut() {
                    *next = name.to_vec();
                }
            }
            NarEvent::EndDirectory => {
                if let Some((directory, _)) = self.open.pop() {
                    self.add(directory);
                }
            }
            NarEvent::Symlink { target } => self.add(Node::Symlink {
                target: target.to_vec(),
            }),
            NarEvent::File { executable, size } => self.add(Node::File { executable, size }),
            NarEvent::Data(_) | NarEvent::EndFile | NarEvent::End => {}
        }
    }

    fn add(&mut self, node: Node) {
        self.len += NODE_LEN;
        if let Node::Symlink { target } = &node {
            self.len += target.len();
        }
        match self.open.last_mut() {
            Some((Node::Directory { entries }, name)) => {
                entries.insert(std::mem::take(name), node);
            }
            _ => self.root = Some(node),
        }
    }
}

/// How much memory the tree of a NAR may need, in bytes: enough for about two million files.
const TREE_LEN_MAX: usize = 256 * 1024 * 1024;

/// The memory of a node and its name in a map, in bytes.
const NODE_LEN: usize = 112;

/// Finds a file in a NAR.
struct FileFinder<'a, 'w> {
    /// The names that lead to it.
    names: &'a [&'a [u8]],
    /// The number of names from the root to the current node.
    depth: usize,
    /// How many of these names are those that lead to the file.
    matching: usize,
    found: Option<FoundFile>,
    write: &'a mut WriteChunk<'w>,
}

impl FileFinder<'_, '_> {
    fn visit(&mut self, event: NarEvent<'_>) -> Result<ControlFlow<()>, Error> {
        let is_on_way = self.matching == self.depth;
        let is_there = is_on_way && self.depth == self.names.len();
        match event {
            NarEvent::Entry { name } => {
                let wanted = self.names.get(self.depth);
                self.depth += 1;
                if is_on_way && wanted.is_some_and(|wanted| *wanted == name) {
                    self.matching += 1;
                }
                return Ok(ControlFlow::Continue(()));
            }
            NarEvent::Directory if is_there => self.found = Some(FoundFile::Directory),
            NarEvent::Symlink { target } if is_on_way => {
                self.found = Some(FoundFile::link(self.depth, target));
            }
            NarEvent::Data(data) if is_there => (self.write)(data)?,
            NarEvent::EndFile if is_there => self.found = Some(FoundFile::Contents),
            _ => {}
        }
        if self.found.is_some() {
            return Ok(ControlFlow::Break(()));
        }
        if let NarEvent::Symlink { .. } | NarEvent::EndFile | NarEvent::EndDirectory = event {
            if is_on_way {
                // The names are in order, so the place does not follow.
                self.found = Some(FoundFile::Absent);
                return Ok(ControlFlow::Break(()));
            }
            self.depth = self.depth.saturating_sub(1);
        }
        Ok(ControlFlow::Continue(()))
    }
}
