//! The PROXY protocol.

use floe_testkit::http_client::{Client, narinfo_of};
use floe_testkit::{
    Authority, Haproxy, corpus, find_tool, haproxy, nixes, run, scratch, wait_until,
};

use super::LoggedServer;
use crate::serve_clients::{assert_closure_valid, nix_trusting};
use crate::serve_options::serve;

/// Expects a header from HAProxy, and from no other address.
const BEHIND_HAPROXY: [&str; 3] = ["--trusted-proxy", "127.0.0.1", "--proxy-protocol"];

fn connect(proxy: &Haproxy, last: u8) -> Client {
    Client::connect_from([127, 0, 0, last].into(), &proxy.address())
}

#[test]
fn client_that_haproxy_names_is_logged_and_limited() {
    let Some(corpus) = corpus("jq") else { return };
    for version in ["send-proxy", "send-proxy-v2"] {
        let scratch = scratch();
        let limit = ["--max-connections-per-address", "2", "--threads", "1"];
        let args = [&BEHIND_HAPROXY[..], &limit].concat();
        let server = LoggedServer::start(&corpus, &scratch, &args);
        // The health checks of HAProxy connect for themselves.
        let options = format!("{version} check check-send-proxy inter 100ms");
        let Some(proxy) = haproxy(&server.address(), &options) else {
            return;
        };
        let info = |client: &mut Client| {
            let invented = "X-Forwarded-For: 203.0.113.66\r\n";
            client.request("GET", "/nix-cache-info", invented).status
        };
        let mut open: Vec<Client> = (0..2).map(|_| connect(&proxy, 9)).collect();
        assert_eq!(open.iter_mut().map(info).collect::<Vec<u16>>(), [200, 200]);
        assert_eq!(info(&mut connect(&proxy, 9)), 503, "{version}");
        assert_eq!(info(&mut connect(&proxy, 8)), 200, "{version}");
        // A client that connects without the proxy sends no header.
        assert_eq!(info(&mut server.server.connect_from(7)), 200, "{version}");
        let expected = [
            "127.0.0.9",
            "127.0.0.9",
            "127.0.0.9",
            "127.0.0.8",
            "127.0.0.7",
        ];
        assert_eq!(server.logged(5, "remoteAddress"), expected, "{version}");
        let reasons = server.logged(5, "reason");
        assert_eq!(reasons, ["-", "-", "addressLimit", "-", "-"]);
        drop(open);
        // The places of clients that are gone are free.
        wait_until("the address stays at its limit", || {
            info(&mut connect(&proxy, 9)) == 200
        });
        drop(proxy);
        server.server.stop();
    }
}

#[test]
fn nix_copies_over_tls_through_haproxy() {
    let Some(corpus) = corpus("jq") else { return };
    let Some(openssl) = find_tool("openssl", "openssl") else {
        return;
    };
    for nix in &nixes() {
        let scratch = scratch();
        let authority = Authority::create(&openssl, scratch.path(), "authority");
        let issued = authority.issue("server", "IP:127.0.0.1", 2);
        let tls = ["--tls-cert", &issued.certificate, "--tls-key", &issued.key];
        let args = [&BEHIND_HAPROXY[..], &tls].concat();
        let server = LoggedServer::start(&corpus, &scratch, &args);
        let Some(proxy) = haproxy(&server.address(), "send-proxy-v2") else {
            return;
        };
        let root = scratch.join("root");
        let url = format!("https://{}", proxy.address());
        let copy = ["copy", "--from", &url, &corpus.root, "--to"];
        let mut command = nix_trusting(nix, &corpus.key, "nix", &copy);
        let command = command.arg(&root);
        run(command.env("NIX_SSL_CERT_FILE", authority.certificate())).expect(0);
        assert_closure_valid(nix, &corpus, &root);
        let requests = 1 + 2 * corpus.paths.len();
        let clients = server.logged(requests, "remoteAddress");
        assert!(clients.iter().all(|client| client == "127.0.0.1"));
        server.server.stop();
    }
}

#[test]
fn connection_without_valid_header_is_closed_and_counted() {
    let Some(corpus) = corpus("jq") else { return };
    let scratch = scratch();
    let args = [&BEHIND_HAPROXY[..], &["--read-timeout", "1"]].concat();
    let server = LoggedServer::start(&corpus, &scratch, &args);
    let request = b"GET /nix-cache-info HTTP/1.1\r\nHost: h\r\n\r\n";
    for bytes in [
        &request[..],
        b"PROXY TCP4 198.51.100.7 nonsense 1 2\r\n",
        // The rest never comes.
        b"PROXY TCP4 198.51.100.7",
        b"\r\n\r\n\0\r\nQUIT\n\x21\x11\xff\xff",
    ] {
        assert_eq!(server.server.exchange(bytes), b"");
    }
    let count = 4;
    assert_eq!(server.logged(count, "reason"), ["proxyHeader"; 4]);
    // A header of an address that is not a proxy is not a request.
    let mut stranger = server.server.connect_from(5);
    stranger.send(b"PROXY TCP4 198.51.100.7 192.0.2.1 1 2\r\nGET / HTTP/1.0\r\n\r\n");
    assert_eq!(stranger.read_response(false).unwrap().status, 400);
    let metrics = server.server.connect_from(6).request("GET", "/metrics", "");
    let counted = "floe_http_refusals_total{reason=\"proxyHeader\"} 4";
    assert!(metrics.text().contains(counted), "{}", metrics.text());
}

#[test]
fn proxy_that_another_proxy_names_is_not_limited() {
    let Some(corpus) = corpus("jq") else { return };
    let scratch = scratch();
    let limit = ["--max-connections-per-address", "2", "--threads", "1"];
    let args = [
        &BEHIND_HAPROXY[..],
        &limit,
        &["--trusted-proxy", "10.0.0.0/8"],
    ]
    .concat();
    let server = LoggedServer::start(&corpus, &scratch, &args);
    let mut open = Vec::new();
    for (named, expected) in [("10.0.0.1", [200; 3]), ("192.0.2.1", [200, 200, 503])] {
        let statuses = expected.map(|_| {
            let mut proxy = server.server.connect();
            proxy.send(format!("PROXY TCP4 {named} 192.0.2.2 1 2\r\n").as_bytes());
            let field = "X-Forwarded-For: 198.51.100.1\r\n";
            let status = proxy.request("GET", "/nix-cache-info", field).status;
            open.push(proxy);
            status
        });
        assert_eq!(statuses, expected, "{named}");
    }
    let (proxied, direct) = (["198.51.100.1"; 3], ["192.0.2.1"; 3]);
    assert_eq!(
        server.logged(6, "remoteAddress"),
        [proxied, direct].concat()
    );
}

#[test]
fn field_is_not_believed_on_a_connection_without_a_named_client() {
    let Some(corpus) = corpus("jq") else { return };
    let scratch = scratch();
    let server = LoggedServer::start(&corpus, &scratch, &BEHIND_HAPROXY);
    let request = "GET / HTTP/1.1\r\nHost: h\r\nX-Forwarded-For: 203.0.113.66\r\n\r\n";
    let local = "\r\n\r\n\0\r\nQUIT\n\x20\0\0\0";
    for header in ["PROXY UNKNOWN\r\n", local] {
        let mut proxy = server.server.connect();
        proxy.send(format!("{header}{request}").as_bytes());
        assert_eq!(proxy.read_response(false).unwrap().status, 200);
    }
    assert_eq!(server.logged(2, "remoteAddress"), ["127.0.0.1"; 2]);
}

#[test]
fn header_and_requests_in_single_bytes_are_read() {
    let Some(corpus) = corpus("jq") else { return };
    let scratch = scratch();
    let server = LoggedServer::start(&corpus, &scratch, &BEHIND_HAPROXY);
    let mut proxy = server.server.connect();
    let header = "PROXY TCP6 2001:db8::7 2001:db8::1 4711 443\r\n";
    let head = format!(
        "GET {} HTTP/1.1\r\nHost: h\r\n\r\n",
        narinfo_of(&corpus.root)
    );
    for byte in format!("{header}{head}{head}").bytes() {
        proxy.send(&[byte]);
    }
    for _ in 0..2 {
        assert_eq!(proxy.read_response(false).unwrap().status, 200);
    }
    assert_eq!(server.logged(2, "remoteAddress"), ["2001:db8::7"; 2]);
}

#[test]
fn protocol_without_trusted_proxy_is_a_usage_error() {
    let Some(corpus) = corpus("jq") else { return };
    let mut command = serve(&["serve", "--check", "--proxy-protocol", "--store"]);
    run(command.arg(corpus.store()))
        .expect(2)
        .stderr_contains("--trusted-proxy");
}
