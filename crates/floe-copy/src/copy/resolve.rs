//! Resolves the requested paths to the part of their closure that is missing in the target.
//!
//! The *frontier* is the set of new paths. It begins with the requested paths.
//!
//! If a binary cache or a remote store receives paths of a local store, or the source is `ssh://`,
//! the first frontier is the whole closure. If the source is another floe, the second one is.
//!
//! 1. The paths of the frontier become temp roots of the target. The target then reports which of
//!    them it lacks.
//! 2. A valid path of a store is not followed, because a store contains whole closures. A binary
//!    cache may have lost a part of a closure, so the references of its paths join the frontier.
//! 3. For each missing path, the resolver queries the sources in their order, until one has the
//!    path and the path passes the trust check. All missing paths are queried at once; each source
//!    limits its own requests.
//! 4. The references of the found paths are the next frontier.
//!
//! All replies that have arrived are handled together before the next step, so that they share one
//! query of the target's database.
//!
//! A source that has not replied for [`UNRESPONSIVE_AFTER`] is *unresponsive*: the resolver also
//! queries the next source for the same paths, and takes the first good reply. Further queries go
//! to an unresponsive source only if no other source is left.
//!
//! The narinfo disk cache may reply for references. For requested paths it may reply only with
//! narinfos: the user may know that a path has appeared in the cache since. If a remembered narinfo
//! fails the trust check, the source itself is queried, because the path may have been signed
//! since. Before a path fails, every source is queried that lacks it only according to the disk
//! cache.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use floe_format::StorePath;
use floe_transfer::{
    CANCEL_POLL, CachePolicy, ClosureBudget, Error, Event, NarInfoResult, PathSpec, PlannedPath,
    QUERIES_MAX,
};

mod closures;
mod passed_over;

use passed_over::PassedOver;

use super::ClosureCopy;
use super::trust::{check_trust, explain_wrong_name};

/// The result of resolve.
#[derive(Debug, Default)]
pub(crate) struct Resolved {
    /// The store paths of the requested paths that were found.
    pub(crate) requested_paths: Vec<StorePath>,
    pub(crate) planned_paths: BTreeMap<StorePath, Arc<PlannedPath>>,
    pub(crate) failures: Vec<Error>,
    /// Paths that are missing in the target and in all sources.
    pub(crate) unavailable: BTreeSet<StorePath>,
    /// The number of paths that the target has.
    pub(crate) already_valid: u64,
}

/// A path that the resolver queries.
struct PendingQuery {
    spec: PathSpec,
    /// The index of the path spec, if the user named only a hash part.
    spec_index: Option<usize>,
    policy: CachePolicy,
    /// The state of the query at each source.
    states: Vec<QueryState>,
    /// The sources that lack the path according to the narinfo disk cache.
    remembered_absent: Vec<usize>,
    /// The errors of sources, other than that a source lacks the path, in the order of time.
    errors: Vec<(usize, Error)>,
}

/// A path that no source was queried for yet.
struct UnsentQuery {
    spec: PathSpec,
    spec_index: Option<usize>,
    policy: CachePolicy,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum QueryState {
    NotSent,
    Sent,
    Replied,
}

/// The responsiveness of a source.
struct SourceHealth {
    /// The time of the last reply, or of the oldest query since.
    waiting_since: Instant,
    pending: usize,
}

/// Receives a path that the target lacks and a source has.
pub(crate) type FoundPath<'a> = dyn FnMut(&Arc<PlannedPath>) -> Result<(), Error> + 'a;

/// The number of a query and the index of a source.
type QueryTag = (usize, usize);

struct Resolver<'a> {
    copy: &'a ClosureCopy<'a>,
    /// Receives each path once that the target lacks and a source has.
    found: &'a mut FoundPath<'a>,
    sender: mpsc::Sender<(QueryTag, NarInfoResult)>,
    queries: HashMap<usize, PendingQuery>,
    next_query: usize,
    unsent: VecDeque<UnsentQuery>,
    budget: ClosureBudget,
    health: Vec<SourceHealth>,
    passed_over: PassedOver,
    seen: HashSet<StorePath>,
    resolved: Resolved,
    requested_paths: Vec<Option<StorePath>>,
    /// New paths that the target was not queried for yet.
    frontier: Vec<StorePath>,
    /// Whether the frontier consists of whole closures.
    is_closed: bool,
    /// Whether the only source, which tells closures, was asked for them.
    asked_for_closures: bool,
    /// The policy of new queries.
    policy: CachePolicy,
}

/// Resolves the closures of the requested paths. Calls `found` for each path that is missing, as
/// soon as that is known.
pub(crate) fn resolve<'a>(
    copy: &'a ClosureCopy<'a>,
    specs: &[PathSpec],
    found: &'a mut FoundPath<'a>,
) -> Result<Resolved, Error> {
    let (sender, receiver) = mpsc::channel();
    let mut sources = copy.sources.list.iter();
    let limit = copy.options.closure_limit;
    let limit = if sources.any(|source| source.facts().has_nar_files) {
        limit
    } else {
        limit.of_stores()
    };
    let health = || SourceHealth {
        waiting_since: Instant::now(),
        pending: 0,
    };
    let mut resolver = Resolver {
        copy,
        found,
        sender,
        queries: HashMap::new(),
        next_query: 0,
        unsent: VecDeque::new(),
        budget: ClosureBudget::new(limit, specs.len()),
        health: copy.sources.list.iter().map(|_| health()).collect(),
        passed_over: PassedOver::default(),
        seen: HashSet::new(),
        resolved: Resolved::default(),
        requested_paths: vec![None; specs.len()],
        frontier: Vec::new(),
        is_closed: false,
        asked_for_closures: false,
        policy: CachePolicy::HitsOnly,
    };
    resolver.add_specs(specs)?;
    resolver.add_closures()?;
    while !resolver.frontier.is_empty() {
        resolver.expand_frontier()?;
    }
    resolver.send_queries();
    // All further paths are references.
    resolver.policy = CachePolicy::Use;
    while !resolver.queries.is_empty() {
        copy.check_cancelled()?;
        match receiver.recv_timeout(CANCEL_POLL) {
            Ok((tag, result)) => resolver.handle_reply(tag, result)?,
            // The resolver itself has a sender, so the channel is never disconnected.
            Err(_) => resolver.skip_unresponsive(),
        }
        // All replies that have arrived share one query of the database.
        while let Ok((tag, result)) = receiver.try_recv() {
            resolver.handle_reply(tag, result)?;
        }
        resolver.add_closures_of_references()?;
        while !resolver.frontier.is_empty() {
            resolver.expand_frontier()?;
        }
        resolver.send_queries();
        let known = resolver.resolved.planned_paths.len();
        let pending = resolver.queries.len() + resolver.unsent.len();
        copy.events.event(Event::Resolving { known, pending });
    }
    if resolver.next_query > 0 {
        resolver.passed_over.report_unusable(copy);
    }
    let requested_paths = resolver.requested_paths.into_iter().flatten();
    Ok(Resolved {
        requested_paths: requested_paths.collect(),
        ..resolver.resolved
    })
}

impl Resolver<'_> {
    fn add_specs(&mut self, specs: &[PathSpec]) -> Result<(), Error> {
        for (spec_index, spec) in specs.iter().enumerate() {
            let known = match spec {
                PathSpec::Path(path) => Some(path.clone()),
                PathSpec::HashPart(part) => self.copy.target.query_path_from_hash_part(*part)?,
            };
            match known {
                Some(path) => {
                    self.requested_paths[spec_index] = Some(path.clone());
                    self.frontier.push(path);
                }
                None => self.add_query(spec.clone(), Some(spec_index)),
            }
        }
        Ok(())
    }

    /// Queries the target for the paths of the frontier, and the sources for the missing ones.
    fn expand_frontier(&mut self) -> Result<(), Error> {
        let mut frontier = std::mem::take(&mut self.frontier);
        frontier.retain(|path| self.seen.insert(path.clone()));
        frontier.sort_unstable();
        self.budget.add_paths(frontier.len())?;
        if frontier.is_empty() {
            return Ok(());
        }
        let target = self.copy.target;
        let missing = if std::mem::take(&mut self.is_closed) {
            target.query_missing_of_closures(&frontier)?
        } else {
            target.add_temp_roots_and_query_missing(&frontier)?
        };
        for (path, reason) in &missing.damaged {
            self.copy.events.event(Event::DamagedPath { path, reason });
        }
        for path in &frontier {
            if missing.paths.binary_search(path).is_err() {
                self.resolved.already_valid += 1;
                // The user named its hash part, and it turned out to be valid.
                self.resolved.planned_paths.remove(path);
            }
        }
        self.frontier.extend(missing.unchecked_references);
        for path in missing.paths {
            match self.resolved.planned_paths.get(&path) {
                // The user named its hash part.
                Some(planned) => (self.found)(planned)?,
                None => self.add_query(PathSpec::Path(path), None),
            }
        }
        Ok(())
    }

    /// Sends as many queries as may be in flight.
    fn send_queries(&mut self) {
        while self.queries.len() < QUERIES_MAX
            && let Some(query) = self.unsent.pop_front()
        {
            self.start_query(query);
        }
    }

    fn add_query(&mut self, spec: PathSpec, spec_index: Option<usize>) {
        self.unsent.push_back(UnsentQuery {
            spec,
            spec_index,
            policy: self.policy,
        });
    }

    fn start_query(&mut self, query: UnsentQuery) {
        let UnsentQuery {
            spec,
            spec_index,
            policy,
        } = query;
        let (sources, dir) = (&self.copy.sources.list, self.copy.target.store_dir());
        let states = sources.iter().map(|source| {
            if source.is_for(dir) {
                QueryState::NotSent
            } else {
                // A source for another store directory cannot have the path.
                QueryState::Replied
            }
        });
        let query = PendingQuery {
            states: states.collect(),
            spec,
            spec_index,
            policy,
            remembered_absent: Vec::new(),
            errors: Vec::new(),
        };
        let text = &query.spec.text();
        self.copy.events.event(Event::Querying { requested: text });
        let id = self.next_query;
        self.next_query += 1;
        self.query_next_source(id, query);
    }

    /// Queries the next source, responsive ones first. Fails the query if all sources have replied.
    fn query_next_source(&mut self, id: usize, query: PendingQuery) {
        let health = &self.health;
        let not_yet = |source: &usize| query.states[*source] == QueryState::NotSent;
        let mut left = (0..health.len()).filter(not_yet);
        let is_responsive = |source: &usize| !health[*source].is_unresponsive();
        let first = left.clone().find(is_responsive);
        match first.or_else(|| left.next()) {
            Some(source) => {
                let policy = query.policy;
                self.query_source((id, source), query, policy);
            }
            None if query.states.contains(&QueryState::Sent) => {
                self.queries.insert(id, query);
            }
            None if query.remembered_absent.is_empty() => self.fail_query(query),
            None => self.query_again(id, query),
        }
    }

    /// Queries the sources themselves whose only reply came from the narinfo disk cache: the path
    /// may have appeared since.
    fn query_again(&mut self, id: usize, mut query: PendingQuery) {
        for source in std::mem::take(&mut query.remembered_absent) {
            query.states[source] = QueryState::NotSent;
        }
        query.policy = CachePolicy::Bypass;
        self.query_next_source(id, query);
    }

    fn query_source(&mut self, tag: QueryTag, mut query: PendingQuery, policy: CachePolicy) {
        let (id, source) = tag;
        query.states[source] = QueryState::Sent;
        let health = &mut self.health[source];
        if health.pending == 0 {
            health.waiting_since = Instant::now();
        }
        health.pending += 1;
        let sender = self.sender.clone();
        let reply = Box::new(move |result| {
            // The receiver is gone only when the copy has failed.
            let _: Result<(), _> = sender.send((tag, result));
        });
        self.copy.sources.list[source].query(&query.spec, policy, reply);
        self.queries.insert(id, query);
    }

    fn fail_query(&mut self, query: PendingQuery) {
        if let PathSpec::Path(path) = &query.spec {
            self.resolved.unavailable.insert(path.clone());
        }
        let list = &self.copy.sources.list;
        let sources = list.iter().map(|source| source.name()).collect();
        let path = query.spec.text();
        let first = query.errors.into_iter().next().map(|(_, error)| error);
        let error = first.unwrap_or(Error::NotFound { path, sources });
        self.resolved.failures.push(error);
    }

    /// Queries the next source for paths whose sources are all unresponsive.
    fn skip_unresponsive(&mut self) {
        let is_stuck = |query: &PendingQuery| {
            let mut states = query.states.iter().zip(&self.health);
            states.all(|(state, health)| *state != QueryState::Sent || health.is_unresponsive())
                && query.states.contains(&QueryState::NotSent)
        };
        let stuck = self.queries.extract_if(|_, query| is_stuck(query));
        for (id, query) in stuck.collect::<Vec<_>>() {
            // As many further sources as were queried before: a long list of dead sources takes a
            // few steps.
            let sent = query
                .states
                .iter()
                .filter(|state| **state == QueryState::Sent);
            let count = sent.count();
            self.queries.insert(id, query);
            for _ in 0..count {
                let has_more = |query: &PendingQuery| query.states.contains(&QueryState::NotSent);
                if self.queries.get(&id).is_some_and(has_more)
                    && let Some(query) = self.queries.remove(&id)
                {
                    self.query_next_source(id, query);
                }
            }
        }
    }

    fn handle_reply(&mut self, (id, source): QueryTag, result: NarInfoResult) -> Result<(), Error> {
        let health = &mut self.health[source];
        health.waiting_since = Instant::now();
        health.pending -= 1;
        // Another source may have been faster.
        let Some(mut query) = self.queries.remove(&id) else {
            return Ok(());
        };
        query.states[source] = QueryState::Replied;
        let is_remembered = matches!(&result, Ok(reply) if reply.remembered_at.is_some());
        let check = |narinfo| check_trust(self.copy, source, &query.spec, narinfo);
        match result.and_then(|reply| reply.narinfo.map(check).transpose()) {
            Ok(Some((planned, distrust))) => {
                self.passed_over.report(self.copy, &query.errors);
                self.resolved.failures.extend(distrust);
                self.add_path(query.spec_index, planned)?;
            }
            Ok(None) => {
                if is_remembered {
                    query.remembered_absent.push(source);
                }
                self.query_next_source(id, query);
            }
            // The path may have been signed since. `Bypass` also removes the remembered narinfo.
            Err(_) if is_remembered => {
                self.query_source((id, source), query, CachePolicy::Bypass);
            }
            // The next source may have a good narinfo. The user sees the first error.
            Err(error) => {
                let error = self.explain(error);
                query.errors.push((source, error));
                self.query_next_source(id, query);
            }
        }
        Ok(())
    }

    fn explain(&self, error: Error) -> Error {
        let is_requested = |wanted: &str| {
            let mut requested = self.requested_paths.iter().flatten();
            requested.any(|path| path.as_str() == wanted)
        };
        match &error {
            Error::WrongPath { wanted, .. } if is_requested(wanted) => explain_wrong_name(error),
            _ => error,
        }
    }

    fn add_path(
        &mut self,
        spec_index: Option<usize>,
        mut planned: PlannedPath,
    ) -> Result<(), Error> {
        self.budget.add_narinfo(&planned.narinfo)?;
        let info = &planned.narinfo.info;
        let path = info.path.clone();
        planned.local_copies = self.copy.options.reuse.local_copies(&path);
        planned.is_recovered = self.copy.has_recovered(&path);
        let planned = Arc::new(planned);
        let info = &planned.narinfo.info;
        self.copy.events.event(Event::Resolved {
            path: &path,
            nar_size: info.nar_size,
            download_size: planned.narinfo.file_size,
        });
        if let Some(spec_index) = spec_index {
            self.requested_paths[spec_index] = Some(path.clone());
            // The path may be valid, or may be a reference of another path.
            self.frontier.push(path.clone());
        }
        self.frontier.extend(info.references.iter().cloned());
        if spec_index.is_none() {
            (self.found)(&planned)?;
        }
        self.resolved.planned_paths.insert(path, planned);
        Ok(())
    }
}

impl SourceHealth {
    fn is_unresponsive(&self) -> bool {
        self.pending > 0 && self.waiting_since.elapsed() > UNRESPONSIVE_AFTER
    }
}

/// The time without a reply after which a source is unresponsive: longer than a normal reply takes,
/// and much shorter than the timeout of a request.
const UNRESPONSIVE_AFTER: Duration = Duration::from_secs(1);
