//! From roots to the part of their closure that is missing in the target.
//!
//! 1. new paths become temporary roots of the target, which is then asked what it lacks;
//! 2. a path that the target has is not followed: a store holds closures, never parts of them;
//! 3. for the others a source is asked, as many at once as it takes, in the order of the
//!    sources until one has the path and is trusted with it; a source that says nothing is passed
//!    over until it speaks;
//! 4. the references of what was found are new paths.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use floe_format::StorePath;
use floe_transfer::{
    CANCEL_POLL, CLOSURE_MAX, CachePolicy, Error, Event, NarInfoResult, PathSpec, PlannedPath,
};

use super::ClosureCopy;
use super::trust::check_trust;

/// What is to be moved.
#[derive(Debug, Default)]
pub(crate) struct Resolved {
    /// The roots by their names, as far as they were found.
    pub(crate) requested_paths: Vec<StorePath>,
    pub(crate) items: Vec<PlannedPath>,
    pub(crate) failures: Vec<Error>,
    /// Paths that the target lacks and no source gives.
    pub(crate) unavailable: BTreeSet<StorePath>,
}

/// A path that is looked for.
struct PendingQuery {
    spec: PathSpec,
    /// Which root it is, if it is one that was asked for by hash part.
    spec_index: Option<usize>,
    /// Somebody named this very path, and may know that it is there by now.
    is_requested: bool,
    /// What became of it at each source.
    states: Vec<QueryState>,
    /// What the first source said that did not just lack it.
    error: Option<Error>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum QueryState {
    NotSent,
    Sent,
    Answered,
}

/// How a source has been.
struct SourceHealth {
    /// Since when something was asked of it and nothing came.
    waiting_since: Instant,
    unanswered: usize,
}

/// Which path was asked for, and of which source.
type QueryTag = (usize, usize);

struct Resolver<'a> {
    copy: &'a ClosureCopy<'a>,
    sender: mpsc::Sender<(QueryTag, NarInfoResult)>,
    queries: HashMap<usize, PendingQuery>,
    next_query: usize,
    health: Vec<SourceHealth>,
    seen: HashSet<StorePath>,
    items: BTreeMap<StorePath, PlannedPath>,
    failures: Vec<Error>,
    unavailable: BTreeSet<StorePath>,
    requested_paths: Vec<Option<StorePath>>,
    /// Found and not yet followed.
    frontier: Vec<StorePath>,
    /// Those among them that a user has named.
    requested: HashSet<StorePath>,
}

/// Explores the closures of `roots`.
pub(crate) fn resolve(copy: &ClosureCopy<'_>, specs: &[PathSpec]) -> Result<Resolved, Error> {
    let (sender, receiver) = mpsc::channel();
    let health = || SourceHealth {
        waiting_since: Instant::now(),
        unanswered: 0,
    };
    let mut resolver = Resolver {
        copy,
        sender,
        queries: HashMap::new(),
        next_query: 0,
        health: copy.sources.list.iter().map(|_| health()).collect(),
        seen: HashSet::new(),
        items: BTreeMap::new(),
        failures: Vec::new(),
        unavailable: BTreeSet::new(),
        requested_paths: vec![None; specs.len()],
        frontier: Vec::new(),
        requested: HashSet::new(),
    };
    resolver.add_specs(specs)?;
    resolver.expand_frontier()?;
    while !resolver.queries.is_empty() {
        copy.check_cancelled()?;
        match receiver.recv_timeout(CANCEL_POLL) {
            Ok((tag, answer)) => resolver.handle_reply(tag, answer),
            Err(RecvTimeoutError::Timeout) => resolver.skip_unresponsive(),
            Err(RecvTimeoutError::Disconnected) => return Err(Error::Cancelled),
        }
        // Whatever else has arrived meanwhile shares one question to the database.
        while let Ok((tag, answer)) = receiver.try_recv() {
            resolver.handle_reply(tag, answer);
        }
        resolver.expand_frontier()?;
        let (known, pending) = (resolver.items.len(), resolver.queries.len());
        copy.events.event(Event::Resolving { known, pending });
    }
    Ok(Resolved {
        requested_paths: resolver.requested_paths.into_iter().flatten().collect(),
        items: resolver.items.into_values().collect(),
        failures: resolver.failures,
        unavailable: resolver.unavailable,
    })
}

impl Resolver<'_> {
    fn add_specs(&mut self, specs: &[PathSpec]) -> Result<(), Error> {
        for (spec_index, spec) in specs.iter().enumerate() {
            let known = match spec {
                PathSpec::Path(path) => Some(path.clone()),
                PathSpec::HashPart(part) => self.copy.target.query_path_from_hash_part(part)?,
            };
            match known {
                Some(path) => {
                    self.requested_paths[spec_index] = Some(path.clone());
                    self.requested.insert(path.clone());
                    self.frontier.push(path);
                }
                None => self.start_query(spec.clone(), Some(spec_index)),
            }
        }
        Ok(())
    }

    /// Asks the target which of the fresh paths it lacks, and the sources for those.
    fn expand_frontier(&mut self) -> Result<(), Error> {
        let frontier: BTreeSet<StorePath> =
            std::mem::take(&mut self.frontier).into_iter().collect();
        let frontier: Vec<StorePath> = frontier
            .into_iter()
            .filter(|path| self.seen.insert(path.clone()))
            .collect();
        if self.seen.len() > CLOSURE_MAX {
            return Err(Error::ClosureTooLarge { limit: CLOSURE_MAX });
        }
        if frontier.is_empty() {
            return Ok(());
        }
        let missing = self
            .copy
            .target
            .add_temp_roots_and_query_missing(&frontier)?;
        for path in frontier
            .iter()
            .filter(|path| missing.binary_search(path).is_err())
        {
            // Asked for by its hash part and found, and there already under its name.
            self.items.remove(path);
        }
        for path in missing {
            // A root that was asked for by its hash part has been found already.
            if !self.items.contains_key(&path) {
                self.start_query(PathSpec::Path(path), None);
            }
        }
        Ok(())
    }

    fn start_query(&mut self, spec: PathSpec, spec_index: Option<usize>) {
        let is_requested = match &spec {
            PathSpec::Path(path) => self.requested.contains(path),
            PathSpec::HashPart(_) => true,
        };
        let (sources, dir) = (&self.copy.sources.list, self.copy.target.store_dir());
        let states = sources.iter().map(|source| match source.is_for(dir) {
            true => QueryState::NotSent,
            // It has nothing that could stand in the target.
            false => QueryState::Answered,
        });
        let query = PendingQuery {
            states: states.collect(),
            spec,
            spec_index,
            is_requested,
            error: None,
        };
        let text = &query.spec.text();
        self.copy.events.event(Event::Querying { requested: text });
        let id = self.next_query;
        self.next_query += 1;
        self.queries.insert(id, query);
        self.query_next_source(id);
    }

    /// Asks one more source, those that are silent at last; gives the path up when all have
    /// answered.
    fn query_next_source(&mut self, id: usize) {
        let Some(query) = self.queries.get_mut(&id) else {
            return;
        };
        let health = &self.health;
        let not_yet = |source: &usize| query.states[*source] == QueryState::NotSent;
        let mut left = (0..health.len()).filter(not_yet);
        let first = left
            .clone()
            .find(|source| !health[*source].is_unresponsive());
        match first.or_else(|| left.next()) {
            Some(source) => {
                let policy = match query.is_requested {
                    true => CachePolicy::HitsOnly,
                    false => CachePolicy::Use,
                };
                self.query_source((id, source), policy);
            }
            None if query.states.contains(&QueryState::Sent) => {}
            None => self.fail_query(id),
        }
    }

    fn query_source(&mut self, (id, source): QueryTag, policy: CachePolicy) {
        let Some(query) = self.queries.get_mut(&id) else {
            return;
        };
        query.states[source] = QueryState::Sent;
        let health = &mut self.health[source];
        if health.unanswered == 0 {
            health.waiting_since = Instant::now();
        }
        health.unanswered += 1;
        let part = query.spec.hash_part();
        let (tag, sender) = ((id, source), self.sender.clone());
        let reply = Box::new(move |result| {
            // The receiver is gone only when the copy has failed.
            let _: Result<(), _> = sender.send((tag, result));
        });
        self.copy.sources.list[source].query(part, policy, reply);
    }

    fn fail_query(&mut self, id: usize) {
        let Some(query) = self.queries.remove(&id) else {
            return;
        };
        if let PathSpec::Path(path) = &query.spec {
            self.unavailable.insert(path.clone());
        }
        let sources = self.copy.sources.list.iter();
        let sources = sources.map(|source| source.name()).collect();
        let path = query.spec.text();
        let error = query.error.unwrap_or(Error::NotFound { path, sources });
        self.failures.push(error);
    }

    /// Asks others for what a source is asked for that has said nothing for a while.
    fn skip_unresponsive(&mut self) {
        if !self.health.iter().any(SourceHealth::is_unresponsive) {
            return;
        }
        let is_stuck = |query: &PendingQuery| {
            let mut states = query.states.iter().zip(&self.health);
            states.all(|(state, health)| *state != QueryState::Sent || health.is_unresponsive())
                && query.states.contains(&QueryState::NotSent)
        };
        let stuck = self.queries.iter().filter(|(_, query)| is_stuck(query));
        let stuck: Vec<usize> = stuck.map(|(id, _)| *id).collect();
        for id in stuck {
            self.query_next_source(id);
        }
    }

    fn handle_reply(&mut self, (id, source): QueryTag, answer: NarInfoResult) {
        let health = &mut self.health[source];
        health.waiting_since = Instant::now();
        health.unanswered -= 1;
        // Another source may have been faster.
        let Some(query) = self.queries.get_mut(&id) else {
            return;
        };
        query.states[source] = QueryState::Answered;
        let mut from_disk_cache = false;
        let accepted = answer.and_then(|found| match found {
            Some(reply) => {
                from_disk_cache = reply.from_disk_cache;
                check_trust(self.copy, source, &query.spec, reply.narinfo).map(Some)
            }
            None => Ok(None),
        });
        match accepted {
            Ok(Some(item)) => self.add_path(id, item),
            Ok(None) => self.query_next_source(id),
            // Since then somebody may have signed it. Asked now, it is remembered no more.
            Err(_) if from_disk_cache => self.query_source((id, source), CachePolicy::Bypass),
            // The next source may have a better answer; the first error is the one to show.
            Err(error) => {
                query.error.get_or_insert(error);
                self.query_next_source(id);
            }
        }
    }

    fn add_path(&mut self, id: usize, item: PlannedPath) {
        let path = item.narinfo.info.path.clone();
        self.copy.events.event(Event::Resolved {
            path: &path,
            nar_size: item.narinfo.info.nar_size,
            download_size: item.narinfo.file_size,
        });
        let spec_index = self.queries.remove(&id).and_then(|query| query.spec_index);
        if let Some(spec_index) = spec_index {
            self.requested_paths[spec_index] = Some(path.clone());
            // It may be there under its name, or be somebody else's reference too.
            self.frontier.push(path.clone());
        }
        let references = item.narinfo.info.references.iter();
        self.frontier.extend(references.cloned());
        self.items.insert(path, item);
    }
}

impl SourceHealth {
    fn is_unresponsive(&self) -> bool {
        self.unanswered > 0 && self.waiting_since.elapsed() > UNRESPONSIVE_AFTER
    }
}

/// How long a source may say nothing before others are asked for the same: longer than any answer
/// takes that is still on its way, and short beside the time after which a request has failed.
const UNRESPONSIVE_AFTER: Duration = Duration::from_secs(2);
