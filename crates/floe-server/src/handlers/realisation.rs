//! The outputs that content-addressed derivations have produced: `/realisations/…` for Nix up to
//! 2.34, `/build-trace-v2/…` for newer versions. If a store has none, the response is 404, and
//! Nix continues without it.

use floe_format::Realisation;

use crate::context::Context;
use crate::http::response::Response;

/// Responds with the realisation of an output, with the signatures of the store and of this server.
pub(crate) fn respond(context: &Context, found: Option<Realisation>) -> Response {
    match found {
        Some(mut realisation) => {
            context.narinfos.sign_realisation(&mut realisation);
            Response::text(200, FIELDS, realisation.to_json().to_string())
        }
        None => Response::not_found("no such realisation\n"),
    }
}

const FIELDS: &str = "Content-Type: application/json\r\nCache-Control: max-age=3600\r\n";
