//! The field `X-Forwarded-For`.

use floe_testkit::http_client::{Client, narinfo_of};
use floe_testkit::{corpus, nginx, run, scratch};

use super::LoggedServer;
use crate::serve_logins::{Logins, bearer};
use crate::serve_options::serve;

/// A field with an address that a client has invented.
const INVENTED: &str = "X-Forwarded-For: 203.0.113.66\r\n";

#[test]
fn log_has_the_client_that_nginx_names() {
    let Some(corpus) = corpus("jq") else { return };
    let scratch = scratch();
    let proxies = ["--trusted-proxy", "127.0.0.1"];
    let server = LoggedServer::start(&corpus, &scratch, &proxies);
    let location = format!(
        "location / {{ proxy_pass {}; \
         proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for; }}",
        server.server.url()
    );
    let Some(nginx) = nginx(scratch.path(), &location) else {
        return;
    };
    let narinfo = narinfo_of(&corpus.root);
    let proxy = format!("127.0.0.1:{}", nginx.port(0));
    for (last, address) in [(9, &proxy), (5, &server.address())] {
        let mut client = Client::connect_from([127, 0, 0, last].into(), address);
        assert_eq!(client.request("GET", &narinfo, INVENTED).status, 200);
        // A worker responds to this one.
        let listing = narinfo.replace(".narinfo", ".ls");
        assert_eq!(client.request("GET", &listing, INVENTED).status, 200);
    }
    // The second client is not a proxy, so its field is not believed.
    let mut logged = server.logged(4, "remoteAddress");
    logged.sort();
    let expected = ["127.0.0.5", "127.0.0.5", "127.0.0.9", "127.0.0.9"];
    assert_eq!(logged, expected);
    assert_eq!(server.server.stop(), "");
}

#[test]
fn client_of_one_request_is_not_that_of_the_next() {
    let Some(corpus) = corpus("jq") else { return };
    let scratch = scratch();
    let proxies = ["--trusted-proxy", "127.0.0.0/8"];
    let server = LoggedServer::start(&corpus, &scratch, &proxies);
    let mut proxy = server.server.connect();
    for field in [
        "X-Forwarded-For: 198.51.100.1\r\n",
        "",
        "X-Forwarded-For: [2001:db8::1]:4711\r\n",
        "X-Forwarded-For: 198.51.100.1\r\nX-Forwarded-For: 198.51.100.2, 127.0.0.3\r\n",
        "X-Forwarded-For: nonsense\r\n",
    ] {
        assert_eq!(proxy.request("GET", "/nix-cache-info", field).status, 200);
    }
    proxy.send(b"GET / HTTP/1.1\r\nHost: h\r\nX-Forwarded-For: \xff, 198.51.100.3\r\n\r\n");
    assert_eq!(proxy.read_response(false).unwrap().status, 200);
    proxy.send(b"GET /\x01\r\n\r\n");
    assert_eq!(proxy.read_response(false).unwrap().status, 400);
    let expected = [
        "198.51.100.1",
        "127.0.0.1",
        "2001:db8::1",
        "198.51.100.2",
        "127.0.0.1",
        "198.51.100.3",
        "127.0.0.1",
    ];
    assert_eq!(server.logged(7, "remoteAddress"), expected);
}

#[test]
fn limit_of_one_address_does_not_apply_to_a_proxy() {
    let Some(corpus) = corpus("jq") else { return };
    let scratch = scratch();
    let args = ["--max-connections-per-address", "2"];
    let args = [&args[..], &["--trusted-proxy", "127.0.0.2"]].concat();
    let server = LoggedServer::start(&corpus, &scratch, &args);
    let statuses = |last| {
        let mut open = Vec::new();
        let statuses = (0..4).map(|_| {
            let mut client = server.server.connect_from(last);
            let status = client.request("GET", "/nix-cache-info", "").status;
            open.push(client);
            status
        });
        statuses.collect::<Vec<u16>>()
    };
    assert_eq!(statuses(2), [200; 4]);
    assert_eq!(statuses(3), [200, 200, 503, 503]);
}

#[test]
fn proxy_that_is_no_address_is_a_usage_error() {
    for proxy in ["proxy.example", "10.0.0.0/33", ""] {
        run(&mut serve(&["serve", "--check", "--trusted-proxy", proxy]))
            .expect(2)
            .stderr_contains("--trusted-proxy")
            .stderr_contains("10.0.0.0/8");
    }
}

#[test]
fn failed_logins_count_for_each_client_of_a_proxy() {
    let Some(corpus) = corpus("jq") else { return };
    let scratch = scratch();
    let logins = Logins::new(&scratch);
    let statuses = |proxies: &[&str]| {
        let server = logins.serve(&corpus, proxies);
        let attempt = |client: &str, login: &str| {
            let fields = format!("X-Forwarded-For: {client}\r\n{login}");
            server.get_with("/nix-cache-info", &fields).status
        };
        let wrong = bearer("floe_wrong");
        for _ in 0..20 {
            attempt("198.51.100.1", &wrong);
        }
        ["198.51.100.1", "198.51.100.2"].map(|client| attempt(client, &wrong))
    };
    assert_eq!(statuses(&["--trusted-proxy", "127.0.0.1"]), [429, 401]);
    // Without a trusted proxy, both clients have the same address.
    assert_eq!(statuses(&[]), [429, 429]);
}
