//! `--metrics-listen`.

use std::process::Command;

use floe_testkit::http_client::{Client, Response, narinfo_of};
use floe_testkit::{Corpus, corpus, run, wait_until};
use serde_json::Value;

use super::scrape::Scrape;
use crate::serve_options::serve;
use crate::server_process::ServerProcess;

/// Returns the address on which a server serves its metrics.
#[track_caller]
fn metrics_address(serve: &ServerProcess) -> String {
    let address = || {
        let stderr = serve.stderr();
        let mut lines = stderr.lines();
        let line = lines.find_map(|line| line.strip_prefix("serving metrics on http://"));
        line.map(str::to_owned)
    };
    wait_until("the address is not announced", || address().is_some());
    address().unwrap()
}

fn start(corpus: &Corpus, args: &[&str]) -> ServerProcess {
    let listen = ["--metrics-listen", "127.0.0.1:0"];
    ServerProcess::start(corpus.store(), &[&listen, args].concat())
}

fn get(address: &str, target: &str) -> Response {
    Client::connect(address).request("GET", target, "")
}

#[test]
fn metrics_listener_serves_only_monitoring() {
    let Some(corpus) = corpus("jq") else { return };
    let serve = start(&corpus, &[]);
    let monitoring = metrics_address(&serve);
    let narinfo = narinfo_of(&corpus.root);
    for (target, main, other) in [
        ("/metrics", 404, 200),
        ("/health", 200, 200),
        ("/ready", 200, 200),
        ("/version", 200, 200),
        ("/nix-cache-info", 200, 404),
        ("/", 200, 404),
        (&narinfo, 200, 404),
    ] {
        assert_eq!(serve.get(target).status, main, "{target}");
        assert_eq!(get(&monitoring, target).status, other, "{target}");
    }
    let scrape = Scrape::parse(get(&monitoring, "/metrics").text());
    let accepted = |kind: &str| {
        let labels = format!("{{listener=\"{kind}\"}}");
        scrape.value(&format!("floe_connections_accepted_total{labels}"))
    };
    assert_eq!([accepted("tcp"), accepted("monitoring")], [7.0, 8.0]);
}

#[test]
fn full_server_is_still_scraped_on_its_own_listener() {
    let Some(corpus) = corpus("jq") else { return };
    let serve = start(&corpus, &["--max-connections", "2"]);
    let monitoring = metrics_address(&serve);
    let mut clients = [serve.connect(), serve.connect()];
    for client in &mut clients {
        assert_eq!(client.request("GET", "/health", "").status, 200);
    }
    // This client waits in the backlog, and makes the network threads notice that there is no room.
    let _waiting = serve.connect();
    for _ in 0..5 {
        let scrape = Scrape::parse(get(&monitoring, "/metrics").text());
        assert!(scrape.value("floe_connections_open") >= 3.0);
        assert_eq!(scrape.value("floe_connections_max"), 2.0);
    }
    drop(clients);
    // The server needs a moment to see that they have gone.
    wait_until("there is room again", || serve.get("/health").status == 200);
}

#[test]
fn metrics_listener_is_announced_and_checked() {
    let Some(corpus) = corpus("jq") else { return };
    let mut check = serve(&["serve", "--check", "--listen", "127.0.0.1:0", "--store"]);
    check
        .arg(corpus.store())
        .args(["--metrics-listen", "127.0.0.1:0"]);
    let checked = run(&mut check).expect(0).stdout;
    let line = checked.lines().last().unwrap();
    assert!(
        line.starts_with("metrics-listen http://127.0.0.1:"),
        "{checked}"
    );
    let mut taken = serve(&["serve", "--listen", "127.0.0.1:0", "--store"]);
    let busy = start(&corpus, &[]);
    let address = metrics_address(&busy);
    let taken: &mut Command = taken
        .arg(corpus.store())
        .args(["--metrics-listen", &address]);
    run(taken).expect(1).stderr_contains(&address);
}

#[test]
fn json_event_names_the_address_of_metrics() {
    let Some(corpus) = corpus("jq") else { return };
    let mut command = serve(&["serve", "--listen", "127.0.0.1:0", "--store"]);
    command.arg(corpus.store());
    command.args(["--metrics-listen", "127.0.0.1:0", "--log-format", "json"]);
    let mut child = command
        .stdin(std::process::Stdio::null())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let stderr = child.stderr.take().unwrap();
    let lines = std::io::BufRead::lines(std::io::BufReader::new(stderr));
    let events: Vec<Value> = lines
        .take(2)
        .map(|line| serde_json::from_str(&line.unwrap()).unwrap())
        .collect();
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(events[0]["event"], "listening");
    assert_eq!(events[1]["event"], "servingMetrics");
    let url = events[1]["url"].as_str().unwrap();
    assert!(url.starts_with("http://127.0.0.1:"), "{url}");
}
