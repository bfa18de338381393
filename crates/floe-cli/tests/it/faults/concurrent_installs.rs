//! Concurrent installs of overlapping closures into one store.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use floe_testkit::fault_server::{Fault, FaultServer};
use floe_testkit::{Corpus, corpus, run, scratch};

use super::{nar_url, nars_requested_since, temporary_entries};
use crate::faulty_cache::assert_store_contains_exactly;
use crate::support::floe;

/// An install of one root path from one of the corpora.
struct InstallJob<'a> {
    corpus: &'a Corpus,
    server: &'a FaultServer,
    root: String,
}

impl InstallJob<'_> {
    fn install(&self, root: &Path) -> Command {
        let mut command = floe(["install", "--json", "--from", &self.server.url()]);
        command.args(["--trusted-public-keys", &self.corpus.key, "--root"]);
        command.arg(root).arg(&self.root);
        command
    }
}

fn path(corpus: &Corpus, name: &str) -> String {
    let name = format!("-{name}");
    let mut paths = corpus.paths.iter();
    paths.find(|path| path.contains(&name)).unwrap().clone()
}

#[test]
fn concurrent_installs_of_overlapping_closures_all_succeed() {
    let (Some(jq), Some(curl)) = (corpus("jq"), corpus("curl")) else {
        return;
    };
    let libc = path(&jq, "libc6-");
    assert_eq!(path(&curl, "libc6-"), libc, "the closures do not overlap");
    for count in [2, 4] {
        let scratch = scratch();
        let root = scratch.join("root");
        let servers = [&jq, &curl].map(|corpus| FaultServer::start(&corpus.cache("zstd")));
        // Every closure contains this path. The delay makes all installs query it before any of
        // them has registered it.
        let narinfo = format!("{}.narinfo", &libc["/nix/store/".len()..][..32]);
        let slow = Fault::Delayed(Duration::from_secs(3));
        servers
            .iter()
            .for_each(|server| server.fail(&narinfo, slow.clone()));
        let job = |corpus, server, root: &str| InstallJob {
            corpus,
            server,
            root: root.to_owned(),
        };
        let jobs = [
            job(&jq, &servers[0], &jq.root),
            job(&curl, &servers[1], &curl.root),
            job(&jq, &servers[0], &path(&jq, "libjq1-")),
            job(&curl, &servers[1], &path(&curl, "libssl3-")),
        ];
        let jobs = &jobs[..count];
        let spawn = |job: &InstallJob<'_>| {
            let mut command = job.install(&root);
            let piped = command.stdout(Stdio::piped()).stderr(Stdio::piped());
            piped.spawn().unwrap()
        };
        let children: Vec<_> = jobs.iter().map(spawn).collect();
        for (child, job) in children.into_iter().zip(jobs) {
            let output = child.wait_with_output().unwrap();
            let stderr = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(0), "{}: {stderr}", job.root);
        }
        let all: BTreeSet<String> = jq.paths.iter().chain(&curl.paths).cloned().collect();
        assert_store_contains_exactly(&root, &all);
        assert_eq!(temporary_entries(&root.join("nix/store")), [""; 0]);

        // Each path was fetched at least once, and at most once per install.
        let mut times: BTreeMap<String, usize> = BTreeMap::new();
        for nar in servers
            .iter()
            .flat_map(|server| nars_requested_since(server, 0))
        {
            *times.entry(nar).or_default() += 1;
        }
        let fetched: usize = times.values().sum();
        eprintln!(
            "{count} installs of {} paths made {fetched} NAR requests",
            all.len()
        );
        assert!(times.values().all(|times| *times <= count), "{times:?}");
        let nars = |corpus: &Corpus, path| times.get(&nar_url(corpus, path)).copied();
        for path in &all {
            let count_in = |corpus: &Corpus| {
                if corpus.paths.contains(path) {
                    nars(corpus, path).unwrap_or(0)
                } else {
                    0
                }
            };
            assert!(
                count_in(&jq) + count_in(&curl) >= 1,
                "{path} was not fetched"
            );
        }
        let shared = nars(&jq, &libc)
            .unwrap_or(0)
            .max(nars(&curl, &libc).unwrap_or(0));
        assert!(
            shared >= 1 && fetched > all.len(),
            "the installs did not overlap: {times:?}"
        );

        let before = servers.each_ref().map(|server| server.requests().len());
        for job in jobs {
            let json = run(&mut job.install(&root)).expect(0).json();
            assert_eq!(json["copied"], 0);
        }
        for (server, before) in servers.iter().zip(before) {
            assert_eq!(nars_requested_since(server, before), [""; 0]);
        }
    }
}
