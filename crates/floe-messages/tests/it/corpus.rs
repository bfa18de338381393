//! Checks the properties of the fuzz targets with the committed corpus.

use floe_testkit::fuzz_corpus::check_files;

#[allow(unreachable_pub, reason = "the fuzz targets include the file as well")]
#[path = "../../../../fuzz/src/messages.rs"]
mod fuzz;

#[test]
fn messages_in_cbor() {
    check_files("messages_cbor", fuzz::check_messages_cbor);
}

#[test]
fn messages_in_flat() {
    check_files("messages_flat", fuzz::check_messages_flat);
}
