//! The outputs that content-addressed derivations have produced: `/realisations/…` for Nix up to
//! 2.34, `/build-trace-v2/…` for newer versions. If a store has none, the response is 404, and
//! Nix continues without it.

use floe_format::StorePath;
use floe_store::StoreError;

use crate::caches::narinfo_cache::StoreSession;
use crate::http::response::Response;

/// Responds with the realisation of an output, by the hash of its derivation.
pub(crate) fn respond(
    session: &StoreSession,
    drv_hash: &str,
    output: &str,
) -> Result<Response, StoreError> {
    let found = session.store.realisation(drv_hash, output)?;
    Ok(json_or_404(found.map(|found| found.to_json())))
}

/// Responds with the build trace of an output, by the path of its derivation.
pub(crate) fn respond_build_trace(
    session: &StoreSession,
    drv: &StorePath,
    output: &str,
) -> Result<Response, StoreError> {
    let found = session.store.build_trace(drv, output)?;
    Ok(json_or_404(found.map(|found| found.to_json())))
}

fn json_or_404(found: Option<serde_json::Value>) -> Response {
    match found {
        Some(value) => Response::text(200, FIELDS, value.to_string()),
        None => Response::not_found("no such realisation\n"),
    }
}

const FIELDS: &str = "Content-Type: application/json\r\nCache-Control: max-age=3600\r\n";
