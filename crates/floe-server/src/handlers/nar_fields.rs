//! The header fields of NARs.

use std::sync::atomic::Ordering;

use crate::config::Compress;
use crate::context::Context;
use crate::deferred::NarTarget;

/// Returns the header fields of a NAR that is not compressed, after that of its type.
pub(super) fn fields(context: &Context, nar: &NarTarget, content_type: &str) -> String {
    let mut fields = String::with_capacity(FIELDS_LEN_TYPICAL);
    fields.push_str(content_type);
    fields.push_str(cache_control(context, nar));
    if context.compress != Compress::Off {
        fields.push_str("Vary: Accept-Encoding\r\n");
    }
    fields.push_str("Accept-Ranges: bytes\r\nETag: ");
    fields.push_str(&nar.narinfo.nar_etag);
    fields.push_str("\r\n");
    fields
}

/// Returns how long a client may keep a NAR. With logins, `public` would let a shared cache keep it
/// for every client.
pub(super) fn cache_control(context: &Context, nar: &NarTarget) -> &'static str {
    let needs_login = context.needs_login.load(Ordering::Relaxed);
    match (nar.is_immutable, needs_login) {
        (true, false) => "Cache-Control: public, max-age=31536000, immutable\r\n",
        (true, true) => "Cache-Control: max-age=31536000, immutable\r\n",
        (false, _) => "Cache-Control: max-age=3600\r\n",
    }
}

pub(super) const NAR_TYPE: &str = "Content-Type: application/x-nix-nar\r\n";

/// Enough for all fields, so that they are put together in one allocation.
const FIELDS_LEN_TYPICAL: usize = 256;
