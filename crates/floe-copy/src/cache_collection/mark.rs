//! Finds what a collection may delete.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::time::{Duration, SystemTime};

use floe_format::lease::{is_key, object_key};
use floe_format::{HashPart, sum_of_sizes};
use floe_transfer::{CacheObject, Error};

use super::graph::CacheGraph;
use super::plan::not_collected;
use super::roots::Pins;
use super::{CacheCollection, CollectionEvent, CollectionReport};

/// The objects of a cache that neither a pin nor a recent path needs.
#[derive(Debug)]
pub struct Marked {
    pub(super) graph: CacheGraph,
    /// The paths.
    pub(super) garbage: HashSet<HashPart>,
    /// Their listings, and those without a path.
    pub(super) listings: Vec<String>,
    /// The files that only they use, and those that no path uses.
    pub(super) files: BTreeMap<String, CacheObject>,
    pub(super) pins: Pins,
}

impl CacheCollection<'_> {
    /// Reads the cache, and finds what can be deleted.
    ///
    /// Errors: those of the storage; a pin that does not parse; [`Error::Cancelled`].
    pub fn mark(&self) -> Result<Marked, Error> {
        let now = self.now()?;
        // A pin that is moved meanwhile keeps both paths.
        let pins = self.read_pins()?;
        let names = self.cache.names(self.cancel)?;
        let mut graph = CacheGraph::default();
        graph.update(self.cache, &names.narinfos, self.cancel)?;
        for (name, reason) in &graph.unusable {
            (self.events)(CollectionEvent::UnusableNarInfo { name, reason });
        }
        let keep_newer = self.options.keep_newer.max(self.options.grace);
        let recent = graph.nodes.iter().filter(|(_, node)| {
            let modified = node.modified;
            is_newer(modified, now, keep_newer)
        });
        let recent: Vec<HashPart> = recent.map(|(part, _)| *part).collect();
        self.warn_of_incomplete(&graph, &pins);
        let pinned = pins.kept.iter().map(|(_, part)| *part);
        let live = live_paths(&graph, pinned.chain(recent))?;
        let garbage = graph.nodes.keys().filter(|part| !live.contains(*part));
        let garbage: HashSet<HashPart> = garbage.copied().collect();
        let is_old = |object: &CacheObject| !is_newer(object.modified, now, self.options.grace);
        let used = graph.files_used_without(&garbage, &names.link_targets);
        let files = names.nars.iter();
        let files = files.filter(|(name, facts)| {
            let is_file = facts.len.is_some() && !is_temporary(name);
            let is_unused = !used.contains(file_name(name)) && is_old(facts);
            is_file && is_unused && is_key(object_key(name))
        });
        let files = files.map(|(name, facts)| (name.clone(), *facts)).collect();
        let listings = names.listings.iter().filter(|(name, facts)| {
            let part = name.split('.').next().and_then(HashPart::parse);
            let is_used = part.is_some_and(|part| graph.nodes.contains_key(&part));
            match part {
                _ if facts.len.is_none() => false,
                Some(part) if is_used => garbage.contains(&part),
                // The listing of a narinfo that cannot be used.
                Some(part) if names.narinfos.contains_key(&format!("{part}.narinfo")) => false,
                _ => is_old(facts),
            }
        });
        let listings = listings.map(|(name, _)| name.clone()).collect();
        Ok(Marked {
            listings,
            files,
            garbage,
            graph,
            pins,
        })
    }

    pub(super) fn read_pins(&self) -> Result<Pins, Error> {
        let keep = self.options.keep_generations;
        Pins::read(self.cache.objects(), keep, self.cancel)
    }

    /// Returns the time by the clock of the cache.
    pub(super) fn now(&self) -> Result<SystemTime, Error> {
        let info = self.cache.objects();
        let info = info.get_large(CACHE_INFO, CACHE_INFO_LEN_MAX, self.cancel)?;
        let replied_at = info.and_then(|info| info.replied_at);
        Ok(replied_at.unwrap_or_else(SystemTime::now))
    }

    fn warn_of_incomplete(&self, graph: &CacheGraph, pins: &Pins) {
        for (pin, part) in &pins.kept {
            let mut first = None;
            graph.closure([*part], |part| _ = first.get_or_insert(part));
            if let Some(part) = first {
                (self.events)(CollectionEvent::IncompletePin {
                    pin,
                    missing: part.as_str(),
                });
            }
        }
    }
}

impl Marked {
    /// Whether there is nothing to delete.
    pub fn is_empty(&self) -> bool {
        self.garbage.is_empty()
            && self.files.is_empty()
            && self.listings.is_empty()
            && self.pins.old.is_empty()
    }

    /// Returns the number of pins whose paths stay.
    pub fn pins(&self) -> usize {
        let names: BTreeSet<&str> = self.pins.kept.iter().map(|(name, _)| &**name).collect();
        names.len()
    }

    /// Returns the number of paths that stay.
    pub fn kept_paths(&self) -> usize {
        self.graph.nodes.len() - self.garbage.len()
    }

    /// Returns what a collection would delete now.
    pub fn report(&self) -> CollectionReport {
        let sizes = self.files.values().filter_map(|facts| facts.len);
        CollectionReport {
            paths: self.graph.store_paths(&self.garbage),
            files: self.files.len(),
            file_bytes: sum_of_sizes(sizes),
            generations: self.pins.old.len(),
            kept_for_pushes: 0,
        }
    }

    /// Returns the names of all objects that would be deleted.
    pub(super) fn planned_objects(&self) -> impl Iterator<Item = &str> {
        let parts = self.garbage.iter().map(HashPart::as_str);
        let listings = self.listings.iter().map(String::as_str);
        parts
            .chain(listings)
            .chain(self.files.keys().map(String::as_str))
    }
}

/// Returns some paths and all that they need.
///
/// Errors: the narinfo of one of them cannot be used, so that its references are not known.
pub(super) fn live_paths(
    graph: &CacheGraph,
    roots: impl IntoIterator<Item = HashPart>,
) -> Result<HashSet<HashPart>, Error> {
    let mut unusable = None;
    let live = graph.closure(roots, |part| {
        let name = format!("{part}.narinfo");
        let reason = graph.unusable.get(&name);
        unusable = unusable.take().or(reason.map(|reason| (name, reason)));
    });
    match unusable {
        None => Ok(live),
        Some((name, reason)) => Err(not_collected(format!(
            "the references of {name}, which is needed, are not known: {reason}; push its path \
             again with floe push --check"
        ))),
    }
}

/// Returns the name of a file of a NAR without its folder.
pub(super) fn file_name(name: &str) -> &str {
    name.strip_prefix("nar/").unwrap_or(name)
}

/// Whether an object was written within a time. One without a known time counts as new.
pub(super) fn is_newer(modified: Option<SystemTime>, now: SystemTime, time: Duration) -> bool {
    modified.is_none_or(|modified| now.duration_since(modified).unwrap_or_default() < time)
}

/// Whether a writer has not given a file its name yet. The next writer removes such a file.
fn is_temporary(name: &str) -> bool {
    let name = file_name(name);
    name.starts_with('.') && !name.starts_with(STAGED_PREFIX)
}

/// The names of the records of staged NARs begin with this text.
const STAGED_PREFIX: &str = ".floe-staged-";

const CACHE_INFO: &str = "nix-cache-info";

/// Longer than any `nix-cache-info`, in bytes.
const CACHE_INFO_LEN_MAX: usize = 64 * 1024;
