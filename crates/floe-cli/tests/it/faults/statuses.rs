//! Every HTTP status, for each kind of file that floe requests.

use std::path::Path;

use crate::faulty::{Faulty, assert_verified, faulty};
use crate::server::{Fault, Server};
use crate::support::{Ran, floe, run};

/// How floe handles a status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// The file does not exist.
    Absent,
    /// The server requires authentication.
    Closed,
    /// The request fails without a retry.
    Refused,
    /// The request is retried.
    TriedAgain,
}

const STATUSES: &[(u16, Outcome)] = &[
    (304, Outcome::Refused),
    (400, Outcome::Refused),
    (401, Outcome::Closed),
    (402, Outcome::Refused),
    // An S3 bucket without permission to list responds with 403 for missing objects.
    (403, Outcome::Absent),
    (404, Outcome::Absent),
    (405, Outcome::Refused),
    // 407 comes from a proxy, to which netrc does not apply.
    (407, Outcome::Refused),
    (408, Outcome::TriedAgain),
    (410, Outcome::Absent),
    (418, Outcome::Refused),
    (429, Outcome::TriedAgain),
    (451, Outcome::Refused),
    (500, Outcome::TriedAgain),
    (501, Outcome::Refused),
    (502, Outcome::TriedAgain),
    (503, Outcome::TriedAgain),
    (504, Outcome::TriedAgain),
    (505, Outcome::Refused),
    (506, Outcome::TriedAgain),
    (507, Outcome::TriedAgain),
    (508, Outcome::TriedAgain),
    (511, Outcome::Refused),
    (520, Outcome::TriedAgain),
    (522, Outcome::TriedAgain),
    (530, Outcome::TriedAgain),
    (599, Outcome::TriedAgain),
];

/// Value of `download-attempts`.
const ATTEMPTS: usize = 2;

fn install(cache: &Faulty, server: &Server, root: &Path) -> Ran {
    let mut command = floe(["install", "--json", "--from", &server.url(), "--root"]);
    command.arg(root).arg(cache.path("gcc-12-base").as_str());
    command.args(["--trusted-public-keys", &cache.corpus.key]);
    run(command.args(["--option", "download-attempts", &ATTEMPTS.to_string()]))
}

#[test]
fn every_status_has_its_outcome_and_none_harms_the_store() {
    let Some(cache) = faulty("zstd") else { return };
    let path = cache.path("gcc-12-base");
    let narinfo = format!("{}.narinfo", path.hash_part());
    let nar = cache.narinfo(&path).url;
    for (status, outcome) in STATUSES {
        // The message for a missing file depends on its kind.
        for (file, absent, code) in [
            ("nix-cache-info", "is not a binary cache", 4),
            (&*narinfo, "is not in http://", 1),
            (&*nar, "the server does not have it", 4),
        ] {
            let what = format!("{status} for {file}");
            let root = cache.scratch.join("root");
            let server = Server::start(&cache.cache);
            server.fail(file, Fault::Status(*status));
            let ran = install(&cache, &server, &root);
            let (code, says, times) = match outcome {
                Outcome::Absent => (code, absent.to_owned(), 1),
                Outcome::Closed => (4, format!("{status} "), 1),
                Outcome::Refused => (4, format!("the server answered {status}"), 1),
                Outcome::TriedAgain => (4, format!("the server answered {status}"), ATTEMPTS),
            };
            let mut ran = ran.expect(code).says(&says);
            // The message for a 403 must mention permissions, since the file may well exist.
            match (*outcome, file) {
                (Outcome::Absent, file) if file == nar => {
                    ran = ran.says(&format!("it answered {status} "));
                    let is_hidden = ran.stderr.contains("or not for whoever asks");
                    assert_eq!(is_hidden, *status == 403, "{what}: {}", ran.stderr);
                }
                (_, "nix-cache-info") if *status == 403 => {
                    ran = ran.says("the server answered 403");
                }
                _ => {}
            }
            assert_eq!(ran.stderr.contains("netrc"), *outcome == Outcome::Closed);
            let fault = Some(Fault::Status(*status));
            let hits = server.hits_on(file);
            let met = hits.iter().filter(|hit| hit.fault == fault).count();
            assert_eq!(met, times, "{what}: {hits:?}");

            // The store contains nothing beyond its initial state.
            let store = root.join("nix/store");
            if store.exists() {
                let names = std::fs::read_dir(&store).unwrap();
                let names: Vec<_> = names.map(|entry| entry.unwrap().file_name()).collect();
                assert_eq!(names, [".links"], "{what}");
                assert_verified(&root, 0);
            }
            server.heal();
            install(&cache, &server, &root).expect(0);
            assert_verified(&root, 1);
            floe_store::tree::remove_tree(&root).unwrap();
        }
    }
}
