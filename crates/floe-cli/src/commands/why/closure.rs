//! The part of a closure that an install would fetch, and the part that it could not get.

use std::collections::{BTreeMap, BTreeSet};

use floe_copy::PathAvailability;
use floe_format::StorePath;

/// A closure, as an install of its root would see it.
#[derive(Debug, Default)]
pub(super) struct InstallClosure<'a> {
    /// The number of valid paths: all those of a local store, or those of another store at which
    /// an install stops.
    pub(super) valid: usize,
    /// The number of paths to fetch.
    pub(super) to_fetch: usize,
    /// The sizes of their files in the caches, in bytes, as far as these tell.
    pub(super) download_bytes: u64,
    /// The sizes of their NARs, in bytes.
    pub(super) nar_bytes: u64,
    /// The paths that no cache supplies.
    pub(super) missing: Vec<(&'a StorePath, &'a PathAvailability)>,
    /// Those of them at which an install stops: it does not look at the references of a path that
    /// it refuses.
    pub(super) blocking: Vec<&'a PathAvailability>,
}

impl<'a> InstallClosure<'a> {
    pub(super) fn of(
        root: &'a StorePath,
        found: &'a BTreeMap<StorePath, PathAvailability>,
    ) -> InstallClosure<'a> {
        let mut closure = InstallClosure::default();
        // First all paths that an install reaches, then those behind refused ones.
        let (mut open, mut behind) = (vec![root], Vec::new());
        let mut seen = BTreeSet::from([root]);
        let mut is_reached = true;
        loop {
            let Some(path) = open.pop() else {
                if behind.is_empty() {
                    break;
                }
                open = std::mem::take(&mut behind);
                open.retain(|path| seen.insert(path));
                is_reached = false;
                continue;
            };
            let Some(availability) = found.get(path) else {
                continue;
            };
            if let Some(registered) = &availability.registered {
                closure.valid += 1;
                let references = registered.info.references.iter();
                open.extend(references.filter(|it| seen.insert(it)));
                continue;
            }
            let narinfo = availability.narinfo();
            if availability.usable_source().is_none() {
                closure.missing.push((path, availability));
                if is_reached {
                    closure.blocking.push(availability);
                }
                let references = narinfo.into_iter().flat_map(|it| &it.info.references);
                behind.extend(references);
                continue;
            } else if let Some(narinfo) = narinfo {
                closure.to_fetch += 1;
                let nar = narinfo.info.nar_size;
                let file = narinfo.download_size().unwrap_or(nar);
                closure.download_bytes = closure.download_bytes.saturating_add(file);
                closure.nar_bytes = closure.nar_bytes.saturating_add(nar);
            }
            let references = narinfo.into_iter().flat_map(|it| &it.info.references);
            open.extend(references.filter(|it| seen.insert(it)));
        }
        closure.missing.sort_by_key(|(path, _)| *path);
        closure
    }
}
