//! Checks again what a collection may delete, and deletes it.

use std::collections::{HashMap, HashSet};
use std::time::SystemTime;

use floe_format::lease::object_key;
use floe_format::{HashPart, StorePath, sum_of_sizes};
use floe_transfer::{CacheNames, CacheObject, Error};
use serde_json::Value;

use super::graph::CacheGraph;
use super::mark::{Marked, file_name, is_newer, live_paths};
use super::plan::HeldPlan;
use super::{CacheCollection, CollectionEvent, CollectionReport};

impl CacheCollection<'_> {
    /// Deletes what is still unused, apart from the keys that pushes need.
    pub(super) fn check_again_and_delete(
        &self,
        marked: &mut Marked,
        needs: &HashSet<String>,
        plan: &HeldPlan<'_>,
    ) -> Result<CollectionReport, Error> {
        let nodes = marked.graph.nodes.iter();
        let planned = nodes.filter(|(part, _)| marked.garbage.contains(*part));
        let times: Vec<_> = planned.map(|(part, node)| (*part, node.modified)).collect();
        let now = self.now()?;
        // Pins come first: one that is written later names a path that the user's lease keeps.
        let pins = self.read_pins()?;
        let names = self.cache.names(self.cancel)?;
        let graph = &mut marked.graph;
        graph.update(self.cache, &names.narinfos, self.cancel)?;
        // Whatever was not planned stays, and so does what was written again or is needed.
        let unplanned = graph
            .nodes
            .keys()
            .filter(|part| !marked.garbage.contains(*part));
        let rewritten = times.iter().filter(|(part, modified)| {
            let node = graph.nodes.get(part);
            node.is_some_and(|node| node.modified != *modified)
        });
        let rewritten = rewritten.map(|(part, _)| *part);
        let needed = |part: &&HashPart| needs.contains(object_key(part.as_str()));
        let needed = marked.garbage.iter().filter(needed).copied();
        let pinned = pins.kept.iter().map(|(_, part)| *part);
        let roots = unplanned
            .copied()
            .chain(rewritten)
            .chain(needed)
            .chain(pinned);
        let live = live_paths(graph, roots)?;
        let is_there = |part: &&HashPart| graph.nodes.contains_key(*part);
        let planned = marked.garbage.iter().filter(is_there);
        let (kept, garbage): (Vec<HashPart>, Vec<HashPart>) =
            planned.partition(|part| live.contains(*part));
        let garbage: HashSet<HashPart> = garbage.into_iter().collect();
        let files = unused_files(marked, &garbage, (&names, needs));
        let listings = marked.listings.iter().filter(|name| {
            let part = name.split('.').next().and_then(HashPart::parse);
            let is_kept = part.is_some_and(|part| {
                marked.graph.nodes.contains_key(&part) && !garbage.contains(&part)
            });
            !is_kept && !needs.contains(object_key(name))
        });
        let listings: Vec<String> = listings.cloned().collect();
        (self.events)(CollectionEvent::Deleting {
            objects: garbage.len() + listings.len() + files.len(),
        });
        for wave in marked.graph.referrers_first(&garbage) {
            let wave: Vec<String> = wave.iter().map(|part| format!("{part}.narinfo")).collect();
            self.delete(&wave, plan)?;
        }
        self.delete(&listings, plan)?;
        self.delete(&files, plan)?;
        self.delete(
            &self.unused_companions(&marked.graph, &garbage, (&names, now), &files)?,
            plan,
        )?;
        self.delete(&pins.old, plan)?;
        let sizes = files.iter().filter_map(|name| names.nars.get(name)?.len);
        Ok(CollectionReport {
            paths: marked.graph.store_paths(&garbage),
            files: files.len(),
            file_bytes: sum_of_sizes(sizes),
            generations: pins.old.len(),
            kept_for_pushes: kept.len(),
        })
    }

    /// Deletes objects, as long as the plan counts.
    pub(super) fn delete(&self, names: &[String], plan: &HeldPlan<'_>) -> Result<(), Error> {
        self.cache.delete(names, &|| {
            self.check_cancelled()?;
            plan.check_held()
        })
    }

    /// Returns the logs, realisations and links to debug information that belong to no path any
    /// more.
    fn unused_companions(
        &self,
        graph: &CacheGraph,
        garbage: &HashSet<HashPart>,
        (names, now): (&CacheNames, SystemTime),
        files: &[String],
    ) -> Result<Vec<String>, Error> {
        let deriver = |part: &HashPart| graph.deriver(part);
        let kept = graph.nodes.keys().filter(|part| !garbage.contains(*part));
        let kept: HashSet<&str> = kept.filter_map(deriver).collect();
        let logs = garbage.iter().filter_map(deriver);
        let logs = logs.filter(|deriver| !kept.contains(deriver));
        let logs: HashSet<String> = logs.map(|deriver| format!("log/{deriver}")).collect();
        let existing = names.logs.keys().filter(|name| logs.contains(*name));
        let mut unused: Vec<String> = existing.cloned().collect();
        // A collection that was killed may have left some.
        let is_old = |facts: &CacheObject| !is_newer(facts.modified, now, self.options.grace);
        let old = |objects: &HashMap<String, CacheObject>| -> Vec<String> {
            let old = objects.iter().filter(|(_, facts)| is_old(facts));
            old.map(|(name, _)| name.clone()).collect()
        };
        let has_path = |part| graph.nodes.contains_key(&part) && !garbage.contains(&part);
        let mut realisations = old(&names.realisations).into_iter();
        self.cache
            .read_objects(&mut realisations, self.cancel, &mut |name, text| {
                let path = out_path_of(&text);
                unused.extend(
                    path.is_some_and(|it| !has_path(it.hash_part()))
                        .then_some(name),
                );
            })?;
        let files: HashSet<&str> = files.iter().map(String::as_str).collect();
        let has_file = |file: &str| names.nars.contains_key(file) && !files.contains(file);
        let mut links = old(&names.debug_info).into_iter();
        self.cache
            .read_objects(&mut links, self.cancel, &mut |name, text| {
                let file = archive_of(&text);
                unused.extend(file.is_some_and(|it| !has_file(&it)).then_some(name));
            })?;
        Ok(unused)
    }
}

/// Returns the planned files that still nothing uses.
fn unused_files(
    marked: &Marked,
    garbage: &HashSet<HashPart>,
    (names, needs): (&CacheNames, &HashSet<String>),
) -> Vec<String> {
    let used = marked
        .graph
        .files_used_without(garbage, &names.link_targets);
    let is_unused = |(name, before): &(&String, &CacheObject)| {
        let is_unchanged = names.nars.get(*name) == Some(*before);
        is_unchanged && !used.contains(file_name(name)) && !needs.contains(object_key(name))
    };
    let unused = marked.files.iter().filter(is_unused);
    unused.map(|(name, _)| name.clone()).collect()
}

/// Returns the path of a realisation.
fn out_path_of(text: &[u8]) -> Option<StorePath> {
    let realisation: Value = serde_json::from_slice(text).ok()?;
    StorePath::parse(realisation.get("outPath")?.as_str()?).ok()
}

/// Returns the file of a NAR that a link to debug information names.
fn archive_of(text: &[u8]) -> Option<String> {
    let link: Value = serde_json::from_slice(text).ok()?;
    let archive = link.get("archive")?.as_str()?;
    archive.strip_prefix("../").map(str::to_owned)
}
