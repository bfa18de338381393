//! The objects of the cache that the server has received.

use std::fs::File;
use std::os::unix::fs::MetadataExt as _;

use super::range_response::{Version, applicable_range, file_response};
use crate::context::Context;
use crate::deferred::DeferredRequest;
use crate::http::response::{Response, etag_matches};
use crate::http::route::{LogQuery, Route};
use crate::receive::{Object, stated_hash};

/// Returns the object that a route names, if it is one that a server may receive.
pub(crate) fn object_of(route: &Route) -> Option<Object> {
    Some(match route {
        Route::NarInfo { hash, json: false } => Object::NarInfo(*hash),
        Route::CachedNar(name) => Object::Nar(name.clone()),
        Route::Listing(hash) => Object::Listing(*hash),
        Route::Log(LogQuery::Path(path)) => Object::Log(path.clone()),
        Route::Realisation(id) => Object::Realisation(id.clone()),
        Route::Pin(name) if !name.is_empty() => Object::Pin(name.clone()),
        Route::PinsInfo => Object::PinsInfo,
        _ => return None,
    })
}

/// Responds with an object; `None` if it was not received.
pub(crate) fn respond(
    context: &Context,
    object: &Object,
    request: &DeferredRequest,
) -> Option<Response> {
    let receiver = context.receiver.as_ref()?;
    let found = receiver.open(object).and_then(|file| match file {
        None => Ok(None),
        Some(file) => Ok(Some(file_of(file, object, request)?)),
    });
    found.unwrap_or_else(|error| {
        (context.warn)(&error.to_string());
        Some(Response::internal_error())
    })
}

fn file_of(
    file: File,
    object: &Object,
    request: &DeferredRequest,
) -> Result<Response, crate::receive::ReceiveError> {
    let found = file.metadata()?;
    // Another file has another number, also if it was written in the same moment.
    let etag = format!(
        "\"{:x}-{:x}-{:x}\"",
        found.ino(),
        found.mtime_nsec(),
        found.len()
    );
    let fields = format!("{}ETag: {etag}\r\n", caching(object));
    if etag_matches(request.if_none_match.as_deref(), &etag) {
        return Ok(Response::not_modified(fields));
    }
    let version = Version {
        fields,
        content_type: content_type(object),
        len: found.len(),
    };
    Ok(file_response(
        version,
        applicable_range(request, &etag),
        file,
    ))
}

/// Returns the fields that tell for how long a proxy may keep an object.
fn caching(object: &Object) -> &'static str {
    match object {
        // Such a name is a hash of the contents.
        Object::Nar(name) if stated_hash(name).is_some() => {
            "Accept-Ranges: bytes\r\nCache-Control: max-age=31536000, immutable\r\n"
        }
        _ => "Accept-Ranges: bytes\r\nCache-Control: no-cache\r\n",
    }
}

fn content_type(object: &Object) -> &'static str {
    match object {
        Object::NarInfo(_) => "Content-Type: text/x-nix-narinfo\r\n",
        Object::Nar(_) => "Content-Type: application/x-nix-nar\r\n",
        Object::Listing(_) | Object::Realisation(_) => "Content-Type: application/json\r\n",
        Object::Log(_) | Object::Pin(_) | Object::PinsInfo => {
            "Content-Type: text/plain; charset=utf-8\r\n"
        }
    }
}
