//! Verifies paths where they are: a copy of them into a target that keeps nothing.
//!
//! Each narinfo passes the checks of a copy, and each NAR is fetched, decompressed and hashed. In
//! contrast to a copy, a path that fails does not take its referrers with it.

use std::collections::{BTreeSet, HashSet};
use std::fmt;
use std::sync::Arc;

use floe_cache::NetworkOptions;
use floe_format::{HashPart, StoreDir, StorePath};
use floe_transfer::{
    CommitOutcome, CopyOptions, Error, Events, IncomingNar, MissingPaths, NarSink, OpenTarget,
    PathSpec, Source, SourceContext, StoreConfig, Target, TargetContext, TargetFacts,
};
use parking_lot::Mutex;

use crate::copy_request::{CopyRequest, RequestedPaths};

/// A request to verify paths of a store or cache.
#[derive(Clone, Debug)]
pub struct Verification {
    /// The store or cache.
    pub store: Arc<dyn StoreConfig>,
    /// The paths; `None` for all.
    pub paths: Option<Vec<PathSpec>>,
    /// Whether the closures of the paths are verified too.
    pub recursive: bool,
    /// The trust that the paths need, and the number of workers. A dry run reads no contents.
    pub options: CopyOptions,
    /// The options of requests to binary caches.
    pub network: NetworkOptions,
    /// Receives the events of the transfers.
    pub events: Events,
}

/// The result of a verification.
#[derive(Debug, Default)]
pub struct Verified {
    /// The number of paths that the store has and whose metadata passed the checks.
    pub paths: usize,
    /// The sum of the NAR sizes of the paths whose contents are right, in bytes.
    pub nar_bytes: u64,
    /// The number of bytes that were fetched for them.
    pub download_bytes: u64,
    /// The problems.
    pub problems: Vec<Error>,
}

impl Verification {
    /// Verifies the paths.
    ///
    /// Errors: the store cannot be opened or cannot list its paths, [`Error::Cancelled`].
    pub fn run(&self) -> Result<Verified, Error> {
        let parts = |specs: &Vec<PathSpec>| specs.iter().map(PathSpec::hash_part).collect();
        let wanted = self.paths.as_ref().filter(|_| !self.recursive).map(parts);
        let paths = match &self.paths {
            Some(specs) => RequestedPaths::Named(specs.iter().map(PathSpec::text).collect()),
            None => RequestedPaths::All,
        };
        let target = Nowhere {
            wanted,
            // A damaged path may end the connection to a daemon, and with it the queries.
            receives_early: !self.store.facts().can_substitute,
            requires_trust: self.options.check_signatures,
        };
        let request = CopyRequest {
            network: self.network.clone(),
            events: self.events.clone(),
            options: self.options.clone(),
            ..CopyRequest::new(vec![self.store.clone()], Arc::new(target), paths)
        };
        let open = request.open()?;
        if let Some((_, error)) = open.sources.unavailable.first() {
            return Err(Error::SourceDisabled(error.clone()));
        }
        let summary = open.run()?;
        Ok(Verified {
            paths: summary.planned.len(),
            nar_bytes: summary.nar_bytes,
            download_bytes: summary.download_bytes,
            problems: summary.failures,
        })
    }
}

/// A target that keeps nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Nowhere {
    /// The only paths that it lacks; `None` for all.
    wanted: Option<BTreeSet<HashPart>>,
    receives_early: bool,
    requires_trust: bool,
}

impl fmt::Display for Nowhere {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("nowhere")
    }
}

impl StoreConfig for Nowhere {
    fn open_source(&self, _: &SourceContext<'_>) -> Result<Arc<dyn Source>, Error> {
        Err(Error::Internal("a verification reads from its own target"))
    }

    fn open_target(&self, context: &TargetContext<'_>) -> Result<OpenTarget, Error> {
        Ok(OpenTarget {
            target: Arc::new(NoTarget {
                store_dir: context.store_dir.clone().unwrap_or_default(),
                config: self.clone(),
                verified: Mutex::default(),
            }),
            local_store: None,
        })
    }
}

#[derive(Debug)]
struct NoTarget {
    store_dir: StoreDir,
    config: Nowhere,
    /// The paths whose contents are right.
    verified: Mutex<HashSet<StorePath>>,
}

/// Drops the chunks of a NAR, which are hashed before.
struct NoSink;

impl NarSink for NoSink {
    fn write(&mut self, _: &[u8]) -> Result<(), Error> {
        Ok(())
    }
}

impl Target for NoTarget {
    fn store_dir(&self) -> &StoreDir {
        &self.store_dir
    }

    fn facts(&self) -> TargetFacts {
        TargetFacts {
            receives_early: self.config.receives_early,
            keeps_nothing: true,
            requires_trust: self.config.requires_trust,
            ..TargetFacts::default()
        }
    }

    fn add_temp_roots_and_query_missing(&self, paths: &[StorePath]) -> Result<MissingPaths, Error> {
        let verified = self.verified.lock();
        let is_wanted = |path: &StorePath| {
            let wanted = self.config.wanted.as_ref();
            wanted.is_none_or(|wanted| wanted.contains(&path.hash_part()))
        };
        let missing = paths
            .iter()
            .filter(|path| is_wanted(path) && !verified.contains(*path));
        Ok(missing.cloned().collect::<Vec<_>>().into())
    }

    fn receive(&self, nar: &mut IncomingNar<'_>) -> Result<(), Error> {
        nar.write_to(&mut NoSink)
    }

    fn commit(&self, batch: &[StorePath]) -> Result<CommitOutcome, Error> {
        self.verified.lock().extend(batch.iter().cloned());
        Ok(CommitOutcome {
            valid: batch.to_vec(),
            ..CommitOutcome::default()
        })
    }
}
