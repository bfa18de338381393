//! Every HTTP status, for each kind of file that floe requests.

use std::path::Path;

use floe_testkit::fault_server::{Fault, FaultServer};
use floe_testkit::{CommandOutput, run};

use crate::faulty_cache::{FaultyCache, assert_verified, faulty_cache};
use crate::support::floe;

/// How floe handles a status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expectation {
    /// The file does not exist.
    Absent,
    /// The server requires authentication.
    AuthRequired,
    /// The request fails without a retry.
    Failed,
    /// The request is retried.
    Retried,
}

const STATUSES: &[(u16, Expectation)] = &[
    (304, Expectation::Failed),
    (400, Expectation::Failed),
    (401, Expectation::AuthRequired),
    (402, Expectation::Failed),
    // An S3 bucket without permission to list responds with 403 for missing objects, too. But it
    // may also be a wrong login.
    (403, Expectation::Failed),
    (404, Expectation::Absent),
    (405, Expectation::Failed),
    // 407 comes from a proxy, to which netrc does not apply.
    (407, Expectation::Failed),
    (408, Expectation::Retried),
    (410, Expectation::Absent),
    (418, Expectation::Failed),
    (429, Expectation::Retried),
    (451, Expectation::Failed),
    (500, Expectation::Retried),
    (501, Expectation::Failed),
    (502, Expectation::Retried),
    (503, Expectation::Retried),
    (504, Expectation::Retried),
    (505, Expectation::Failed),
    (506, Expectation::Retried),
    // A full disk is not free after some seconds.
    (507, Expectation::Failed),
    (508, Expectation::Retried),
    (511, Expectation::Failed),
    (520, Expectation::Retried),
    (522, Expectation::Retried),
    (530, Expectation::Retried),
    (599, Expectation::Retried),
];

/// Value of `download-attempts`.
const ATTEMPTS: usize = 2;

fn install(cache: &FaultyCache, server: &FaultServer, root: &Path) -> CommandOutput {
    let mut command = floe(["install", "--json", "--from", &server.url(), "--root"]);
    command.arg(root).arg(cache.path("gcc-12-base").as_str());
    command.args(["--trusted-public-keys", &cache.corpus.key]);
    run(command.args(["--option", "download-attempts", &ATTEMPTS.to_string()]))
}

#[test]
fn every_http_status_has_its_outcome_and_keeps_store_valid() {
    let Some(cache) = faulty_cache("zstd") else {
        return;
    };
    let path = cache.path("gcc-12-base");
    let narinfo = format!("{}.narinfo", path.hash_part());
    let nar = cache.narinfo(&path).url;
    for (status, expected) in STATUSES {
        // The message for a missing file depends on its kind.
        for (file, absent, code) in [
            ("nix-cache-info", "as a binary cache", 4),
            (&*narinfo, "in http://", 1),
            (&*nar, "the server does not have it", 4),
        ] {
            let what = format!("{status} for {file}");
            let root = cache.scratch.join("root");
            let server = FaultServer::start(&cache.cache);
            server.fail(file, Fault::Status(*status));
            let ran = install(&cache, &server, &root);
            let (code, says, times) = match expected {
                Expectation::Absent => (code, absent.to_owned(), 1),
                Expectation::AuthRequired => (4, format!("{status} "), 1),
                Expectation::Failed => (4, format!("the server answered {status}"), 1),
                Expectation::Retried => (4, format!("the server answered {status}"), ATTEMPTS),
            };
            let mut ran = ran.expect(code).stderr_contains(&says);
            if *expected == Expectation::Absent && file == nar {
                ran = ran.stderr_contains(&format!("it answered {status} "));
            }
            assert_eq!(
                ran.stderr.contains("netrc"),
                *expected == Expectation::AuthRequired
            );
            let fault = Some(Fault::Status(*status));
            let requests = server.requests_for(file);
            let fault_count = requests
                .iter()
                .filter(|request| request.fault == fault)
                .count();
            assert_eq!(fault_count, times, "{what}: {requests:?}");

            // The store contains nothing beyond its initial state.
            let store = root.join("nix/store");
            if store.exists() {
                let names = std::fs::read_dir(&store).unwrap();
                let names: Vec<_> = names.map(|entry| entry.unwrap().file_name()).collect();
                assert_eq!(names, [".links"], "{what}");
                assert_verified(&root, 0);
            }
            server.clear_faults();
            install(&cache, &server, &root).expect(0);
            assert_verified(&root, 1);
            floe_store::tree::remove_tree(&root).unwrap();
        }
    }
}
