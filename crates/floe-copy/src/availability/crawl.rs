//! Asks the store and the sources for closures.

use std::collections::{BTreeMap, VecDeque};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use floe_format::{NarInfo, StorePath};
use floe_store::StoreLayout;
use floe_transfer::{
    CANCEL_POLL, CachePolicy, ClosureBudget, Error, NarInfoReply, NarInfoResult, PathSpec,
    QUERIES_MAX,
};

use super::{AvailabilityQuery, PathAvailability, Remembered, SourceReply, SourceResult};
use crate::copy::trust::{explain_wrong_name, store_dir_mismatch};

/// Returns the availability of each path in the closures of some paths.
///
/// Errors: those of [`AvailabilityQuery::run`].
pub(super) fn run(
    query: &AvailabilityQuery<'_>,
    requested: &[StorePath],
) -> Result<BTreeMap<StorePath, PathAvailability>, Error> {
    let (sender, replies) = mpsc::channel();
    let mut crawl = Crawl {
        query,
        sender,
        paths: BTreeMap::new(),
        frontier: requested.iter().map(|path| (path.clone(), None)).collect(),
        unsent: VecDeque::new(),
        pending: query
            .sources
            .list
            .iter()
            .map(|_| Pending::default())
            .collect(),
        budget: ClosureBudget::new(query.options.closure_limit, requested.len()),
    };
    crawl.visit_frontier()?;
    while crawl.send() > 0 {
        // A source may reply so fast that nothing waits.
        if query.options.cancel.is_raised() {
            return Err(Error::Cancelled);
        }
        match replies.recv_timeout(CANCEL_POLL) {
            Ok((question, result)) => crawl.receive_reply(question, result)?,
            // The crawl itself has a sender, so the channel is never disconnected.
            Err(_) => crawl.give_up_unresponsive()?,
        }
    }
    let paths = crawl.paths.into_iter();
    Ok(paths.map(|(path, state)| (path, state.finish())).collect())
}

/// A question to one source about one path.
struct Question {
    path: StorePath,
    source: usize,
    policy: CachePolicy,
    /// The reply of the narinfo disk cache before this question.
    remembered: Option<Remembered>,
}

/// The questions that a source has not answered.
struct Pending {
    count: usize,
    /// The time of its last reply, or of the oldest question since.
    since: Instant,
    /// Whether it has replied at all.
    has_replied: bool,
    /// Whether no further reply counts.
    is_given_up: bool,
}

impl Default for Pending {
    fn default() -> Pending {
        Pending {
            count: 0,
            since: Instant::now(),
            has_replied: false,
            is_given_up: false,
        }
    }
}

struct Crawl<'a> {
    query: &'a AvailabilityQuery<'a>,
    sender: mpsc::Sender<(Question, NarInfoResult)>,
    paths: BTreeMap<StorePath, PathState>,
    /// Paths to visit, each with a path that refers to it.
    frontier: VecDeque<(StorePath, Option<StorePath>)>,
    unsent: VecDeque<Question>,
    /// The questions to each source that it has not answered.
    pending: Vec<Pending>,
    budget: ClosureBudget,
}

/// The replies about a path that have arrived.
#[derive(Default)]
struct PathState {
    registered: Option<NarInfo>,
    replies: Vec<Option<SourceReply>>,
    referrer: Option<StorePath>,
    has_references: bool,
}

impl PathState {
    fn finish(self) -> PathAvailability {
        PathAvailability {
            registered: self.registered,
            // The crawl ends after the last reply.
            replies: self.replies.into_iter().flatten().collect(),
            referrer: self.referrer,
        }
    }

    /// Returns the narinfo whose references are followed now, if there is one.
    fn take_references(&mut self) -> Option<NarInfo> {
        if self.has_references {
            return None;
        }
        let replies = || self.replies.iter().flatten();
        let usable = replies().find(|reply| matches!(reply.result, SourceResult::Usable));
        let is_complete = self.replies.iter().all(Option::is_some);
        let refused = || replies().find(|reply| reply.narinfo.is_some());
        let reply = usable.or_else(|| is_complete.then(refused).flatten())?;
        self.has_references = true;
        reply.narinfo.clone()
    }
}

impl Crawl<'_> {
    fn visit_frontier(&mut self) -> Result<(), Error> {
        while let Some((path, referrer)) = self.frontier.pop_front() {
            if !self.paths.contains_key(&path) {
                self.visit(&path, referrer)?;
            }
        }
        Ok(())
    }

    /// Asks the store for a path that is not known yet, and the sources if it is not valid.
    fn visit(&mut self, path: &StorePath, referrer: Option<StorePath>) -> Result<(), Error> {
        self.budget.add_paths(1)?;
        let options = self.query.options;
        let spec = PathSpec::Path(path.clone());
        let registered = match self.query.store {
            Some(store) => store.query_path_info(&spec, &options.cancel)?,
            None => None,
        };
        // A store knows a path also by its hash part alone.
        let registered = registered.filter(|found| found.info.path == *path);
        let layout = self.query.layout;
        let is_there = |layout: &StoreLayout| layout.real_path(path).symlink_metadata().is_ok();
        let registered = registered.filter(|_| layout.is_none_or(is_there));
        if let (Some(narinfo), Some(_)) = (&registered, layout) {
            let references = narinfo.info.references.iter();
            let references = references.map(|it| (it.clone(), Some(path.clone())));
            self.frontier.extend(references);
        }
        let is_asked = registered.is_none() || referrer.is_none();
        let sources = if is_asked {
            self.query.sources.list.len()
        } else {
            0
        };
        let state = PathState {
            has_references: registered.is_some(),
            registered,
            replies: (0..sources).map(|_| None).collect(),
            referrer,
        };
        self.paths.insert(path.clone(), state);
        for source in 0..sources {
            let question = Question {
                path: path.clone(),
                source,
                policy: CachePolicy::Use,
                remembered: None,
            };
            if self.pending[source].is_given_up {
                self.record(question, Err(self.no_reply(source)))?;
            } else {
                self.unsent.push_back(question);
            }
        }
        Ok(())
    }

    /// Sends questions. Returns how many are in flight.
    fn send(&mut self) -> usize {
        let most = QUERIES_MAX * self.query.sources.list.len().max(1);
        while self.pending_count() < most
            && let Some(question) = self.unsent.pop_front()
        {
            let pending = &mut self.pending[question.source];
            if pending.count == 0 {
                pending.since = Instant::now();
            }
            pending.count += 1;
            let (sender, source) = (self.sender.clone(), question.source);
            let (spec, policy) = (PathSpec::Path(question.path.clone()), question.policy);
            let reply = Box::new(move |result| {
                // The receiver is gone only after an error.
                let _: Result<(), _> = sender.send((question, result));
            });
            self.query.sources.list[source].query(&spec, policy, reply);
        }
        self.pending_count()
    }

    fn pending_count(&self) -> usize {
        let pending = self.pending.iter().filter(|pending| !pending.is_given_up);
        pending.map(|pending| pending.count).sum()
    }

    fn receive_reply(&mut self, question: Question, result: NarInfoResult) -> Result<(), Error> {
        let pending = &mut self.pending[question.source];
        pending.count -= 1;
        pending.since = Instant::now();
        pending.has_replied = true;
        if pending.is_given_up {
            return Ok(());
        }
        self.receive(question, result)
    }

    /// Answers the questions to sources that do not reply, if another one does. An install passes
    /// over them too.
    fn give_up_unresponsive(&mut self) -> Result<(), Error> {
        if !self.pending.iter().any(|pending| pending.has_replied) {
            return Ok(());
        }
        for source in 0..self.pending.len() {
            let pending = &mut self.pending[source];
            let is_silent = pending.count > 0 && pending.since.elapsed() > UNRESPONSIVE_AFTER;
            if !is_silent || std::mem::replace(&mut pending.is_given_up, true) {
                continue;
            }
            let is_open = |state: &PathState| matches!(state.replies.get(source), Some(None));
            let paths = self.paths.iter().filter(|(_, state)| is_open(state));
            let paths: Vec<StorePath> = paths.map(|(path, _)| path.clone()).collect();
            self.unsent.retain(|question| question.source != source);
            for path in paths {
                let question = Question {
                    path,
                    source,
                    policy: CachePolicy::Bypass,
                    remembered: None,
                };
                self.receive(question, Err(self.no_reply(source)))?;
            }
        }
        Ok(())
    }

    fn no_reply(&self, source: usize) -> Error {
        let name = self.query.sources.list[source].name();
        Error::fetch(&name, "it does not reply", true)
    }

    fn receive(&mut self, question: Question, result: NarInfoResult) -> Result<(), Error> {
        self.record(question, result)?;
        self.visit_frontier()
    }

    /// Records a reply. Adds the references of the path to the frontier.
    fn record(&mut self, question: Question, result: NarInfoResult) -> Result<(), Error> {
        let Question { path, source, .. } = &question;
        let remembered = match &result {
            Ok(NarInfoReply {
                narinfo,
                remembered_at: Some(at),
            }) => Some(Remembered {
                at: *at,
                has_path: narinfo.is_some(),
            }),
            _ => None,
        };
        let reply = self.judge(path, *source, result);
        if remembered.is_some() && !matches!(reply.result, SourceResult::Usable) {
            self.unsent.push_back(Question {
                policy: CachePolicy::Bypass,
                remembered,
                ..question
            });
            return Ok(());
        }
        let remembered = remembered.or(question.remembered);
        if let Some(narinfo) = &reply.narinfo {
            self.budget.add_narinfo(narinfo)?;
        }
        let Some(state) = self.paths.get_mut(path) else {
            return Ok(());
        };
        state.replies[*source] = Some(SourceReply {
            remembered,
            ..reply
        });
        if let Some(narinfo) = state.take_references() {
            let references = narinfo.info.references.iter();
            let references = references.map(|it| (it.clone(), Some(path.clone())));
            self.frontier.extend(references);
        }
        Ok(())
    }

    fn judge(&self, path: &StorePath, source: usize, result: NarInfoResult) -> SourceReply {
        let offering_source = &*self.query.sources.list[source];
        let reply = |result, narinfo| SourceReply {
            result,
            narinfo,
            remembered: None,
        };
        if !offering_source.is_for(self.query.store_dir) {
            let error = store_dir_mismatch(offering_source, self.query.store_dir);
            return reply(SourceResult::Refused(error), None);
        }
        let narinfo = match result {
            Ok(NarInfoReply {
                narinfo: Some(narinfo),
                ..
            }) => narinfo,
            Ok(_) => return reply(SourceResult::Absent, None),
            Err(error) => return reply(SourceResult::Refused(error), None),
        };
        let spec = PathSpec::Path(path.clone());
        match self
            .query
            .rules()
            .check(offering_source, &spec, narinfo.clone())
        {
            Ok(_) => reply(SourceResult::Usable, Some(narinfo)),
            // Its references are those of another path.
            Err(error @ Error::WrongPath { .. }) => {
                let error = if self.is_requested(path) {
                    explain_wrong_name(error)
                } else {
                    error
                };
                reply(SourceResult::Refused(error), None)
            }
            Err(error) => reply(SourceResult::Refused(error), Some(narinfo)),
        }
    }

    fn is_requested(&self, path: &StorePath) -> bool {
        let state = self.paths.get(path);
        state.is_some_and(|state| state.referrer.is_none())
    }
}

/// The time without a reply after which a source is given up if others reply.
const UNRESPONSIVE_AFTER: Duration = Duration::from_secs(5);
