//! The fuzz targets' properties, checked for the committed corpus.

use floe_testkit::fuzz_corpus::check_files;

#[allow(unreachable_pub, reason = "the fuzz targets include the file too")]
#[path = "../../../fuzz/src/server.rs"]
mod server;

#[allow(unreachable_pub, reason = "the fuzz targets include the file too")]
#[path = "../../../fuzz/src/tls.rs"]
mod tls;

/// Checks every prefix of every file of a target's corpus.
fn check_prefixes(target: &str, check: fn(&[u8])) {
    check_files(target, |bytes| {
        for len in 0..=bytes.len() {
            check(&bytes[..len]);
        }
    });
}

#[test]
fn http_request_corpus_holds_its_properties() {
    check_prefixes("http_request", server::check_http_request);
}

#[test]
fn request_body_corpus_holds_its_properties() {
    check_prefixes("request_body", server::check_request_body);
}

#[test]
fn login_file_corpus_holds_its_properties() {
    check_prefixes("login_file", server::check_login_file);
}

#[test]
fn http_range_corpus_holds_its_properties() {
    check_prefixes("http_range", server::check_http_range);
}

#[test]
fn proxy_header_corpus_holds_its_properties() {
    check_prefixes("proxy_header", server::check_proxy_header);
}

#[test]
fn tls_handshake_corpus_holds_its_properties() {
    check_files("tls_handshake", tls::check_handshake);
}

#[test]
fn tls_request_corpus_holds_its_properties() {
    check_files("tls_request", tls::check_request);
}
