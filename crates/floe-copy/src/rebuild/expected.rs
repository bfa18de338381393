//! The contents that caches state for the paths of a store.

use std::collections::{BTreeMap, BTreeSet};

use floe_format::{NarInfo, PathInfo, StorePath};
use floe_transfer::{CachePolicy, Error, PathSpec, Source};

use super::{Origin, Rebuild};
use crate::copy::trust::TrustRules;
use crate::queries::query_all;

/// The contents that a path should have.
#[derive(Clone, Debug)]
pub(super) struct Expected {
    pub(super) info: PathInfo,
    pub(super) origin: Origin,
    /// Whether only its content address makes the path trusted.
    pub(super) relies_on_content_address: bool,
}

/// Finds narinfos of paths in caches.
pub(super) struct Lookup<'a> {
    rebuild: &'a Rebuild<'a>,
    /// How many of the caches were asked for a path.
    asked: BTreeMap<StorePath, usize>,
    /// Signed narinfos that were not wanted.
    pub(super) stated: BTreeMap<StorePath, Expected>,
    /// The keys of signatures that are not trusted.
    pub(super) signers: BTreeMap<StorePath, BTreeSet<String>>,
    /// The paths about which a cache has failed to reply.
    pub(super) unanswered: BTreeSet<StorePath>,
    /// The first error of each cache, by the number of the cache.
    pub(super) failures: BTreeMap<usize, Error>,
}

impl<'a> Lookup<'a> {
    pub(super) fn new(rebuild: &'a Rebuild<'a>) -> Lookup<'a> {
        Lookup {
            rebuild,
            asked: BTreeMap::new(),
            stated: BTreeMap::new(),
            signers: BTreeMap::new(),
            unanswered: BTreeSet::new(),
            failures: BTreeMap::new(),
        }
    }

    /// Asks one cache after the other for each path, until one has a trusted narinfo that is
    /// wanted. A cache is asked once for each path, also by later calls.
    ///
    /// Errors: [`Error::Cancelled`].
    pub(super) fn find(
        &mut self,
        paths: &[StorePath],
        is_wanted: &dyn Fn(&Expected) -> bool,
    ) -> Result<BTreeMap<StorePath, Expected>, Error> {
        let mut found = BTreeMap::new();
        for (index, source) in self.rebuild.sources.list.iter().enumerate() {
            let was_asked =
                |path: &StorePath| self.asked.get(path).is_some_and(|count| *count > index);
            let unknown = paths
                .iter()
                .filter(|it| !found.contains_key(*it) && !was_asked(it));
            let unknown: Vec<StorePath> = unknown.cloned().collect();
            for path in &unknown {
                self.asked.insert(path.clone(), index + 1);
            }
            for narinfo in self.query(index, &unknown)? {
                let Some(expected) = self.trusted(&**source, narinfo) else {
                    continue;
                };
                let path = expected.info.path.clone();
                if is_wanted(&expected) {
                    found.insert(path, expected);
                } else if !expected.relies_on_content_address {
                    self.stated.entry(path).or_insert(expected);
                }
            }
        }
        Ok(found)
    }

    /// Returns the narinfos that a cache has for paths. Records its first error.
    fn query(&mut self, index: usize, paths: &[StorePath]) -> Result<Vec<NarInfo>, Error> {
        let source = &*self.rebuild.sources.list[index];
        let policy = (CachePolicy::Bypass, &self.rebuild.options.copy.cancel);
        let mut narinfos = Vec::new();
        query_all(source, paths, policy, &mut |path, result| match result {
            Ok(reply) => narinfos.extend(reply.narinfo),
            Err(error) => {
                self.unanswered.insert(path);
                self.failures.entry(index).or_insert(error);
            }
        })?;
        Ok(narinfos)
    }

    /// Returns what a narinfo states, if it is trusted. Records its keys otherwise.
    fn trusted(&mut self, source: &dyn Source, narinfo: NarInfo) -> Option<Expected> {
        let store = &self.rebuild.store;
        let path = narinfo.info.path.clone();
        // A cache may know another path by the same hash part.
        store.trees().binary_search(&path).ok()?;
        let rules = TrustRules {
            options: &self.rebuild.options.copy,
            store_dir: &store.layout().store_dir,
            requires_trust: true,
            accepts_untrusted: false,
        };
        match rules.check(source, &PathSpec::Path(path.clone()), narinfo) {
            Ok(checked) => Some(Expected {
                info: PathInfo {
                    registration_time: None,
                    ultimate: false,
                    ..checked.narinfo.info
                },
                origin: Origin::Cache(source.name()),
                relies_on_content_address: checked.is_unsigned,
            }),
            Err(Error::Untrusted { signed_by, .. }) => {
                self.signers.entry(path).or_default().extend(signed_by);
                None
            }
            Err(_) => None,
        }
    }
}
