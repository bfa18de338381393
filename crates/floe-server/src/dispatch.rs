//! From a request to its answer: who answers what.
//!
//! 1. *quick*: the network's threads answer from memory, or with one prepared question to the
//!    database that does not wait;
//! 2. *slow*: everything that touches files, or has to wait, is put to a worker as a
//!    [`Question`].

use floe_store::StoreError;

use crate::answer::Answer;
use crate::context::{Context, Question};
use crate::handlers;
use crate::lookup::Reader;
use crate::request::{Method, Request};
use crate::route::{Route, route};

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
                Ok(Some(entry)) => Some(handlers::narinfo::text(&entry, request.if_none_match)),
                Ok(None) => Some(Answer::not_found(NO_SUCH_PATH)),
                Err(error) => self.not_now(error),
            },
            Route::Nar { hash, nar_hash } => match self.lookup.find(reader, *hash) {
                Ok(Some(entry)) => {
                    handlers::nar::quick(self, *hash, nar_hash.as_deref(), &entry, request)
                }
                Ok(None) => Some(Answer::not_found(NO_SUCH_PATH)),
                Err(error) => self.not_now(error),
            },
            Route::CacheInfo => Some(handlers::root::cache_info(self)),
            Route::Root => Some(handlers::root::root(self)),
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
                    true => handlers::narinfo::json(self, &entry),
                    false => handlers::narinfo::text(&entry, question.if_none_match.as_deref()),
                })
            }),
            Route::Nar { hash, nar_hash } => match self.find(reader, *hash) {
                Ok(Some(entry)) => {
                    handlers::nar::slow(self, *hash, nar_hash.as_deref(), &entry, question)
                        .map(Some)
                }
                Ok(None) => Ok(None),
                Err(error) => Err(error),
            },
            Route::Listing(hash) => match self.find(reader, *hash) {
                Ok(Some(entry)) => {
                    handlers::listing::listing(self, *hash, &entry, question).map(Some)
                }
                Ok(None) => Ok(None),
                Err(error) => Err(error),
            },
            Route::Log(of) => handlers::log::log(self, of, question, reader),
            Route::File { hash, path } => handlers::file::file(self, *hash, path, question, reader),
            Route::Realisation { drv_hash, output } => self
                .lookup
                .refresh(reader)
                .and_then(|()| handlers::realisation::realisation(reader, drv_hash, output)),
            Route::BuildTrace { drv, output } => self
                .lookup
                .refresh(reader)
                .and_then(|()| handlers::realisation::build_trace(reader, drv, output)),
            Route::Root | Route::CacheInfo | Route::Unknown => Ok(None),
        };
        match answered {
            Ok(Some(answer)) => answer,
            Ok(None) => Answer::not_found(NO_SUCH_PATH),
            Err(error) => self.failed(&error),
        }
    }

    /// A busy database is asked again by a worker, who may wait; other errors are final.
    fn not_now(&self, error: StoreError) -> Option<Answer> {
        match error.is_busy() {
            true => None,
            false => Some(self.failed(&error)),
        }
    }
}

const NO_SUCH_PATH: &str = "no such path\n";
