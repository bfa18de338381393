//! From a request to its answer: who answers what.
//!
//! 1. *quick*: the network's threads answer from memory, or with one prepared request to the
//!    database that does not wait;
//! 2. *slow*: everything that touches files, or has to wait, is put to a worker as a
//!    [`DeferredRequest`].

use floe_store::StoreError;

use crate::caches::narinfo_cache::StoreSession;
use crate::context::{Context, DeferredRequest};
use crate::handlers;
use crate::http::request::{Method, Request};
use crate::http::response::Response;
use crate::http::route::{Route, route};

/// What the network's threads make of a request.
pub(crate) enum Dispatch {
    Respond(Response),
    Defer(DeferredRequest),
}

impl Context {
    /// Answers a request without waiting, if it can be.
    pub(crate) fn try_respond(
        &self,
        request: &Request<'_>,
        session: &mut StoreSession,
    ) -> Dispatch {
        if request.method == Method::Other {
            return Dispatch::Respond(Response::client_error(405));
        }
        let route = route(request, &self.prefix);
        let answer = match &route {
            Route::NarInfo { hash, json: false } => match self.narinfos.find(session, *hash) {
                Ok(Some(entry)) => Some(handlers::narinfo::text(&entry, request.if_none_match)),
                Ok(None) => Some(Response::not_found(NO_SUCH_PATH)),
                Err(error) => self.defer_if_busy(error),
            },
            Route::Nar { hash, nar_hash } => match self.narinfos.find(session, *hash) {
                Ok(Some(entry)) => {
                    handlers::nar::try_respond(self, *hash, nar_hash.as_deref(), &entry, request)
                }
                Ok(None) => Some(Response::not_found(NO_SUCH_PATH)),
                Err(error) => self.defer_if_busy(error),
            },
            Route::CacheInfo => Some(handlers::nix_cache_info::cache_info(self)),
            Route::Root => Some(handlers::nix_cache_info::root(self)),
            Route::Unknown => Some(Response::not_found("not found\n")),
            _ => None,
        };
        match answer {
            Some(answer) => Dispatch::Respond(answer),
            None => Dispatch::Defer(DeferredRequest::new(route, request)),
        }
    }

    /// Answers what takes its time.
    pub(crate) fn respond_blocking(
        &self,
        request: &DeferredRequest,
        session: &mut StoreSession,
    ) -> Response {
        let answered = match &request.route {
            Route::NarInfo { hash, json } => self.find(session, *hash).map(|found| {
                found.map(|entry| match json {
                    true => handlers::narinfo::json(self, &entry),
                    false => handlers::narinfo::text(&entry, request.if_none_match.as_deref()),
                })
            }),
            Route::Nar { hash, nar_hash } => match self.find(session, *hash) {
                Ok(Some(entry)) => handlers::nar::respond_blocking(
                    self,
                    *hash,
                    nar_hash.as_deref(),
                    &entry,
                    request,
                )
                .map(Some),
                Ok(None) => Ok(None),
                Err(error) => Err(error),
            },
            Route::Listing(hash) => match self.find(session, *hash) {
                Ok(Some(entry)) => {
                    handlers::listing::listing(self, *hash, &entry, request).map(Some)
                }
                Ok(None) => Ok(None),
                Err(error) => Err(error),
            },
            Route::Log(of) => handlers::log::log(self, of, request, session),
            Route::File { hash, path } => handlers::file::file(self, *hash, path, request, session),
            Route::Realisation { drv_hash, output } => self
                .narinfos
                .refresh(session)
                .and_then(|()| handlers::realisation::realisation(session, drv_hash, output)),
            Route::BuildTrace { drv, output } => self
                .narinfos
                .refresh(session)
                .and_then(|()| handlers::realisation::build_trace(session, drv, output)),
            Route::Root | Route::CacheInfo | Route::Unknown => Ok(None),
        };
        match answered {
            Ok(Some(answer)) => answer,
            Ok(None) => Response::not_found(NO_SUCH_PATH),
            Err(error) => self.error_response(&error),
        }
    }

    /// A busy database is asked again by a worker, who may wait; other errors are final.
    fn defer_if_busy(&self, error: StoreError) -> Option<Response> {
        match error.is_busy() {
            true => None,
            false => Some(self.error_response(&error)),
        }
    }
}

const NO_SUCH_PATH: &str = "no such path\n";
