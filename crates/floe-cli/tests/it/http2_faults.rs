//! Faults of HTTP/2: connections and streams that the server ends or forgets.

use floe_testkit::http2_fault_server::{Http2Fault, Http2FaultServer, Reason};
use floe_testkit::{Certificates, create_certificates, find_tool, run};

use crate::faulty_cache::{FaultyCache, assert_verified, faulty_cache};
use crate::support::floe_with_time_limit;

struct Fixture {
    cache: FaultyCache,
    certificates: Certificates,
}

fn fixture() -> Option<Fixture> {
    let openssl = find_tool("openssl", "openssl")?;
    let cache = faulty_cache("zstd")?;
    let certificates = create_certificates(&openssl, cache.scratch.path());
    Some(Fixture {
        cache,
        certificates,
    })
}

impl Fixture {
    fn server(&self, requests_per_connection: usize) -> Http2FaultServer {
        let directory = &self.cache.cache;
        Http2FaultServer::start(directory, &self.certificates, requests_per_connection)
    }

    /// Installs the whole closure.
    fn install(&self, server: &Http2FaultServer) {
        let mut command = floe_with_time_limit(["install", "--from", &server.url(), "--root"]);
        command.arg(&self.cache.root);
        command.args(["--option", "filetransfer-retry-delay", "10"]);
        command.args(["--trusted-public-keys", &self.cache.corpus.key]);
        command.env("NIX_SSL_CERT_FILE", &self.certificates.authority);
        run(command.arg(&self.cache.corpus.root)).expect(0);
        assert!(server.connection_count() > 0, "floe did not use HTTP/2");
        assert_verified(&self.cache.root, self.cache.corpus.paths.len());
    }

    fn nar(&self, name: &str) -> String {
        let nar = self.cache.nar(&self.cache.path(name));
        nar.file_name().unwrap().to_str().unwrap().to_owned()
    }
}

#[test]
fn connections_that_end_after_each_request_are_replaced() {
    let Some(fixture) = fixture() else { return };
    let server = fixture.server(1);
    fixture.install(&server);
    let paths = fixture.cache.corpus.paths.len();
    assert!(server.connection_count() > paths);
}

#[test]
fn requests_of_connections_that_end_abruptly_are_sent_again() {
    let Some(fixture) = fixture() else { return };
    let server = fixture.server(usize::MAX);
    let nar = fixture.nar("libc6");
    for (name, reason) in [
        (".narinfo", Reason::NO_ERROR),
        (&nar, Reason::ENHANCE_YOUR_CALM),
    ] {
        server.fail_times(name, Http2Fault::GoAway(reason), 2);
    }
    fixture.install(&server);
    assert_eq!(server.fault_count(), 4);
}

#[test]
fn streams_that_the_server_resets_are_requested_again() {
    let Some(fixture) = fixture() else { return };
    let server = fixture.server(usize::MAX);
    server.fail_times(
        "nix-cache-info",
        Http2Fault::Reset(Reason::REFUSED_STREAM),
        2,
    );
    server.fail_times(".narinfo", Http2Fault::Reset(Reason::INTERNAL_ERROR), 4);
    let nar = fixture.nar("libc6");
    server.fail_times(&nar, Http2Fault::ResetBody(2_000_000), 3);
    fixture.install(&server);
    assert_eq!(server.fault_count(), 9);
    // Each further request continues the body.
    assert!(server.request_count(&nar) >= 3);
}

#[test]
fn forgotten_body_continues_over_another_connection() {
    let Some(fixture) = fixture() else { return };
    let server = fixture.server(usize::MAX);
    let (large, small) = (fixture.nar("libc6"), fixture.nar("libonig5"));
    server.fail_times(&large, Http2Fault::StalledBody(1_000_000), 1);
    server.fail_times(&small, Http2Fault::StalledBody(0), 1);
    fixture.install(&server);
    assert_eq!(server.fault_count(), 2);
    assert_eq!(
        (server.request_count(&large), server.request_count(&small)),
        (2, 2)
    );
}
