//! Queries of closures in one source.

use std::collections::{BTreeMap, HashSet};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};

use floe_format::{HashPart, NarInfo, StorePath};

use super::{CachePolicy, NO_REPLY, NarInfoResult, Source};
use crate::cancel::{CANCEL_POLL, Cancel};
use crate::error::Error;
use crate::path_spec::{CLOSURE_MAX, PathSpec};

impl dyn Source + '_ {
    /// Returns the narinfos of the requested paths and, if `recursive`, of their closures, in the
    /// order of their paths. All known queries are in flight at once. Queries for the requested
    /// paths bypass the narinfo disk cache, because the user wants the current state.
    ///
    /// Errors: [`Error::NotFound`] for the first path that the source does not have, those of the
    /// queries, [`Error::ClosureTooLarge`], [`Error::Cancelled`].
    pub fn query_closure(
        &self,
        specs: &[PathSpec],
        recursive: bool,
        cancel: &Cancel,
    ) -> Result<QueriedClosure, Error> {
        let (sender, replies) = channel();
        let mut closure = ClosureQuery {
            source: self,
            sender,
            seen: HashSet::new(),
            pending: 0,
        };
        let mut queried = QueriedClosure::default();
        for spec in specs {
            closure.query(spec.clone(), CachePolicy::Bypass)?;
        }
        while closure.pending > 0 {
            let (spec, reply) = match replies.recv_timeout(CANCEL_POLL) {
                Ok(replied) => replied,
                Err(RecvTimeoutError::Timeout) if !cancel.is_raised() => continue,
                Err(RecvTimeoutError::Timeout) => return Err(Error::Cancelled),
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
            if recursive {
                for path in &narinfo.info.references {
                    closure.query(PathSpec::Path(path.clone()), CachePolicy::HitsOnly)?;
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
    pending: usize,
}

impl ClosureQuery<'_> {
    fn query(&mut self, spec: PathSpec, policy: CachePolicy) -> Result<(), Error> {
        let part = spec.hash_part();
        if !self.seen.insert(part) {
            return Ok(());
        }
        if self.seen.len() > CLOSURE_MAX {
            return Err(Error::ClosureTooLarge { limit: CLOSURE_MAX });
        }
        self.pending += 1;
        let (sender, tag) = (self.sender.clone(), spec.clone());
        let reply = Box::new(move |result| {
            // The receiver is gone only after an error.
            let _: Result<(), _> = sender.send((tag, result));
        });
        self.source.query(&spec, policy, reply);
        Ok(())
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
