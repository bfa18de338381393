//! The decisions about the paths of a store.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use floe_format::{PathInfo, StorePath};

use super::report::{LeftOut, Origin};

/// The decisions about the paths of the store.
#[derive(Default)]
pub(super) struct Findings {
    pub(super) accepted: BTreeMap<StorePath, (PathInfo, Origin)>,
    pub(super) left_out: BTreeMap<StorePath, LeftOut>,
}

impl Findings {
    /// Drops the accepted paths that were left out later.
    pub(super) fn drop_left_out(&mut self) {
        self.accepted
            .retain(|path, _| !self.left_out.contains_key(path));
    }

    /// Leaves out each path of which a reference is not accepted, and so on.
    pub(super) fn leave_out_incomplete(&mut self) {
        let mut referrers: HashMap<&StorePath, Vec<&StorePath>> = HashMap::new();
        let mut missing: BTreeMap<StorePath, BTreeSet<StorePath>> = BTreeMap::new();
        let mut left = Vec::new();
        for (path, (info, _)) in &self.accepted {
            for reference in &info.references {
                referrers.entry(reference).or_default().push(path);
                if !self.accepted.contains_key(reference) {
                    missing
                        .entry(path.clone())
                        .or_default()
                        .insert(reference.clone());
                }
            }
            if missing.contains_key(path) {
                left.push(path);
            }
        }
        while let Some(gone) = left.pop() {
            for referrer in referrers
                .get(gone)
                .into_iter()
                .flatten()
                .filter(|it| **it != gone)
            {
                if !missing.contains_key(*referrer) {
                    left.push(referrer);
                }
                missing
                    .entry((*referrer).clone())
                    .or_default()
                    .insert(gone.clone());
            }
        }
        let reasons = missing.into_iter();
        let reasons = reasons.map(|(path, missing)| (path, LeftOut::MissingReferences(missing)));
        self.left_out.extend(reasons);
        self.drop_left_out();
    }
}
