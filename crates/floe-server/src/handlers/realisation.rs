//! The outputs that content-addressed derivations have produced: `/realisations/…` for Nix up to
//! 2.34, `/build-trace-v2/…` for newer versions. If a store has none, the response is 404, and
//! Nix continues without it.

use serde_json::Value;

use crate::http::response::Response;

/// Responds with the realisation or the build trace of an output.
pub(crate) fn respond(found: Option<Value>) -> Response {
    match found {
        Some(value) => Response::text(200, FIELDS, value.to_string()),
        None => Response::not_found("no such realisation\n"),
    }
}

const FIELDS: &str = "Content-Type: application/json\r\nCache-Control: max-age=3600\r\n";
