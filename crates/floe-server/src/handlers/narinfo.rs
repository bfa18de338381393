//! `/HASH.narinfo`

use serde_json::{Map, Value};

use crate::body::text::Text;
use crate::caches::narinfo_cache::CachedNarInfo;
use crate::context::Context;
use crate::http::response::{Response, etag_matches};

/// The narinfo as Nix reads it.
pub(crate) fn text(entry: &CachedNarInfo, if_none_match: Option<&str>) -> Response {
    let fields = Text::Shared(entry.fields.clone());
    match etag_matches(if_none_match, &entry.etag) {
        true => Response::not_modified(fields),
        false => Response::text(200, fields, entry.text.clone()),
    }
}

/// The narinfo as `nix path-info --json` prints it: an object with the path as its only key.
pub(crate) fn json(context: &Context, entry: &CachedNarInfo) -> Response {
    let dir = &context.layout.store_dir;
    let mut object = Map::new();
    let narinfo = floe_format::NarInfo::parse(entry.text.as_bytes(), dir);
    let value = narinfo.map_or(Value::Null, |narinfo| narinfo.to_json(dir));
    object.insert(dir.full_path(&entry.info.path), value);
    let mut text = Value::Object(object).to_string();
    text.push('\n');
    Response::text(200, JSON_FIELDS, text)
}

const JSON_FIELDS: &str = "Content-Type: application/json\r\nCache-Control: max-age=3600\r\n";
