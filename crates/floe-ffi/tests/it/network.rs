//! The network options of requests, set by hosts in C and C++.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use floe_testkit::fault_server::{Fault, FaultServer};
use floe_testkit::{
    CommandOutput, Corpus, Scratch, corpus, create_certificates, find_tool, nginx, run, scratch,
};

use crate::languages::{bindings, build, compiler};

/// A corpus and a program that installs it with network options.
struct Host {
    program: PathBuf,
    corpus: Corpus,
    scratch: Scratch,
}

impl Host {
    /// Installs the corpus from a cache into a new root. `options` are `FIELD=VALUE`.
    fn install(&self, cache: &str, root: &str, options: &[String]) -> CommandOutput {
        let mut command = Command::new(&self.program);
        command.arg(cache).arg(self.scratch.join(root));
        command.args([&self.corpus.key, &self.corpus.root]);
        run(command.args(options))
    }

    #[track_caller]
    fn installs(&self, cache: &str, root: &str, options: &[String]) {
        let ran = self.install(cache, root, options).expect(0);
        let summary = format!("{} paths installed\n", self.corpus.paths.len());
        assert_eq!(ran.stdout, summary);
    }

    /// Expects an install to fail with a message that contains `cause`.
    #[track_caller]
    fn fails(&self, cache: &str, root: &str, options: &[String], cause: &str) {
        let ran = self.install(cache, root, options).expect(1);
        assert!(ran.stdout.contains(cause), "{}", ran.stdout);
    }
}

/// Runs a test with a host in C and one in C++.
fn with_hosts(test: impl Fn(&Host)) {
    for (name, source) in [
        ("cc", "c/tests/network.c"),
        ("c++", "cpp/tests/network.cpp"),
    ] {
        let (Some(compiler), Some(corpus)) = (compiler(name), corpus("jq")) else {
            return;
        };
        let scratch = scratch();
        let program = build(compiler, &bindings().join(source), scratch.path(), false);
        test(&Host {
            program,
            corpus,
            scratch,
        });
    }
}

fn option(name: &str, value: impl std::fmt::Display) -> String {
    format!("{name}={value}")
}

#[test]
fn host_sends_credentials_of_its_netrc_file() {
    with_hosts(|host| {
        let server = FaultServer::start(&host.corpus.cache("zstd"));
        // user:pass
        server.require_authorization("Basic dXNlcjpwYXNz");
        let netrc = host.scratch.join("netrc");
        fs::write(&netrc, "machine 127.0.0.1 login user password pass\n").unwrap();
        host.fails(&server.url(), "without", &[], "401");
        let netrc = option("netrc_files", netrc.display());
        host.installs(&server.url(), "with", &[netrc]);
    });
}

#[test]
fn host_uses_its_proxy_except_for_excluded_hosts() {
    with_hosts(|host| {
        let Some(proxy) = nginx(&host.corpus.dir, "") else {
            return;
        };
        let cache = "http://cache.invalid/cache-zstd";
        let options = [option("http_proxy", proxy.url()), option("attempts", 1)];
        host.installs(cache, "with", &options);
        assert!(proxy.log().contains("/cache-zstd/nix-cache-info"));
        let excluded = [&options[..], &[option("no_proxy", "cache.invalid")]].concat();
        host.fails(cache, "excluded", &excluded, "cache.invalid");
    });
}

#[test]
fn host_trusts_its_certificates_only() {
    let Some(openssl) = find_tool("openssl", "openssl") else {
        return;
    };
    with_hosts(|host| {
        let certificates = create_certificates(&openssl, host.scratch.path());
        let extra = format!("listen 127.0.0.1:PORT1 ssl; {}", certificates.server);
        let Some(server) = nginx(&host.corpus.dir, &extra) else {
            return;
        };
        let cache = format!("https://127.0.0.1:{}/cache-zstd", server.port(1));
        host.fails(&cache, "without", &[], "certificate");
        let authority = option("certificates", certificates.authority);
        host.installs(&cache, "with", &[authority]);
    });
}

#[test]
fn host_limits_connections() {
    with_hosts(|host| {
        for (connections, root) in [(1, "one"), (4, "four")] {
            let cache = host
                .corpus
                .cache_copy("zstd", &host.scratch.join(&format!("cache-{root}")));
            fs::write(
                cache.join("nix-cache-info"),
                "StoreDir: /nix/store\nWantMassQuery: 1\n",
            )
            .unwrap();
            let server = FaultServer::start(&cache);
            server.fail("", Fault::Delayed(Duration::from_millis(20)));
            host.installs(&server.url(), root, &[option("connections", connections)]);
            assert_eq!(server.max_in_flight(), connections);
        }
    });
}

#[test]
fn host_option_zero_means_no_limit() {
    with_hosts(|host| {
        let server = FaultServer::start(&host.corpus.cache("zstd"));
        server.fail("", Fault::Delayed(Duration::from_millis(20)));
        let zero = |name| option(name, 0);
        let options = [
            zero("connect_timeout_ms"),
            zero("stall_timeout_ms"),
            zero("connections"),
        ];
        host.installs(&server.url(), "unlimited", &options);
        assert!(server.max_in_flight() > 1);
    });
}

#[test]
fn host_remembers_narinfos_between_requests() {
    with_hosts(|host| {
        let file = host.scratch.join("narinfos.sqlite");
        let options = [option("narinfo_disk_cache", file.display())];
        for (root, queries) in [("first", host.corpus.paths.len()), ("second", 0)] {
            let cache = FaultServer::start(&host.corpus.cache("zstd"));
            // The disk cache knows a cache by its URL, which must not change with the port.
            let proxy = option("http_proxy", cache.url());
            let url = "http://cache.invalid";
            host.installs(url, root, &[&options[..], &[proxy]].concat());
            assert_eq!(cache.requests_for(".narinfo").len(), queries, "{root}");
        }
    });
}
