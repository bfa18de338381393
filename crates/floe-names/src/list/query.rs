//! Queries of a list: the newest version of a package for a system.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::time::Duration;

use floe_format::drv_name::{compare_versions, name_and_version};
use floe_format::{NarInfo, StorePath};

use super::systems::system_of;
use super::{Entry, ListUri, load, parse_list};
use crate::access::Access;
use crate::hydra::machine_system;
use crate::memory::Systems;
use crate::package::{Candidate, QueryResult, SourceError, SourceReply, Unusable};

/// Queries a list for packages: `NAME`, or `NAME@VERSION`. `kept` says where and how long texts are
/// kept.
pub(crate) fn query_all(
    (uri, kept): (&ListUri, (Option<&Path>, Duration)),
    names: &[&str],
    (access, systems): (&dyn Access, &mut Systems),
) -> Vec<QueryResult> {
    let list = match load(uri, kept, access) {
        Ok(list) => list,
        Err(error) => return names.iter().map(|_| Err(error.clone())).collect(),
    };
    let wanted = machine_system();
    let names = names.iter().map(|name| match name.split_once('@') {
        Some((name, version)) => (name, Some(version)),
        None => (*name, None),
    });
    let names: Vec<(&str, Option<&str>)> = names.collect();
    let narinfos = NarInfos::query(&list.text, &names, access);
    let results = names.into_iter().map(|name| {
        let found = query(&list.text, name, &wanted, (&narinfos, access, systems))?;
        Ok(found.map(|candidate| SourceReply {
            candidate,
            resolved_at: list.fetched_at,
            origin: list.origin.clone(),
        }))
    });
    results.collect()
}

/// The narinfos that were queried before, all at once.
#[derive(Default)]
struct NarInfos(HashMap<StorePath, Option<NarInfo>>);

impl NarInfos {
    /// Queries the newest versions of some packages.
    fn query(text: &str, names: &[(&str, Option<&str>)], access: &dyn Access) -> NarInfos {
        let newest = names
            .iter()
            .filter_map(|(name, version)| versions(text, name, *version).into_iter().next());
        let entries = newest.flat_map(|(_, entries)| entries);
        let paths: Vec<StorePath> = entries.filter_map(|entry| entry.store_path()).collect();
        if names.len() < 2 || paths.is_empty() {
            return NarInfos::default();
        }
        // After a failure, the query for each package has the error.
        let narinfos = access.narinfos(&paths).unwrap_or_default();
        NarInfos(paths.into_iter().zip(narinfos).collect())
    }

    /// Returns the narinfos of paths, and queries for those that are not known.
    fn get(
        &self,
        paths: &[StorePath],
        access: &dyn Access,
    ) -> Result<Vec<Option<NarInfo>>, SourceError> {
        let known = paths.iter().map(|path| self.0.get(path).cloned());
        if let Some(known) = known.collect() {
            return Ok(known);
        }
        let narinfos = access.narinfos(paths);
        narinfos.map_err(|error| SourceError::Fetch(error.into()))
    }
}

/// Returns the outputs of the newest version of a package for a system, or of `version`.
fn query(
    text: &str,
    (name, version): (&str, Option<&str>),
    wanted: &str,
    (known, access, systems): (&NarInfos, &dyn Access, &mut Systems),
) -> Result<Option<Candidate>, SourceError> {
    let versions = versions(text, name, version);
    if versions.is_empty() {
        return Ok(None);
    }
    let mut refusals = Vec::new();
    for (version, entries) in versions {
        if entries.len() > ENTRIES_MAX {
            return Err(SourceError::Unusable(Unusable(format!(
                "the list has more than {ENTRIES_MAX} paths of version {version}"
            ))));
        }
        let groups = groups(&entries, (known, access))?;
        if groups.is_empty() {
            refusals.push(format!("no cache has version {version}"));
        }
        let mut usable = Vec::new();
        let mut unknown = Vec::new();
        for group in groups {
            let narinfos: Vec<&NarInfo> = group.iter().map(|(_, narinfo)| narinfo).collect();
            match system_of(&narinfos, (access, systems))? {
                Some(system) if system == wanted => usable.push(group),
                Some(system) => refusals.push(format!("version {version} is for {system}")),
                None => unknown.push(group),
            }
        }
        // Without programs, a path is as good for each system, if there is only one.
        let found = if usable.is_empty() { unknown } else { usable };
        match &*found {
            [] => {}
            [only] => return Ok(Some(candidate(only))),
            several => return Err(ambiguous(several)),
        }
    }
    refusals.dedup();
    Err(SourceError::Unusable(Unusable(format!(
        "this machine needs {wanted}, and {}",
        refusals.join(", ")
    ))))
}

/// An entry with its narinfo.
type Found<'a> = (Entry<'a>, NarInfo);

/// Returns the entries of a package by version, the newest first.
fn versions<'a>(
    text: &'a str,
    name: &str,
    version: Option<&str>,
) -> Vec<(&'a str, Vec<Entry<'a>>)> {
    // A name with a version is the name of a path, such as jq-1.7.1.
    let (package, own_version) = match name_and_version(name) {
        (_, "") => (name, None),
        (package, version) => (package, Some(version)),
    };
    let version = version.or(own_version);
    let entries = parse_list(text).filter(|entry| {
        entry.package == package && version.is_none_or(|version| entry.version == version)
    });
    let mut versions: BTreeMap<&str, Vec<Entry<'_>>> = BTreeMap::new();
    for entry in entries {
        versions.entry(entry.version).or_default().push(entry);
    }
    let mut versions: Vec<(&str, Vec<Entry<'_>>)> = versions.into_iter().collect();
    versions.sort_by(|(a, _), (b, _)| compare_versions(b, a));
    versions.truncate(VERSIONS_MAX);
    versions
}

/// Returns the entries that a cache has, those of each derivation together.
fn groups<'a>(
    entries: &[Entry<'a>],
    (known, access): (&NarInfos, &dyn Access),
) -> Result<Vec<Vec<Found<'a>>>, SourceError> {
    let paths: Vec<(Entry<'_>, StorePath)> = entries
        .iter()
        .filter_map(|entry| Some((*entry, entry.store_path()?)))
        .collect();
    let only: Vec<StorePath> = paths.iter().map(|(_, path)| path.clone()).collect();
    let narinfos = known.get(&only, access)?;
    let mut groups: Vec<Vec<Found<'_>>> = Vec::new();
    for ((entry, _), narinfo) in paths.into_iter().zip(narinfos) {
        let Some(narinfo) = narinfo else { continue };
        let deriver = narinfo.info.deriver.clone();
        let is_same =
            |group: &&mut Vec<Found<'_>>| deriver.is_some() && group[0].1.info.deriver == deriver;
        match groups.iter_mut().find(is_same) {
            Some(group) => group.push((entry, narinfo)),
            None => groups.push(vec![(entry, narinfo)]),
        }
    }
    Ok(groups)
}

fn candidate(group: &[Found<'_>]) -> Candidate {
    let outputs = group
        .iter()
        .map(|(entry, _)| (entry.output.to_owned(), entry.path.to_owned()));
    let (first, _) = &group[0];
    Candidate {
        outputs: outputs.collect::<BTreeMap<_, _>>(),
        nix_name: Some(match first.version {
            "" => first.package.to_owned(),
            version => format!("{}-{version}", first.package),
        }),
        ..Candidate::default()
    }
}

fn ambiguous(groups: &[Vec<Found<'_>>]) -> SourceError {
    let paths = groups.iter().map(|group| {
        let main = group
            .iter()
            .find(|(entry, _)| ["bin", "out"].contains(&entry.output));
        main.unwrap_or(&group[0]).0.path
    });
    let paths: Vec<&str> = paths.collect();
    SourceError::Unusable(Unusable(format!(
        "the list has {} packages of this name and version; give one of their paths: {}",
        groups.len(),
        paths.join(", ")
    )))
}

/// How many versions are tried, the newest first.
const VERSIONS_MAX: usize = 4;

/// How many paths of one version are looked at.
const ENTRIES_MAX: usize = 200;

#[cfg(test)]
mod tests;
