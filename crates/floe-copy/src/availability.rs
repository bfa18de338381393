//! Finds out which sources have the paths of a closure, and what an install would do with their
//! replies.
//!
//! 1. The store is asked for each path. The closure of a valid path is complete, unless files of a
//!    local store are gone: an install fetches these again.
//! 2. All sources are asked for each other path, at the same time.
//! 3. A source may reply from the narinfo disk cache. It is asked once more itself if the reply is
//!    that it lacks the path, or if the path is not trusted, as an install does.
//! 4. The references come from the first trusted narinfo. If all sources have replied without one,
//!    they come from a refused narinfo.

mod crawl;

use std::collections::BTreeMap;
use std::time::SystemTime;

use floe_format::{NarInfo, StoreDir, StorePath};
use floe_store::StoreLayout;
use floe_transfer::{CopyOptions, Error, PathSpec, Source};

use crate::copy::trust::TrustRules;
use crate::sources::Sources;

/// A query for the availability of closures.
#[derive(Clone, Copy, Debug)]
pub struct AvailabilityQuery<'a> {
    /// The store into which the closure would be installed, if it exists.
    pub store: Option<&'a dyn Source>,
    /// The directories of the store, if it is local.
    pub layout: Option<&'a StoreLayout>,
    /// The store directory of the closures.
    pub store_dir: &'a StoreDir,
    /// The caches.
    pub sources: &'a Sources,
    /// The trust in narinfos, and the limit of closures.
    pub options: &'a CopyOptions,
}

/// The availability of a path.
#[derive(Debug, Default)]
pub struct PathAvailability {
    /// The narinfo of the store, if the path is valid there.
    pub registered: Option<NarInfo>,
    /// The replies of the sources, in their order; empty if the path is valid and not requested.
    pub replies: Vec<SourceReply>,
    /// A path of the closure that refers to this one; `None` for a requested path.
    pub referrer: Option<StorePath>,
}

/// The reply of a source about a path.
#[derive(Debug)]
pub struct SourceReply {
    /// Whether an install would fetch the path from the source.
    pub result: SourceResult,
    /// The narinfo, also a refused one.
    pub narinfo: Option<NarInfo>,
    /// The time of a reply that the narinfo disk cache remembers.
    pub remembered: Option<Remembered>,
}

/// Whether a source can supply a path.
#[derive(Debug)]
pub enum SourceResult {
    /// It can.
    Usable,
    /// It does not have the path.
    Absent,
    /// It cannot be asked, or its narinfo is refused.
    Refused(Error),
}

/// A reply in the narinfo disk cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remembered {
    /// When the source gave it.
    pub at: SystemTime,
    /// Whether it has a narinfo.
    pub has_path: bool,
}

impl PathAvailability {
    /// Returns the first source that can supply the path.
    pub fn usable_source(&self) -> Option<usize> {
        let mut replies = self.replies.iter();
        replies.position(|reply| matches!(reply.result, SourceResult::Usable))
    }

    /// Returns the narinfo that an install would use, or else one that it would refuse.
    pub fn narinfo(&self) -> Option<&NarInfo> {
        let usable = self.usable_source().map(|source| &self.replies[source]);
        let mut replies = usable.into_iter().chain(&self.replies);
        replies.find_map(|reply| reply.narinfo.as_ref())
    }
}

impl AvailabilityQuery<'_> {
    /// Returns the availability of each path in the closures of some paths.
    ///
    /// Errors: [`Error::ClosureTooLarge`], [`Error::Cancelled`], those of the store.
    pub fn run(
        &self,
        requested: &[StorePath],
    ) -> Result<BTreeMap<StorePath, PathAvailability>, Error> {
        crawl::run(self, requested)
    }

    /// Returns the path of a hash part, as an install finds it: in the store, or in the first
    /// source with a trusted narinfo. If all narinfos are refused, returns the first refused path.
    ///
    /// Errors: [`Error::NotFound`], and the first error of a source.
    pub fn find_path(&self, spec: &PathSpec) -> Result<StorePath, Error> {
        if let PathSpec::Path(path) = spec {
            return Ok(path.clone());
        }
        let cancel = &self.options.cancel;
        if let Some(store) = self.store
            && let Some(found) = store.query_path_info(spec, cancel)?
        {
            return Ok(found.info.path);
        }
        let (mut refused, mut failed) = (None, None);
        for source in &self.sources.list {
            match source.query_path_info(spec, cancel) {
                Ok(Some(narinfo)) => {
                    let path = narinfo.info.path.clone();
                    match self.rules().check(&**source, spec, narinfo) {
                        Ok(_) => return Ok(path),
                        Err(_) if spec.matches(&path) => _ = refused.get_or_insert(path),
                        Err(error) => _ = failed.get_or_insert(error),
                    }
                }
                Ok(None) => {}
                Err(Error::Cancelled) => return Err(Error::Cancelled),
                Err(error) => _ = failed.get_or_insert(error),
            }
        }
        match (refused, failed) {
            (Some(path), _) => Ok(path),
            (None, Some(error)) => Err(error),
            (None, None) => Err(Error::NotFound {
                path: spec.text(),
                sources: self
                    .sources
                    .list
                    .iter()
                    .map(|source| source.name())
                    .collect(),
            }),
        }
    }

    fn rules(&self) -> TrustRules<'_> {
        TrustRules {
            options: self.options,
            store_dir: self.store_dir,
            requires_trust: true,
            accepts_untrusted: false,
        }
    }
}
