//! The options that limit what one client may use.

use floe_testkit::corpus;
use floe_testkit::http_client::{Client, narinfo_of};

use super::libc_nar;
use crate::server_process::ServerProcess;

/// Returns a figure of the server.
fn figure(serve: &ServerProcess, name: &str) -> String {
    let metrics = serve.connect_from(9).request("GET", "/metrics", "");
    let lines = metrics.text().lines().map(str::to_owned);
    let mut value = lines.filter_map(|line| line.strip_prefix(name).map(str::to_owned));
    value.next_back().unwrap_or_default().trim().to_owned()
}

#[test]
fn address_gets_as_many_connections_as_the_option_says() {
    let Some(corpus) = corpus("jq") else { return };
    let serve = ServerProcess::start(corpus.store(), &["--max-connections-per-address", "3"]);
    let mut open: Vec<Client> = (0..3).map(|_| serve.connect_from(2)).collect();
    for client in &mut open {
        assert_eq!(client.request("GET", "/", "").status, 200);
    }
    let refused = serve.connect_from(2).read_response(false).unwrap();
    assert_eq!(refused.status, 503);
    assert_eq!(refused.field("Retry-After"), Some("1"));
    assert_eq!(serve.connect_from(3).request("GET", "/", "").status, 200);
    let count = figure(&serve, "floe_http_refusals_total{reason=\"addressLimit\"}");
    assert_eq!(count, "1");
    serve.stop();
}

#[test]
fn connection_ends_after_its_last_request() {
    let Some(corpus) = corpus("jq") else { return };
    let serve = ServerProcess::start(corpus.store(), &["--max-requests-per-connection", "3"]);
    let target = narinfo_of(&corpus.root);
    let mut client = serve.connect();
    for expected in [None, None, Some("close")] {
        let response = client.request("GET", &target, "");
        assert_eq!(response.status, 200);
        assert_eq!(response.field("Connection"), expected);
    }
    assert_eq!(client.read_rest(), b"");
    serve.stop();
}

#[test]
fn head_may_be_as_long_as_the_option_says() {
    let Some(corpus) = corpus("jq") else { return };
    for (option, accepted, rejected) in [("2K", 1500, 2500), ("40K", 39_000, 42_000)] {
        let serve = ServerProcess::start(corpus.store(), &["--max-header-size", option]);
        for (len, status) in [(accepted, 200), (rejected, 431)] {
            let field = format!("X: {}\r\n", "x".repeat(len));
            let mut client = serve.connect();
            // A server that closes with unread data may reset the connection, after its response.
            let response = client.try_request("GET", "/", &field);
            let found = response.map_or(431, |response| response.status);
            assert_eq!(found, status, "{option} {len}");
        }
        serve.stop();
    }
}

#[test]
fn nar_is_sent_uncompressed_if_all_encoders_are_in_use() {
    let Some(corpus) = corpus("jq") else { return };
    let args = ["--compress", "always", "--max-encoders", "1"];
    let serve = ServerProcess::start(corpus.store(), &args);
    let nar = libc_nar(&serve, &corpus);
    let accept = "Accept-Encoding: zstd\r\n";
    // A client that does not read keeps its encoder.
    let mut slow = serve.connect_from(2);
    slow.send(format!("GET {nar} HTTP/1.1\r\nHost: floe\r\n{accept}\r\n").as_bytes());
    let head = slow.read_head().unwrap();
    assert_eq!(head.field("Content-Encoding"), Some("zstd"));
    let other = serve.get_with(&nar, accept);
    assert_eq!((other.status, other.field("Content-Encoding")), (200, None));
    let count: f64 = figure(&serve, "floe_encoder_limit_total").parse().unwrap();
    assert!(count >= 1.0, "{count}");
    drop(slow);
    serve.stop();
}
