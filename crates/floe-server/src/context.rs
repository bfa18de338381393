//! From a request to its answer: what all threads share, and who answers what.
//!
//! 1. *quick*: the network's threads answer from memory, or with one prepared question to the
//!    database that does not wait;
//! 2. *slow*: everything that touches files, or has to wait, is put to a worker as a
//!    [`Question`].

use std::path::PathBuf;
use std::sync::Arc;

use floe_store::{Layout, StoreError};

use crate::answer::{self, Answer};
use crate::config::Compress;
use crate::lookup::{Entry, Lookup, Reader};
use crate::nars::Nars;
use crate::request::{Method, Request};
use crate::route::{HashPart, Route, route};
use crate::side_cache::SideCopies;

/// What all threads share.
pub(crate) struct Context {
    pub(crate) layout: Layout,
    pub(crate) log_dir: PathBuf,
    pub(crate) prefix: String,
    pub(crate) compress: Compress,
    pub(crate) lookup: Lookup,
    pub(crate) nars: Arc<Nars>,
    pub(crate) copies: Option<SideCopies>,
    /// The text of `nix-cache-info`.
    pub(crate) cache_info: Arc<str>,
    /// The text of `/`.
    pub(crate) root: Arc<str>,
    pub(crate) warn: Arc<dyn Fn(&str) + Send + Sync>,
}

/// A request that is no longer bound to the bytes it came in.
#[derive(Clone, Debug)]
pub(crate) struct Question {
    pub(crate) route: Route,
    /// Whether only the head is wanted.
    pub(crate) head_only: bool,
    pub(crate) is_old: bool,
    pub(crate) range: Option<String>,
    pub(crate) if_range: Option<String>,
    pub(crate) if_none_match: Option<String>,
    pub(crate) accepts_zstd: bool,
    /// The head as it came, where it is to be logged.
    pub(crate) head: Option<Box<[u8]>>,
}

/// What the network's threads make of a request.
pub(crate) enum Quick {
    Answer(Answer),
    Slow(Question),
}

impl Context {
    /// Answers a request without waiting, if it can be.
    pub(crate) fn quick(&self, request: &Request<'_>, reader: &mut Reader) -> Quick {
        if request.method == Method::Other {
            return Quick::Answer(Answer::refused(405));
        }
        let route = route(request, &self.prefix);
        let answer = match &route {
            Route::NarInfo { hash, json: false } => match self.lookup.find(reader, *hash) {
                Ok(Some(entry)) => Some(answer::narinfo::text(&entry, request.if_none_match)),
                Ok(None) => Some(Answer::not_found(NO_SUCH_PATH)),
                Err(error) => self.not_now(error),
            },
            Route::Nar { hash, nar_hash } => match self.lookup.find(reader, *hash) {
                Ok(Some(entry)) => {
                    answer::nar::quick(self, *hash, nar_hash.as_deref(), &entry, request)
                }
                Ok(None) => Some(Answer::not_found(NO_SUCH_PATH)),
                Err(error) => self.not_now(error),
            },
            Route::CacheInfo => Some(answer::root::cache_info(self)),
            Route::Root => Some(answer::root::root(self)),
            Route::Unknown => Some(Answer::not_found("not found\n")),
            _ => None,
        };
        match answer {
            Some(answer) => Quick::Answer(answer),
            None => Quick::Slow(Question::new(route, request)),
        }
    }

    /// Answers what takes its time.
    pub(crate) fn slow(&self, question: &Question, reader: &mut Reader) -> Answer {
        let answered = match &question.route {
            Route::NarInfo { hash, json } => self.find(reader, *hash).map(|found| {
                found.map(|entry| match json {
                    true => answer::narinfo::json(self, &entry),
                    false => answer::narinfo::text(&entry, question.if_none_match.as_deref()),
                })
            }),
            Route::Nar { hash, nar_hash } => match self.find(reader, *hash) {
                Ok(Some(entry)) => {
                    answer::nar::slow(self, *hash, nar_hash.as_deref(), &entry, question).map(Some)
                }
                Ok(None) => Ok(None),
                Err(error) => Err(error),
            },
            Route::Listing(hash) => match self.find(reader, *hash) {
                Ok(Some(entry)) => {
                    answer::listing::listing(self, *hash, &entry, question).map(Some)
                }
                Ok(None) => Ok(None),
                Err(error) => Err(error),
            },
            Route::Log(of) => answer::log::log(self, of, question, reader),
            Route::File { hash, path } => answer::file::file(self, *hash, path, question, reader),
            Route::Realisation { drv_hash, output } => self
                .lookup
                .refresh(reader)
                .and_then(|()| answer::realisation::realisation(reader, drv_hash, output)),
            Route::BuildTrace { drv, output } => self
                .lookup
                .refresh(reader)
                .and_then(|()| answer::realisation::build_trace(reader, drv, output)),
            Route::Root | Route::CacheInfo | Route::Unknown => Ok(None),
        };
        match answered {
            Ok(Some(answer)) => answer,
            Ok(None) => Answer::not_found(NO_SUCH_PATH),
            Err(error) => self.failed(&error),
        }
    }

    /// The valid path with that hash part, for those who may wait.
    pub(crate) fn find(
        &self,
        reader: &mut Reader,
        hash: HashPart,
    ) -> Result<Option<Arc<Entry>>, StoreError> {
        self.lookup.find(reader, hash)
    }

    /// A busy database is asked again by a worker, who may wait; other errors are final.
    fn not_now(&self, error: StoreError) -> Option<Answer> {
        match error.is_busy() {
            true => None,
            false => Some(self.failed(&error)),
        }
    }

    /// The answer to a request that failed. The reason is for the operator.
    pub(crate) fn failed(&self, error: &StoreError) -> Answer {
        (self.warn)(&error.to_string());
        match is_absence(error) {
            true => Answer::not_found("the files of this path are missing\n"),
            false => Answer::failed(),
        }
    }
}

impl Question {
    fn new(route: Route, request: &Request<'_>) -> Question {
        let owned = |field: Option<&str>| field.map(str::to_owned);
        // Ranges are defined for GET alone (RFC 9110, section 14.2).
        let range = request.range.filter(|_| request.method == Method::Get);
        Question {
            route,
            head_only: request.method == Method::Head,
            is_old: request.is_old,
            range: owned(range),
            if_range: owned(request.if_range),
            if_none_match: owned(request.if_none_match),
            accepts_zstd: request.accepts_zstd,
            head: None,
        }
    }
}

/// Whether an error means that files are not there.
fn is_absence(error: &StoreError) -> bool {
    matches!(error, StoreError::Io { source, .. } if source.kind() == std::io::ErrorKind::NotFound)
}

const NO_SUCH_PATH: &str = "no such path\n";
