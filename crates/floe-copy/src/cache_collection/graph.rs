//! The references between the paths of a cache, as small as possible.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::time::SystemTime;

use floe_format::{HashPart, NarInfo, StorePath};
use floe_transfer::{CacheInventory, CacheObject, Cancel, Error, file_name_of_url};

use super::plan::not_collected;

/// A path of a cache, without its texts and references.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) modified: Option<SystemTime>,
    path: Range<usize>,
    file: Range<usize>,
    deriver: Option<Range<usize>>,
    references: Range<usize>,
}

// `CacheGraph` says why a node has no memory of its own.
const _: () = assert!(!std::mem::needs_drop::<Node>());

/// The paths of a cache.
///
/// The texts and references of all paths lie in two large pieces of memory: with pieces of their
/// own they would lie between the buffers of the network, whose memory could not be used again.
#[derive(Debug, Default)]
pub(super) struct CacheGraph {
    pub(super) nodes: HashMap<HashPart, Node>,
    /// The texts of a path stay after its node is gone: few paths go while a collection runs.
    texts: String,
    references: Vec<HashPart>,
    /// The narinfos that cannot be used, by the names of their objects, with the reasons.
    pub(super) unusable: HashMap<String, String>,
    /// The files of NARs that these name, without their folder.
    pub(super) unusable_files: HashSet<String>,
}

impl CacheGraph {
    /// Reads the narinfos that are new or that were written since, and drops those that are gone.
    pub(super) fn update(
        &mut self,
        cache: &dyn CacheInventory,
        listed: &HashMap<String, CacheObject>,
        cancel: &Cancel,
    ) -> Result<(), Error> {
        self.nodes.retain(|part, node| {
            let found = listed.get(&format!("{part}.narinfo"));
            found.is_some_and(|found| node.modified.is_some() && found.modified == node.modified)
        });
        self.unusable.clear();
        self.unusable_files.clear();
        let is_known = |name: &&String| {
            let part = name.split('.').next().and_then(HashPart::parse);
            part.is_some_and(|part| self.nodes.contains_key(&part))
        };
        let unread: Vec<&String> = listed.keys().filter(|it| !is_known(it)).collect();
        let mut unread = unread.into_iter().cloned();
        let modified = |name: &str| listed.get(name).and_then(|found| found.modified);
        let mut unreadable = None;
        cache.read_narinfos(&mut unread, cancel, &mut |name, found| match found {
            Ok(narinfo) => self.insert(&narinfo, modified(&name)),
            Err(unusable) if unusable.is_unreadable => unreadable = Some(unusable.reason),
            Err(unusable) => {
                self.unusable.insert(name, unusable.reason);
                let file = unusable.url.as_deref().map(file_name_of_url);
                self.unusable_files.extend(file);
            }
        })?;
        // The paths that it needs are not known.
        unreadable.map_or(Ok(()), |reason| Err(not_collected(reason)))
    }

    fn insert(&mut self, narinfo: &NarInfo, modified: Option<SystemTime>) {
        let info = &narinfo.info;
        let mut keep = |text: &str| {
            let start = self.texts.len();
            self.texts.push_str(text);
            start..self.texts.len()
        };
        let path = keep(info.path.as_str());
        let file = keep(&file_name_of_url(&narinfo.url));
        let deriver = info.deriver.as_ref().map(|it| keep(it.as_str()));
        let start = self.references.len();
        let references = info.references.iter().map(StorePath::hash_part);
        self.references.extend(references);
        let node = Node {
            modified,
            path,
            file,
            deriver,
            references: start..self.references.len(),
        };
        self.nodes.insert(info.path.hash_part(), node);
    }

    fn text(&self, range: &Range<usize>) -> &str {
        &self.texts[range.clone()]
    }

    /// Returns those of some paths that the cache has, sorted.
    pub(super) fn store_paths(&self, parts: &HashSet<HashPart>) -> Vec<StorePath> {
        let nodes = parts.iter().filter_map(|part| self.nodes.get(part));
        let paths = nodes.filter_map(|node| StorePath::parse(self.text(&node.path)).ok());
        let mut paths: Vec<StorePath> = paths.collect();
        paths.sort_unstable();
        paths
    }

    /// Returns the derivation of a path.
    pub(super) fn deriver(&self, part: &HashPart) -> Option<&str> {
        let deriver = self.nodes.get(part)?.deriver.as_ref();
        deriver.map(|range| self.text(range))
    }

    fn references(&self, node: &Node) -> &[HashPart] {
        &self.references[node.references.clone()]
    }

    /// Returns some paths and all to which they refer directly or indirectly, as far as the cache
    /// has them. Calls `missing` for each that it does not have.
    pub(super) fn closure(
        &self,
        roots: impl IntoIterator<Item = HashPart>,
        mut missing: impl FnMut(HashPart),
    ) -> HashSet<HashPart> {
        let mut open: Vec<HashPart> = roots.into_iter().collect();
        let mut closure: HashSet<HashPart> = open.iter().copied().collect();
        while let Some(part) = open.pop() {
            let Some(node) = self.nodes.get(&part) else {
                closure.remove(&part);
                missing(part);
                continue;
            };
            let references = self.references(node).iter();
            let new = references.filter(|it| closure.insert(**it));
            open.extend(new.copied().collect::<Vec<_>>());
        }
        closure
    }

    /// Returns the files of NARs that the paths outside of a set use, without their folder.
    ///
    /// `linked` are the targets of links to files.
    pub(super) fn files_used_without<'a>(
        &'a self,
        deleted: &HashSet<HashPart>,
        linked: &'a HashSet<String>,
    ) -> HashSet<&'a str> {
        let kept = self
            .nodes
            .iter()
            .filter(|(part, _)| !deleted.contains(*part));
        let files = kept.map(|(_, node)| self.text(&node.file));
        files
            .chain(self.unusable_files.iter().chain(linked).map(String::as_str))
            .collect()
    }

    /// Sorts paths into waves. No path of a wave refers to one of the same or of an earlier wave,
    /// so that a closure stays whole as long as its root is there. Circles make the last wave.
    pub(super) fn referrers_first(&self, paths: &HashSet<HashPart>) -> Vec<Vec<HashPart>> {
        let references = |part: &HashPart| {
            let node = self.nodes.get(part);
            let references = node.map_or(&[][..], |node| self.references(node)).iter();
            let own = *part;
            references.filter(move |it| **it != own && paths.contains(*it))
        };
        let mut referrers: HashMap<HashPart, usize> = HashMap::new();
        for reference in paths.iter().flat_map(references) {
            *referrers.entry(*reference).or_default() += 1;
        }
        let is_first = |part: &&HashPart| !referrers.contains_key(*part);
        let mut wave: Vec<HashPart> = paths.iter().filter(is_first).copied().collect();
        let (mut waves, mut sorted) = (Vec::new(), HashSet::new());
        while !wave.is_empty() {
            sorted.extend(wave.iter().copied());
            let mut next = Vec::new();
            for reference in wave.iter().flat_map(references) {
                let count = referrers.entry(*reference).or_default();
                *count = count.saturating_sub(1);
                if *count == 0 {
                    next.push(*reference);
                }
            }
            waves.push(std::mem::replace(&mut wave, next));
        }
        let circles = paths.iter().filter(|part| !sorted.contains(*part));
        let circles: Vec<HashPart> = circles.copied().collect();
        waves.extend((!circles.is_empty()).then_some(circles));
        waves
    }
}
