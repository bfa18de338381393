//! From a request to the handler that responds to it.
//!
//! 1. [`try_respond`] runs in a network thread. It responds from memory, or after one database
//!    query that does not wait.
//! 2. [`respond_blocking`] runs in a worker. It responds to all requests that need files or have
//!    to wait. Such a request becomes a [`DeferredRequest`].

use std::sync::Arc;

use floe_store::StoreError;

use crate::caches::narinfo_cache::{CachedNarInfo, StoreSession};
use crate::context::Context;
use crate::deferred::{DeferredRequest, NarTarget};
use crate::handlers::{
    browse, file, landing_page, listing, log, monitoring, nar, narinfo, nix_cache_info, pin,
    realisation, received, redirect,
};
use crate::http::refusal::Refusal;
use crate::http::request::{Method, Request};
use crate::http::response::{CacheKind, CacheUse, Response};
use crate::http::route::Route;
use floe_format::HashPart;

/// The decision of a network thread about a request.
pub(crate) enum Dispatch {
    Respond(Response),
    /// A worker has to respond. The NAR is that of the route, if it is looked up.
    Defer(Route, Option<NarTarget>),
}

/// Responds to a request if that needs neither files nor waiting.
pub(crate) fn try_respond(
    context: &Context,
    request: &Request<'_>,
    route: Route,
    session: &mut StoreSession,
) -> Dispatch {
    if !matches!(request.method, Method::Get | Method::Head) {
        return Dispatch::Respond(Response::refused(Refusal::MethodNotAllowed));
    }
    let mut target = None;
    let response = match &route {
        Route::NarInfo { hash, json: false } => {
            find_noted(context, *hash, session).map(|(narinfo, cache)| {
                let response = narinfo::respond(&narinfo, request.if_none_match);
                Some(response.noting(CacheKind::NarInfo, cache))
            })
        }
        Route::Nar { hash, nar_hash } => find(context, *hash, session)
            .and_then(|narinfo| Ok(nar::target(context, narinfo, nar_hash.as_deref())?))
            .map(|nar| nar::try_respond(context, target.insert(nar), request)),
        Route::CacheInfo => Ok(Some(nix_cache_info::respond(context))),
        Route::Root => Ok(Some(landing_page::respond(context, request))),
        Route::Redirect => Ok(Some(redirect::respond(context, request))),
        Route::Health => Ok(Some(monitoring::health())),
        Route::Ready => Ok(monitoring::try_ready(context)),
        Route::Version => Ok(Some(monitoring::version(context))),
        Route::Metrics => Ok(Some(monitoring::metrics(context))),
        Route::Unknown => Ok(Some(Response::not_found("not found\n"))),
        Route::Browse(_) if !context.browsers.exist() => {
            Ok(Some(Response::not_found("not found\n")))
        }
        Route::CachedNar(_) if context.receiver.is_none() => {
            Ok(Some(Response::not_found("not found\n")))
        }
        _ => Ok(None),
    };
    match response {
        // The path may be in the cache that the server has received.
        Err(Failure::Refused(response))
            if response.status == 404 && may_be_received(context, &route) =>
        {
            Dispatch::Defer(route, None)
        }
        Ok(Some(response)) | Err(Failure::Refused(response)) => Dispatch::Respond(response),
        // A worker can wait for the database.
        Err(Failure::Store(error)) if !error.is_busy() => {
            Dispatch::Respond(context.error_response(&error))
        }
        Ok(None) | Err(Failure::Store(_)) => Dispatch::Defer(route, target),
    }
}

/// Responds to a request, and waits for the database and for disks if necessary.
pub(crate) fn respond_blocking(
    context: &Context,
    request: &mut DeferredRequest,
    session: &mut StoreSession,
) -> Response {
    let response = match respond_from_store(context, request, session) {
        Ok(response) | Err(Failure::Refused(response)) => response,
        Err(Failure::Store(error)) => return context.error_response(&error),
    };
    if response.status != 404 {
        return response;
    }
    let object = received::object_of(&request.route);
    let received = object.and_then(|object| received::respond(context, &object, request));
    received.unwrap_or(response)
}

/// Whether the server may have received the object of a route.
fn may_be_received(context: &Context, route: &Route) -> bool {
    context.receiver.is_some() && received::object_of(route).is_some()
}

fn respond_from_store(
    context: &Context,
    request: &mut DeferredRequest,
    session: &mut StoreSession,
) -> Result<Response, Failure> {
    Ok(match &request.route {
        Route::NarInfo { hash, json } => {
            let (narinfo, cache) = find_noted(context, *hash, session)?;
            let response = if *json {
                narinfo::respond_json(context, &narinfo)
            } else {
                narinfo::respond(&narinfo, request.if_none_match.as_deref())
            };
            response.noting(CacheKind::NarInfo, cache)
        }
        Route::Nar { hash, nar_hash } => {
            let nar = match &request.nar {
                Some(nar) => nar.clone(),
                // The database was busy when the network thread looked the path up.
                None => {
                    let narinfo = find(context, *hash, session)?;
                    let nar = nar::target(context, narinfo, nar_hash.as_deref())?;
                    request.nar.insert(nar).clone()
                }
            };
            nar::respond_blocking(context, &nar, request)?
        }
        Route::Listing(hash) => {
            let narinfo = find(context, *hash, session)?;
            listing::respond(context, &narinfo, request)?
        }
        Route::File { hash, path } => {
            let narinfo = find(context, *hash, session)?;
            let mut resolver = file::Resolver { context, session };
            file::respond(&mut resolver, &narinfo, path, request)?
        }
        Route::Browse(query) => browse::respond(context, query, session)?,
        Route::Log(query) => log::respond(context, query, request, session)?,
        Route::Realisation(id) => {
            context.narinfos.refresh(session)?;
            realisation::respond(context, session.store.realisation(id)?)
        }
        Route::Pin(name) => pin::respond(context, name, request.if_none_match.as_deref()),
        Route::PinsInfo => pin::respond_info(context, request.if_none_match.as_deref()),
        // The network thread responds to these, or the worker by itself.
        Route::Root
        | Route::CachedNar(_)
        | Route::CacheInfo
        | Route::Health
        | Route::Ready
        | Route::Version
        | Route::Metrics
        | Route::Redirect
        | Route::Unknown => no_such_path(),
    })
}

/// Looks a path up. In a network thread, the error of a busy database comes at once.
fn find(
    context: &Context,
    hash: HashPart,
    session: &mut StoreSession,
) -> Result<Arc<CachedNarInfo>, Failure> {
    Ok(find_noted(context, hash, session)?.0)
}

/// As [`find`], with whether the narinfo was in the cache.
fn find_noted(
    context: &Context,
    hash: HashPart,
    session: &mut StoreSession,
) -> Result<(Arc<CachedNarInfo>, CacheUse), Failure> {
    let found = context.narinfos.get(session, hash)?;
    Ok(found.ok_or_else(no_such_path)?)
}

/// The reason why a request does not get the response that it asks for.
enum Failure {
    /// This is to be responded instead.
    Refused(Response),
    Store(StoreError),
}

impl From<Response> for Failure {
    fn from(response: Response) -> Failure {
        Failure::Refused(response)
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Failure {
        Failure::Store(error)
    }
}

fn no_such_path() -> Response {
    Response::not_found("no such path\n")
}
