//! Queries of closures in one source.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};

use floe_format::{HashPart, NarInfo, StorePath};

use super::{CachePolicy, NO_REPLY, NarInfoResult, Source};
use crate::cancel::{CANCEL_POLL, Cancel};
use crate::closure_limit::{ClosureBudget, ClosureLimit};
use crate::error::Error;
use crate::path_spec::PathSpec;

impl dyn Source + '_ {
    /// Returns the narinfos of the requested paths and, if `recursive`, of their closures, in the
    /// order of their paths. Up to [`QUERIES_MAX`] queries are in flight at once. Queries for the
    /// requested paths bypass the narinfo disk cache, because the user wants the current state.
    ///
    /// Errors: [`Error::NotFound`] for the first path that the source does not have, those of the
    /// queries, [`Error::ClosureTooLarge`], [`Error::Cancelled`].
    pub fn query_closure(
        &self,
        specs: &[PathSpec],
        recursive: bool,
        (limit, cancel): (ClosureLimit, &Cancel),
    ) -> Result<QueriedClosure, Error> {
        let (sender, replies) = channel();
        let mut closure = ClosureQuery {
            source: self,
            sender,
            seen: HashSet::new(),
            unsent: VecDeque::new(),
            pending: 0,
            budget: ClosureBudget::new(
                if self.facts().has_nar_files {
                    limit
                } else {
                    limit.of_stores()
                },
                specs.len(),
            ),
        };
        let mut queried = QueriedClosure::default();
        for spec in specs {
            closure.add(spec.clone(), CachePolicy::Bypass)?;
        }
        while closure.send_queries() > 0 {
            // A source may reply so fast that nothing waits.
            if cancel.is_raised() {
                return Err(Error::Cancelled);
            }
            let (spec, reply) = match replies.recv_timeout(CANCEL_POLL) {
                Ok(replied) => replied,
                Err(RecvTimeoutError::Timeout) => continue,
                Err(RecvTimeoutError::Disconnected) => return Err(Error::Internal(NO_REPLY)),
            };
            closure.pending -= 1;
            let narinfo = match closure.expect_path(&spec, reply) {
                Err(error @ Error::NotFound { .. }) => {
                    queried.absent.push(error);
                    continue;
                }
                narinfo => narinfo?,
            };
            closure.budget.add_narinfo(&narinfo)?;
            if recursive {
                for path in &narinfo.info.references {
                    closure.add(PathSpec::Path(path.clone()), CachePolicy::HitsOnly)?;
                }
            }
            let path = narinfo.info.path.clone();
            queried.found.insert(path, narinfo);
        }
        queried.absent.sort_by_cached_key(ToString::to_string);
        Ok(queried)
    }
}

/// The paths that a source has, and errors for those that it lacks.
#[derive(Debug, Default)]
pub struct QueriedClosure {
    /// The narinfos of the paths.
    pub found: BTreeMap<StorePath, NarInfo>,
    /// An [`Error::NotFound`] for each path that the source lacks, sorted by their texts.
    pub absent: Vec<Error>,
}

impl QueriedClosure {
    /// Returns the narinfos if the source has all paths.
    ///
    /// Errors: [`Error::NotFound`] for the first path that it lacks.
    pub fn complete(self) -> Result<BTreeMap<StorePath, NarInfo>, Error> {
        match self.absent.into_iter().next() {
            Some(error) => Err(error),
            None => Ok(self.found),
        }
    }
}

struct ClosureQuery<'a> {
    source: &'a dyn Source,
    sender: Sender<(PathSpec, NarInfoResult)>,
    /// The hash parts that were queried.
    seen: HashSet<HashPart>,
    unsent: VecDeque<(PathSpec, CachePolicy)>,
    pending: usize,
    budget: ClosureBudget,
}

impl ClosureQuery<'_> {
    fn add(&mut self, spec: PathSpec, policy: CachePolicy) -> Result<(), Error> {
        if self.seen.insert(spec.hash_part()) {
            self.budget.add_paths(1)?;
            self.unsent.push_back((spec, policy));
        }
        Ok(())
    }

    /// Sends as many queries as may be in flight, and returns how many are.
    fn send_queries(&mut self) -> usize {
        while self.pending < QUERIES_MAX
            && let Some((spec, policy)) = self.unsent.pop_front()
        {
            self.pending += 1;
            let (sender, tag) = (self.sender.clone(), spec.clone());
            let reply = Box::new(move |result| {
                // The receiver is gone only after an error.
                let _: Result<(), _> = sender.send((tag, result));
            });
            self.source.query(&spec, policy, reply);
        }
        self.pending
    }

    fn expect_path(&self, spec: &PathSpec, reply: NarInfoResult) -> Result<NarInfo, Error> {
        let source_name = || self.source.name();
        match reply?.narinfo {
            Some(narinfo) if spec.matches(&narinfo.info.path) => Ok(narinfo),
            Some(narinfo) => Err(Error::WrongName {
                wanted: spec.text(),
                found: narinfo.info.path,
                source_name: source_name(),
            }),
            None => Err(Error::NotFound {
                path: spec.text(),
                sources: vec![source_name()],
            }),
        }
    }
}

/// How many queries are given to a source at once. A source sends fewer, and keeps the others in
/// memory.
pub const QUERIES_MAX: usize = 2048;
