//! Queries of closures in one source.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap, VecDeque};
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
            paths: HashMap::new(),
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
            let narinfo = match closure.receive(&spec, reply) {
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
    /// The paths that were queried.
    paths: HashMap<HashPart, QueriedPath>,
    unsent: VecDeque<(PathSpec, CachePolicy)>,
    pending: usize,
    budget: ClosureBudget,
}

/// The state of the query for a hash part.
enum QueriedPath {
    /// The source has not replied. Arguments and references name the path in these ways.
    Awaited(Vec<PathSpec>),
    /// The source has this path.
    Found(StorePath),
    /// The source has no path with this hash part.
    Absent,
}

impl ClosureQuery<'_> {
    /// Queries a path. If its hash part was queried before, only compares the names.
    ///
    /// Errors: [`Error::WrongName`] if the source has another name for the path.
    fn add(&mut self, spec: PathSpec, policy: CachePolicy) -> Result<(), Error> {
        match self.paths.entry(spec.hash_part()) {
            Entry::Vacant(entry) => {
                entry.insert(QueriedPath::Awaited(vec![spec.clone()]));
                self.budget.add_paths(1)?;
                self.unsent.push_back((spec, policy));
            }
            Entry::Occupied(mut entry) => match entry.get_mut() {
                QueriedPath::Awaited(specs) if !specs.contains(&spec) => specs.push(spec),
                QueriedPath::Found(path) => check_name(&spec, path, self.source)?,
                QueriedPath::Awaited(_) | QueriedPath::Absent => {}
            },
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

    /// Takes the reply to the query of a path.
    fn receive(&mut self, spec: &PathSpec, reply: NarInfoResult) -> Result<NarInfo, Error> {
        let narinfo = reply?.narinfo;
        let queried = match &narinfo {
            Some(narinfo) => QueriedPath::Found(narinfo.info.path.clone()),
            None => QueriedPath::Absent,
        };
        let awaited = self.paths.insert(spec.hash_part(), queried);
        let Some(narinfo) = narinfo else {
            return Err(Error::NotFound {
                path: spec.text(),
                sources: vec![self.source.name()],
            });
        };
        check_name(spec, &narinfo.info.path, self.source)?;
        if let Some(QueriedPath::Awaited(specs)) = awaited {
            for spec in specs {
                check_name(&spec, &narinfo.info.path, self.source)?;
            }
        }
        Ok(narinfo)
    }
}

/// Fails if the user or a referrer gives a path another name than the source does.
fn check_name(spec: &PathSpec, found: &StorePath, source: &dyn Source) -> Result<(), Error> {
    if spec.matches(found) {
        return Ok(());
    }
    Err(Error::WrongName {
        wanted: spec.text(),
        found: found.clone(),
        source_name: source.name(),
    })
}

/// How many queries are given to a source at once. A source sends fewer, and keeps the others in
/// memory.
pub const QUERIES_MAX: usize = 2048;
