//! The part of a closure that an install would fetch, and the part that it could not get.

use std::collections::{BTreeMap, BTreeSet};

use floe_copy::PathAvailability;
use floe_format::StorePath;

/// A closure, as an install of its root would see it.
#[derive(Debug, Default)]
pub(super) struct InstallClosure<'a> {
    /// The number of valid paths at which an install stops. Their closures are complete.
    pub(super) valid: usize,
    /// The number of paths to fetch.
    pub(super) to_fetch: usize,
    /// The sizes of their files in the caches, in bytes, as far as these tell.
    pub(super) download_bytes: u64,
    /// The sizes of their NARs, in bytes.
    pub(super) nar_bytes: u64,
    /// The paths that no cache supplies.
    pub(super) missing: Vec<(&'a StorePath, &'a PathAvailability)>,
}

impl<'a> InstallClosure<'a> {
    pub(super) fn of(
        root: &'a StorePath,
        found: &'a BTreeMap<StorePath, PathAvailability>,
    ) -> InstallClosure<'a> {
        let mut closure = InstallClosure::default();
        let (mut open, mut seen) = (vec![root], BTreeSet::from([root]));
        while let Some(path) = open.pop() {
            let Some(availability) = found.get(path) else {
                continue;
            };
            if availability.registered.is_some() {
                closure.valid += 1;
                continue;
            }
            let narinfo = availability.narinfo();
            if availability.usable_source().is_none() {
                closure.missing.push((path, availability));
            } else if let Some(narinfo) = narinfo {
                closure.to_fetch += 1;
                let (file, nar) = (narinfo.file_size, narinfo.info.nar_size);
                closure.download_bytes = closure.download_bytes.saturating_add(file.unwrap_or(nar));
                closure.nar_bytes = closure.nar_bytes.saturating_add(nar);
            }
            let references = narinfo.into_iter().flat_map(|it| &it.info.references);
            open.extend(references.filter(|it| seen.insert(it)));
        }
        closure.missing.sort_by_key(|(path, _)| *path);
        closure
    }
}
