//! Checks the properties of the fuzz targets with the committed corpus.

use floe_testkit::fuzz_corpus::check_files;

#[allow(unreachable_pub, reason = "the fuzz targets include the file as well")]
#[path = "../../../../fuzz/src/wire.rs"]
mod fuzz;

#[test]
fn bytes_of_a_daemon() {
    check_files("worker_client", fuzz::check_worker_client);
}

#[test]
fn bytes_of_a_client() {
    check_files("worker_server", fuzz::check_worker_server);
}

#[test]
fn bytes_of_a_client_of_ssh() {
    check_files("serve_server", fuzz::check_serve_server);
}
