//! Servers that are away for some seconds, or refuse requests as too many: the command waits for
//! them and succeeds, and sends few requests meanwhile.

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

use floe_testkit::fault_proxy::{FaultProxy, ProxyFault};
use floe_testkit::fault_server::FaultServer;
use floe_testkit::{
    CommandOutput, Corpus, corpus, free_ports, hide_nix_conf, nginx, run, s3_server, scratch,
};
use parking_lot::Mutex;

use crate::push::{floe_with_keys, source_root};
use crate::support::floe;

/// Starts a proxy whose server is away for a time, which begins with its tenth request.
fn away(server: SocketAddr, fault: ProxyFault, time: Duration) -> FaultProxy {
    let since = OnceLock::new();
    FaultProxy::start(server, move |number, _| {
        let is_away = number >= FIRST_REFUSED && since.get_or_init(Instant::now).elapsed() < time;
        if is_away {
            fault.clone()
        } else {
            ProxyFault::None
        }
    })
}

fn install(corpus: &Corpus, from: &str) -> Command {
    let mut command = floe(["install", "--no-check-sigs", "--from", from]);
    command.arg(&corpus.root);
    command
}

/// Asserts that a command has waited for its server with few requests.
#[track_caller]
fn assert_waited(output: &CommandOutput, proxy: &FaultProxy, away: &str) {
    assert_eq!(output.code, Some(0), "{away}: {}", output.stderr);
    let refused = proxy.fault_count();
    assert!(refused > 0, "{away}: no request was refused");
    assert!(refused <= REFUSED_MAX, "{away}: {refused} were refused");
    assert!(
        output.stderr.contains("retrying"),
        "{away}: {}",
        output.stderr
    );
}

#[test]
fn install_outlasts_servers_that_are_away() {
    let Some(corpus) = corpus("curl") else { return };
    let Some(server) = nginx(&corpus.cache("zstd"), "") else {
        return;
    };
    let address = SocketAddr::from(([127, 0, 0, 1], server.port(0)));
    let install_through = |fault: ProxyFault| {
        let proxy = away(address, fault.clone(), AWAY);
        let scratch = scratch();
        let mut command = install(&corpus, &proxy.url());
        let output = run(command.arg("--root").arg(scratch.join("root")));
        assert_waited(&output, &proxy, &format!("{fault:?}"));
    };
    thread::scope(|scope| {
        for status in [500, 502, 503, 504] {
            scope.spawn(move || install_through(ProxyFault::StatusBefore(status)));
        }
        scope.spawn(|| install_through(ProxyFault::CutRequest(1)));
        scope.spawn(|| install_through(ProxyFault::CutResponse(1)));
    });
}

/// The replies to earlier requests come after the first failure, and must not blame its object.
#[test]
fn outage_that_begins_beside_late_replies_is_outlasted() {
    let Some(corpus) = corpus("curl") else { return };
    let Some(server) = nginx(&corpus.cache("zstd"), "") else {
        return;
    };
    let since = OnceLock::new();
    let proxy = FaultProxy::start(server.address(), move |number, _| {
        if number < FIRST_REFUSED {
            return ProxyFault::Slow(LATE);
        }
        if since.get_or_init(Instant::now).elapsed() < LONG_AWAY {
            ProxyFault::StatusBefore(504)
        } else {
            ProxyFault::None
        }
    });
    let scratch = scratch();
    let mut command = install(&corpus, &proxy.url());
    let output = run(command.arg("--root").arg(scratch.join("root"))).expect(0);
    assert!(proxy.fault_count() > FIRST_REFUSED, "{}", output.stderr);
}

#[test]
fn push_outlasts_servers_that_are_away() {
    let Some(corpus) = corpus("curl") else { return };
    let push_through = |fault: ProxyFault| {
        let Some(server) = s3_server("team") else {
            return;
        };
        let proxy = away(server.address(), fault.clone(), AWAY);
        let to = format!("s3://team?endpoint={}", proxy.url());
        let root = source_root(&corpus);
        let args = ["push", "--to", &to, "--root", &root, &corpus.root];
        let output = run(&mut floe_with_keys(&server, &args));
        assert_waited(&output, &proxy, &format!("{fault:?}"));
    };
    thread::scope(|scope| {
        for status in [500, 502, 503, 504] {
            scope.spawn(move || push_through(ProxyFault::StatusBefore(status)));
        }
        scope.spawn(|| push_through(ProxyFault::CutResponse(1)));
    });
}

/// The server listens only after floe has tried to connect.
#[test]
fn install_waits_for_a_server_that_starts() {
    let Some(corpus) = corpus("jq") else {
        return;
    };
    let [port] = free_ports();
    let scratch = scratch();
    let mut command = install(&corpus, &format!("http://127.0.0.1:{port}"));
    command.arg("--root").arg(scratch.join("root"));
    hide_nix_conf(&mut command);
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let refused = lines.find(|line| line.as_ref().unwrap().contains("Connection refused"));
    assert!(refused.is_some(), "floe has not tried to connect");
    let server = FaultServer::start_at(&corpus.cache("zstd"), port);
    let rest: Vec<_> = lines.map(Result::unwrap).collect();
    assert!(child.wait().unwrap().success(), "{rest:?}");
    assert!(server.requests_for(".narinfo").len() >= corpus.paths.len());
}

/// A server that takes a number of writes in each window of time, and does not say when to return.
#[test]
fn push_slows_down_for_a_server_with_a_limit() {
    let Some(corpus) = corpus("curl") else { return };
    let Some(server) = s3_server("team") else {
        return;
    };
    let window = Mutex::new((Instant::now(), 0));
    let proxy = FaultProxy::start(server.address(), move |_, line| {
        if !line.starts_with("PUT") {
            return ProxyFault::None;
        }
        let mut window = window.lock();
        if window.0.elapsed() > WINDOW {
            *window = (Instant::now(), 0);
        }
        window.1 += 1;
        if window.1 > WRITES_PER_WINDOW {
            ProxyFault::StatusBefore(429)
        } else {
            ProxyFault::None
        }
    });
    let to = format!(
        "s3://team?endpoint={}&retry-delay-rate-limited=500",
        proxy.url()
    );
    let root = source_root(&corpus);
    let args = ["push", "--to", &to, "--root", &root, &corpus.root];
    let output = run(&mut floe_with_keys(&server, &args));
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    let (refused, requests) = (proxy.fault_count(), proxy.request_count());
    assert!(refused > 0, "the limit was not reached");
    assert!(
        refused * 2 < requests,
        "{refused} of {requests} were refused"
    );
}

/// The first request that a proxy refuses.
const FIRST_REFUSED: usize = 10;

/// How long a server is away: longer than Nix's five attempts take.
const AWAY: Duration = Duration::from_secs(5);

/// The requests in flight when the outage begins, and probes: some in the first second, and then
/// two in each, as their pauses are random.
const REFUSED_MAX: usize = 60;

/// Longer than a request goes on for an object that alone fails.
const LONG_AWAY: Duration = Duration::from_secs(8);

/// So late that replies come after the first failure.
const LATE: Duration = Duration::from_millis(100);

const WINDOW: Duration = Duration::from_secs(2);

const WRITES_PER_WINDOW: usize = 25;
