//! `/HASH.narinfo`: the metadata of a path.

use serde_json::{Map, Value};

use crate::body::text::Text;
use crate::caches::narinfo_cache::CachedNarInfo;
use crate::context::Context;
use crate::http::response::{Response, etag_matches};

/// Responds with the narinfo as Nix reads it.
pub(crate) fn respond(narinfo: &CachedNarInfo, if_none_match: Option<&str>) -> Response {
    let fields = Text::Shared(narinfo.fields.clone());
    if etag_matches(if_none_match, &narinfo.etag) {
        Response::not_modified(fields)
    } else {
        Response::text(200, fields, narinfo.text.clone())
    }
}

/// Responds with the narinfo as `nix path-info --json` prints it: an object with the path as its
/// only key.
pub(crate) fn respond_json(context: &Context, narinfo: &CachedNarInfo) -> Response {
    let dir = &context.layout.store_dir;
    let mut object = Map::new();
    let narinfo = context.narinfos.narinfo(narinfo.hash, &narinfo.info);
    object.insert(dir.full_path(&narinfo.info.path), narinfo.to_json(dir));
    let mut text = Value::Object(object).to_string();
    text.push('\n');
    Response::text(200, JSON_FIELDS, text)
}

const JSON_FIELDS: &str = "Content-Type: application/json\r\nCache-Control: max-age=3600\r\n";
