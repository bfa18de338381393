//! Faults of the environment: full disks, missing permissions, failing servers, and concurrent
//! writers of the same store.
//!
//! Each test asserts that its fault occurred, that the store is valid afterwards, and that the
//! next run without the fault fetches exactly the missing paths.

mod bad_responses;
mod close_errors;
mod concurrent_installs;
mod connection_errors;
mod full_disk;
mod http_statuses;
mod outages;
mod permissions;
mod rebuilt_paths;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use floe_testkit::Corpus;
use floe_testkit::fault_server::FaultServer;

/// Returns the NAR URL of a path, relative to its cache.
fn nar_url(corpus: &Corpus, path: &str) -> String {
    let part = &path.rsplit('/').next().unwrap()[..32];
    let file = corpus.cache("zstd").join(format!("{part}.narinfo"));
    let text = fs::read_to_string(file).unwrap();
    let url = text.lines().find_map(|line| line.strip_prefix("URL: "));
    url.unwrap().to_owned()
}

/// Returns the NARs requested after the first `since` requests, with repetitions.
pub(crate) fn nars_requested_since(server: &FaultServer, since: usize) -> Vec<String> {
    let requests = server.requests().into_iter().skip(since);
    let nars = requests.filter(|request| request.path.contains("/nar/"));
    nars.map(|request| request.path.trim_start_matches('/').to_owned())
        .collect()
}

/// Asserts that each NAR of a path outside `kept` (base names) was requested exactly once after
/// the first `since` requests, and no other NAR.
#[track_caller]
pub(crate) fn assert_fetched_only_missing(
    corpus: &Corpus,
    server: &FaultServer,
    since: usize,
    kept: &BTreeSet<String>,
) {
    let is_kept = |path: &&String| kept.contains(path.rsplit('/').next().unwrap());
    let rest = corpus.paths.iter().filter(|path| !is_kept(path));
    let mut wanted: Vec<String> = rest.map(|path| nar_url(corpus, path)).collect();
    let mut asked = nars_requested_since(server, since);
    wanted.sort();
    asked.sort();
    assert_eq!(asked, wanted);
}

/// Lists staged trees and lock files in a store directory.
pub(crate) fn temporary_entries(store: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(store) else {
        return Vec::new();
    };
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let is_left = |name: &String| name.contains("-floe-") || name.ends_with(".lock");
    names.filter(is_left).collect()
}
