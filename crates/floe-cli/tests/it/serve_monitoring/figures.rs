//! The figures of a scrape, compared with the requests that were made.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Instant;

use floe_testkit::http_client::{Client, Response, hash_part, narinfo_of};
use floe_testkit::{TIMEOUT, corpus, find_tool, nixes, scratch, wait_until};

use super::scrape::Scrape;
use crate::serve_concurrent_nix::NixStore;
use crate::server_process::ServerProcess;

/// A server with the figures that it must have, except those of scrapes.
struct CountedServer {
    serve: ServerProcess,
    /// By route and status.
    responses: BTreeMap<(&'static str, u16), f64>,
    /// The bytes of bodies by route.
    body_bytes: BTreeMap<&'static str, f64>,
    /// All bytes of responses, with those of scrapes.
    sent_bytes: f64,
    connections: f64,
}

impl CountedServer {
    fn new(serve: ServerProcess) -> CountedServer {
        CountedServer {
            serve,
            responses: BTreeMap::new(),
            body_bytes: BTreeMap::new(),
            sent_bytes: 0.0,
            connections: 0.0,
        }
    }

    /// Makes a request on a new connection.
    #[track_caller]
    fn request(&mut self, route: &'static str, method: &str, target: &str) -> Response {
        let response = self.serve.connect().request(method, target, "");
        self.note(route, &response);
        response
    }

    fn note(&mut self, route: &'static str, response: &Response) {
        let body = response.body.len() as f64;
        *self.responses.entry((route, response.status)).or_default() += 1.0;
        *self.body_bytes.entry(route).or_default() += body;
        self.sent_bytes += response.head.len() as f64 + body;
        self.connections += 1.0;
    }

    fn scrape(&mut self) -> Scrape {
        let response = self.serve.get("/metrics");
        self.sent_bytes += (response.head.len() + response.body.len()) as f64;
        self.connections += 1.0;
        Scrape::parse(response.text())
    }

    /// Scrapes until the last worker and the last closed connection are counted.
    #[track_caller]
    fn settled(&mut self) -> Scrape {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            let (expected, sent) = (self.responses.clone(), self.sent_bytes);
            let scrape = self.scrape();
            let is_complete = expected
                .iter()
                .all(|((route, status), count)| scrape.responses(route, *status) == *count);
            // The connection of the scrape itself.
            let are_closed = scrape.value("floe_connections_open") == 1.0;
            let all_sent = scrape.value("floe_connections_sent_bytes_total") == sent;
            if is_complete && are_closed && all_sent {
                return scrape;
            }
            assert!(
                Instant::now() < deadline,
                "{sent} {expected:?} {}",
                scrape.text
            );
        }
    }
}

#[test]
fn figures_equal_the_requests_that_were_made() {
    let Some(corpus) = corpus("jq") else { return };
    let cache = scratch();
    let dir = cache.join("compressed");
    let args = ["--compressed-cache", dir.to_str().unwrap()];
    let mut counted = CountedServer::new(ServerProcess::start(corpus.store(), &args));
    let (narinfo, hash) = (narinfo_of(&corpus.root), hash_part(&corpus.root));
    let nar = counted.request("narinfo", "GET", &narinfo);
    let nar = format!("/{}", nar.narinfo_field("URL"));
    counted.request("narinfo", "GET", &narinfo);
    counted.request("narinfo", "HEAD", &narinfo);
    counted.request("narinfo", "GET", &format!("{narinfo}?json"));
    let absent = "0".repeat(32);
    counted.request("narinfo", "GET", &format!("/{absent}.narinfo"));
    counted.request("narinfo", "DELETE", &narinfo);
    counted.request("nar", "GET", &nar);
    counted.request("nar", "HEAD", &nar);
    counted.request("nar", "GET", &format!("/nar/{absent}.nar"));
    counted.request("listing", "GET", &format!("/{hash}.ls"));
    counted.request("file", "GET", &format!("/serve/{hash}/bin"));
    counted.request("log", "GET", &format!("/log/{absent}"));
    let realisation = format!("/realisations/sha256:{}!out.doi", "0".repeat(64));
    counted.request("realisation", "GET", &realisation);
    counted.request("nix_cache_info", "GET", "/nix-cache-info");
    for target in ["/health", "/ready", "/version"] {
        counted.request("health", "GET", target);
    }
    counted.request("other", "GET", "/");
    counted.request("other", "GET", "/no/such/route");
    let garbage = counted.serve.exchange(b"\x16\x03\x01\r\n\r\n");
    let mut refused = Response {
        status: 400,
        head: String::from_utf8(garbage).unwrap(),
        body: Vec::new(),
    };
    let body_at = refused.head.find("\r\n\r\n").unwrap() + 4;
    refused.body = refused.head.split_off(body_at).into_bytes();
    counted.note("other", &refused);

    let connections = counted.connections;
    let scrape = counted.settled();
    for (sample, value) in &scrape.samples {
        let Some(labels) = sample.strip_prefix("floe_http_requests_total{route=\"") else {
            continue;
        };
        let (route, status) = labels.split_once("\",status=\"").unwrap();
        let status: u16 = status.trim_end_matches("\"}").parse().unwrap();
        let mut expected = counted.responses.iter();
        let expected = expected.find(|((name, code), _)| (*name, *code) == (route, status));
        if route != "metrics" {
            assert_eq!(
                *value,
                expected.map_or(0.0, |(_, count)| *count),
                "{sample}"
            );
        }
    }
    for (route, bytes) in &counted.body_bytes {
        let labels = format!("{{route=\"{route}\"}}");
        let sum = scrape.value(&format!("floe_http_response_body_bytes_total{labels}"));
        assert_eq!(sum, *bytes, "{route}");
        let all = counted
            .responses
            .iter()
            .filter(|((name, _), _)| name == route);
        let all: f64 = all.map(|(_, count)| count).sum();
        let durations = format!("floe_http_request_duration_seconds_count{labels}");
        assert_eq!(scrape.value(&durations), all, "{route}");
    }
    // The settled scrape is one of several.
    let scrapes = scrape.responses("metrics", 200) + 1.0;
    for (sample, expected) in [
        (
            "floe_connections_accepted_total{listener=\"tcp\"}",
            connections + scrapes,
        ),
        ("floe_connections_open", 1.0),
        ("floe_http_refusals_total{reason=\"methodNotAllowed\"}", 1.0),
        ("floe_http_refusals_total{reason=\"malformedHead\"}", 1.0),
        ("floe_http_refusals_total{reason=\"addressLimit\"}", 0.0),
        (
            "floe_cache_requests_total{cache=\"narinfo\",result=\"miss\"}",
            1.0,
        ),
        (
            "floe_cache_requests_total{cache=\"narinfo\",result=\"hit\"}",
            3.0,
        ),
        ("floe_worker_queue_length", 0.0),
        ("floe_login_failures_total", 0.0),
    ] {
        assert_eq!(scrape.value(sample), expected, "{sample}");
    }
}

#[test]
fn cache_hits_are_counted_by_kind() {
    let nix = &nixes()[0];
    let store = NixStore::new(nix, "");
    let small = store.add("small", b"a small file");
    let large = store.add("large", &b"a large file".repeat(20_000));
    let dir = store.scratch.join("compressed");
    let args = ["--compressed-cache", dir.to_str().unwrap()];
    let serve = ServerProcess::start(store.root(), &args);
    let nar = |path: &str| format!("/{}", serve.get(&narinfo_of(path)).narinfo_field("URL"));
    let (small, large) = (&nar(&small), &nar(&large));
    for _ in 0..3 {
        assert_eq!(serve.get(small).status, 200);
    }
    let mut misses = 0.0;
    wait_until("the NAR is not compressed", || {
        let response = serve.get_with(large, "Accept-Encoding: zstd\r\n");
        let is_compressed = response.field("Content-Encoding") == Some("zstd");
        misses += f64::from(u8::from(!is_compressed));
        is_compressed
    });
    assert!(misses > 0.0, "the first client waits for no compression");
    wait_until("the figures differ", || {
        let scrape = Scrape::parse(serve.get("/metrics").text());
        let uses = |cache: &str, result: &str| {
            let labels = format!("{{cache=\"{cache}\",result=\"{result}\"}}");
            scrape.value(&format!("floe_cache_requests_total{labels}"))
        };
        let kinds = ["nar", "compressed_nar"].map(|kind| [uses(kind, "hit"), uses(kind, "miss")]);
        kinds == [[2.0, 1.0], [1.0, misses]]
    });
}

#[test]
fn promtool_finds_no_fault_in_a_scrape() {
    let Some(promtool) = find_tool("promtool", "prometheus") else {
        return;
    };
    let Some(corpus) = corpus("jq") else { return };
    let serve = ServerProcess::start(corpus.store(), &[]);
    serve.get(&narinfo_of(&corpus.root));
    serve.get("/no/such/route");
    let text = serve.get("/metrics");
    let mut check = Command::new(promtool)
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    check.stdin.take().unwrap().write_all(&text.body).unwrap();
    let checked = check.wait_with_output().unwrap();
    let output = [checked.stdout, checked.stderr].concat();
    assert!(
        checked.status.success(),
        "{}",
        String::from_utf8_lossy(&output)
    );
    assert_eq!(String::from_utf8_lossy(&output), "");
}

#[test]
fn server_with_200_busy_connections_is_scraped() {
    let Some(corpus) = corpus("jq") else { return };
    let serve = ServerProcess::start(corpus.store(), &[]);
    let narinfo = narinfo_of(&corpus.root);
    let nar = format!("/{}", serve.get(&narinfo).narinfo_field("URL"));
    let largest = corpus
        .paths
        .iter()
        .find(|path| path.contains("-libc6-"))
        .unwrap();
    let large = serve.get(&narinfo_of(largest));
    let large = format!("/{}", large.narinfo_field("URL"));
    // These clients leave a part of the NAR unread.
    let mut slow: Vec<Client> = (0..100).map(|_| serve.connect()).collect();
    for client in &mut slow {
        client.send(format!("GET {large} HTTP/1.1\r\nHost: floe\r\n\r\n").as_bytes());
        assert_eq!(client.read_head().unwrap().status, 200);
    }
    let scrapes = thread::scope(|scope| {
        for _ in 0..100 {
            scope.spawn(|| {
                let mut client = serve.connect();
                for target in [&narinfo, &nar].into_iter().cycle().take(2 * ROUNDS) {
                    assert_eq!(client.request("GET", target, "").status, 200);
                }
            });
        }
        let scrape = || Scrape::parse(serve.get("/metrics").text());
        (0..10).map(|_| scrape()).collect::<Vec<Scrape>>()
    });
    let counts: Vec<f64> = scrapes
        .iter()
        .map(|scrape| scrape.responses("narinfo", 200))
        .collect();
    assert!(counts.is_sorted(), "a counter has decreased: {counts:?}");
    for scrape in &scrapes {
        let open = scrape.value("floe_connections_open");
        // The server may not have noticed yet that earlier connections have closed.
        assert!((101.0..=220.0).contains(&open), "{open}");
    }
    wait_until("requests are missing", || {
        let scrape = Scrape::parse(serve.get("/metrics").text());
        let requests = (100 * ROUNDS) as f64;
        scrape.responses("narinfo", 200) == requests + 2.0
            && scrape.responses("nar", 200) == requests + 100.0
            && scrape.value("floe_connections_open") == 101.0
    });
}

/// How often each busy client requests a narinfo and a NAR.
const ROUNDS: usize = 50;
