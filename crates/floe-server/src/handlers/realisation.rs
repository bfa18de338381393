//! What became of the outputs of content-addressed derivations: `/realisations/…` for Nix up to
//! 2.34, `/build-trace-v2/…` for newer ones. A store that has none answers 404, upon which Nix
//! goes on without.

use floe_format::StorePath;
use floe_store::StoreError;

use crate::caches::narinfo_cache::StoreSession;
use crate::http::response::Response;

/// By the hash of the derivation.
pub(crate) fn realisation(
    session: &StoreSession,
    drv_hash: &str,
    output: &str,
) -> Result<Option<Response>, StoreError> {
    let found = session.store.realisation(drv_hash, output)?;
    Ok(Some(answer(found.map(|found| found.to_json()))))
}

/// By the path of the derivation.
pub(crate) fn build_trace(
    session: &StoreSession,
    drv: &StorePath,
    output: &str,
) -> Result<Option<Response>, StoreError> {
    let found = session.store.build_trace(drv, output)?;
    Ok(Some(answer(found.map(|found| found.to_json()))))
}

fn answer(found: Option<serde_json::Value>) -> Response {
    match found {
        Some(value) => Response::text(200, FIELDS, value.to_string()),
        None => Response::not_found("no such realisation\n"),
    }
}

const FIELDS: &str = "Content-Type: application/json\r\nCache-Control: max-age=3600\r\n";
