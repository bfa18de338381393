//! Installs over HTTP with few file descriptors. Idle connections keep theirs, so the path locks
//! and the workers get the rest.

use std::fs;
use std::process::Command;

use floe_testkit::fault_server::FaultServer;
use floe_testkit::{CommandOutput, corpus, run, scratch};

use crate::faulty_cache::assert_verified;
use crate::support::floe_with_time_limit;

/// Runs a command with this hard limit of open files.
fn run_with_descriptors(count: usize, command: &Command) -> CommandOutput {
    let mut limited = Command::new("sh");
    limited.args(["-c", "ulimit -n $0 && exec \"$@\"", &count.to_string()]);
    limited.arg(command.get_program()).args(command.get_args());
    let changed = command.get_envs();
    let set = changed.filter_map(|(name, value)| Some((name, value?)));
    run(limited.envs(set))
}

#[test]
fn install_with_few_descriptors_never_waits_for_own_locks() {
    let (Some(corpus), scratch) = (corpus("curl"), scratch()) else {
        return;
    };
    let cache = corpus.cache_copy("zstd", scratch.path());
    let info = "StoreDir: /nix/store\nWantMassQuery: 1\n";
    fs::write(cache.join("nix-cache-info"), info).unwrap();
    for descriptors in [40, 48, 56, 60, 64, 72, 80] {
        let server = FaultServer::start(&cache);
        let root = scratch.join(&format!("root-{descriptors}"));
        let mut command = floe_with_time_limit(["install", "--from", &server.url(), "--root"]);
        command.arg(&root).arg(&corpus.root);
        command.args(["--trusted-public-keys", &corpus.key, "--jobs", "2"]);
        let ran = run_with_descriptors(descriptors, &command);
        let said = &ran.stderr;
        assert!(!said.contains("waiting"), "{descriptors}: {said}");
        let is_clear = ran.code == Some(1) && said.contains("Too many open files");
        // Fewer files than these are an error, but never a hang.
        if ran.code != Some(0) {
            assert!(descriptors < 56 && is_clear, "{descriptors}: {said}");
            continue;
        }
        assert_verified(&root, corpus.paths.len());
    }
}
