//! Finds out which sources have the paths of a closure, and what an install would do with their
//! replies.
//!
//! 1. The store is asked for each path. The closure of a valid path is complete.
//! 2. All sources are asked for each other path, at the same time.
//! 3. A source may reply from the narinfo disk cache. It is asked once more itself if the reply is
//!    that it lacks the path, or if the path is not trusted, as an install does.
//! 4. The references come from the first narinfo that is trusted, or else from the first one that
//!    arrived last.

use std::collections::{BTreeMap, VecDeque};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::SystemTime;

use floe_format::{NarInfo, StoreDir, StorePath};
use floe_transfer::{
    CANCEL_POLL, CachePolicy, ClosureBudget, CopyOptions, Error, NarInfoReply, NarInfoResult,
    PathSpec, QUERIES_MAX, Source,
};

use crate::copy::trust::TrustRules;
use crate::sources::Sources;

/// A query for the availability of closures.
#[derive(Clone, Copy, Debug)]
pub struct AvailabilityQuery<'a> {
    /// The store into which the closure would be installed, if it exists.
    pub store: Option<&'a dyn Source>,
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
    /// The narinfo that would be used.
    pub result: SourceResult,
    /// The narinfo, also if it would not be used.
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

    /// Whether an install would have the path.
    pub fn is_available(&self) -> bool {
        self.registered.is_some() || self.usable_source().is_some()
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
        let (sender, replies) = mpsc::channel();
        let mut crawl = Crawl {
            query: self,
            sender,
            paths: BTreeMap::new(),
            unsent: VecDeque::new(),
            pending: 0,
            budget: ClosureBudget::new(self.options.closure_limit, requested.len()),
        };
        for path in requested {
            crawl.add(path, None)?;
        }
        while crawl.send() > 0 {
            let (question, result) = match replies.recv_timeout(CANCEL_POLL) {
                Ok(replied) => replied,
                Err(RecvTimeoutError::Timeout) if !self.options.cancel.is_raised() => continue,
                Err(_) => return Err(Error::Cancelled),
            };
            crawl.pending -= 1;
            crawl.receive(question, result)?;
        }
        let paths = crawl.paths.into_iter();
        Ok(paths.map(|(path, state)| (path, state.finish())).collect())
    }
}

/// A question to one source about one path.
struct Question {
    path: StorePath,
    source: usize,
    policy: CachePolicy,
    /// The reply of the narinfo disk cache before this question.
    remembered: Option<Remembered>,
}

struct Crawl<'a> {
    query: &'a AvailabilityQuery<'a>,
    sender: mpsc::Sender<(Question, NarInfoResult)>,
    paths: BTreeMap<StorePath, PathState>,
    unsent: VecDeque<Question>,
    pending: usize,
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
    /// Adds a path that is not known yet.
    fn add(&mut self, path: &StorePath, referrer: Option<&StorePath>) -> Result<(), Error> {
        if self.paths.contains_key(path) {
            return Ok(());
        }
        self.budget.add_paths(1)?;
        let options = self.query.options;
        let spec = PathSpec::Path(path.clone());
        let registered = match self.query.store {
            Some(store) => store.query_path_info(&spec, &options.cancel)?,
            None => None,
        };
        // A store knows a path also by its hash part alone.
        let registered = registered.filter(|found| found.info.path == *path);
        let is_asked = registered.is_none() || referrer.is_none();
        let sources = if is_asked {
            self.query.sources.list.len()
        } else {
            0
        };
        self.unsent.extend((0..sources).map(|source| Question {
            path: path.clone(),
            source,
            policy: CachePolicy::Use,
            remembered: None,
        }));
        let state = PathState {
            has_references: registered.is_some(),
            registered,
            replies: (0..sources).map(|_| None).collect(),
            referrer: referrer.cloned(),
        };
        self.paths.insert(path.clone(), state);
        Ok(())
    }

    /// Sends questions. Returns how many are in flight.
    fn send(&mut self) -> usize {
        let most = QUERIES_MAX * self.query.sources.list.len().max(1);
        while self.pending < most
            && let Some(question) = self.unsent.pop_front()
        {
            self.pending += 1;
            let (sender, source) = (self.sender.clone(), question.source);
            let (spec, policy) = (PathSpec::Path(question.path.clone()), question.policy);
            let reply = Box::new(move |result| {
                // The receiver is gone only after an error.
                let _: Result<(), _> = sender.send((question, result));
            });
            self.query.sources.list[source].query(&spec, policy, reply);
        }
        self.pending
    }

    fn receive(&mut self, question: Question, result: NarInfoResult) -> Result<(), Error> {
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
            for reference in &narinfo.info.references {
                self.add(reference, Some(path))?;
            }
        }
        Ok(())
    }

    fn judge(&self, path: &StorePath, source: usize, result: NarInfoResult) -> SourceReply {
        let rules = TrustRules {
            options: self.query.options,
            store_dir: self.query.store_dir,
            requires_trust: true,
        };
        let reply = |result, narinfo| SourceReply {
            result,
            narinfo,
            remembered: None,
        };
        let narinfo = match result {
            Ok(NarInfoReply {
                narinfo: Some(narinfo),
                ..
            }) => narinfo,
            Ok(_) => return reply(SourceResult::Absent, None),
            Err(error) => return reply(SourceResult::Refused(error), None),
        };
        let spec = PathSpec::Path(path.clone());
        match rules.check(&*self.query.sources.list[source], &spec, narinfo.clone()) {
            Ok(_) => reply(SourceResult::Usable, Some(narinfo)),
            Err(error) => reply(SourceResult::Refused(error), Some(narinfo)),
        }
    }
}
