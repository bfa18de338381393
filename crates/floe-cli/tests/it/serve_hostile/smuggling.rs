//! Requests in which a proxy and the server might find different ends, so that a second request
//! hides in the body of the first one. Directly, and behind nginx.

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::time::Duration;

use floe_testkit::http_client::Client;
use floe_testkit::{corpus, nginx, scratch, wait_until};

use crate::server_process::ServerProcess;

const HIDDEN: &str = "GET /hidden HTTP/1.1\r\nHost: h\r\n\r\n";

/// Fields that announce a body in an ambiguous or invalid way. `LEN` is the length of the body.
const FIELDS: [&str; 18] = [
    "Content-Length: LEN\r\nContent-Length: 0",
    "Content-Length: 0\r\nContent-Length: LEN",
    "Content-Length: +LEN",
    "Content-Length: -LEN",
    "Content-Length: LEN, LEN",
    "Content-Length: 0xLEN",
    "Content-Length: LEN\r\nTransfer-Encoding: chunked",
    "Transfer-Encoding: chunked\r\nContent-Length: LEN",
    "Transfer-Encoding: chunked",
    "Transfer-Encoding: xchunked",
    "Transfer-Encoding: chunked, identity",
    "Transfer-Encoding : chunked",
    "Transfer-Encoding:\r\n chunked",
    "Content-Length:\r\n LEN",
    "X: y\r\n Content-Length: LEN",
    "Content-Length: LEN\nX: y",
    "X: y\nTransfer-Encoding: chunked",
    "X: y\rContent-Length: LEN",
];

/// Returns a request for `/first` with each of the fields, and a hidden request as its body, with
/// and without the end of a chunked body before it.
fn requests() -> impl Iterator<Item = String> {
    FIELDS.iter().flat_map(|fields| {
        ["", "0\r\n\r\n"].map(|end| {
            let body = format!("{end}{HIDDEN}");
            let fields = fields.replace("LEN", &body.len().to_string());
            format!("GET /first HTTP/1.1\r\nHost: h\r\n{fields}\r\n\r\n{body}")
        })
    })
}

/// Sends a request, and reads until nothing more comes.
fn send(address: &str, request: &str) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(QUIET)).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    // The connection may be reset, because the server does not read the body.
    let _: io::Result<usize> = stream.read_to_end(&mut Vec::new());
}

/// A proxy may wait for the end of a body, and keeps its connections open.
const QUIET: Duration = Duration::from_millis(100);

fn logged(log: &Path, target: &str) -> usize {
    let log = fs::read_to_string(log).unwrap_or_default();
    log.matches(&format!("GET {target} HTTP")).count()
}

#[test]
fn hidden_request_is_never_served() {
    let Some(corpus) = corpus("jq") else { return };
    let scratch = scratch();
    let log = scratch.join("log");
    let args = ["--access-log", log.to_str().unwrap()];
    let serve = ServerProcess::start(corpus.store(), &args);
    let address = serve.url().replace("http://", "");
    let info = serve.get("/nix-cache-info").body;
    for request in requests() {
        send(&address, &request);
    }
    // Without a body before it, the same request is served.
    send(&address, &HIDDEN.replace("hidden", "visible"));
    wait_until("the last request is not logged", || {
        logged(&log, "/visible") == 1
    });
    assert_eq!(logged(&log, "/hidden"), 0, "directly");

    let settings = format!(
        "location / {{ proxy_pass http://{address}; proxy_http_version 1.1; \
         proxy_set_header Connection \"\"; }}"
    );
    let before = logged(&log, "/first");
    let Some(nginx) = nginx(scratch.path(), &settings) else {
        return;
    };
    let proxy = format!("127.0.0.1:{}", nginx.port(0));
    for request in requests() {
        send(&proxy, &request);
        // The next client of the proxy gets its own response.
        let mut next = Client::connect(&proxy);
        let response = next.request("GET", "/nix-cache-info", "");
        assert_eq!(
            (response.status, response.body),
            (200, info.clone()),
            "{request}"
        );
    }
    assert!(
        logged(&log, "/first") > before,
        "nginx has forwarded nothing"
    );
    // nginx finds the same ends as the server, so it rejects or separates the hidden requests.
    let seen = nginx.log().matches("GET /hidden HTTP").count();
    wait_until(
        "the server has served a request that nginx has not seen",
        || logged(&log, "/hidden") == seen,
    );
}
