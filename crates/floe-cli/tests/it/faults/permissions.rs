//! Installs by a user without write permission for the store.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use floe_testkit::fault_server::{Fault, FaultServer};
use floe_testkit::{
    CommandOutput, Corpus, NOBODY_UID, Scratch, copy_program, corpus, run, scratch, skip, tree,
};

use super::{assert_fetched_only_missing, nars_requested_since, temporary_entries};
use crate::faulty_cache::{assert_store_contains_exactly, faulty_cache};
use crate::support::floe;

/// A closure, and a copy of the binary that every user may execute.
struct Fixture {
    corpus: Corpus,
    server: FaultServer,
    scratch: Scratch,
    program: PathBuf,
}

fn fixture() -> Option<Fixture> {
    if fs::metadata("/proc/self").unwrap().uid() != 0 {
        skip("setuid", "only root may switch to another user");
        return None;
    }
    let (corpus, scratch) = (corpus("jq")?, scratch());
    let program = scratch.join("floe");
    copy_program(Path::new(env!("CARGO_BIN_EXE_floe")), &program);
    for file in [scratch.path(), &program] {
        fs::set_permissions(file, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let server = FaultServer::start(&corpus.cache("zstd"));
    Some(Fixture {
        corpus,
        server,
        scratch,
        program,
    })
}

impl Fixture {
    /// Installs a path as the user with this id.
    fn install(&self, user: u32, root: &Path, path: &str) -> CommandOutput {
        let args = ["install", "--json", "--from", &self.server.url(), "--root"];
        let plain = floe(args);
        let mut command = Command::new(&self.program);
        command.args(plain.get_args()).uid(user).gid(user);
        for (name, value) in plain.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command
            .arg(root)
            .args(["--trusted-public-keys", &self.corpus.key]);
        run(command.arg(path))
    }
}

#[test]
fn referrers_of_blocked_path_are_not_fetched() {
    let Some(faulty) = faulty_cache("zstd") else {
        return;
    };
    let server = FaultServer::start(&faulty.cache);
    let name = |path: &str| faulty.path(path).as_str().to_owned();
    let install = |path: &str| {
        let mut command = floe(["install", "--jobs", "1", "--log-format", "json"]);
        command.args(["--from", &server.url(), "--root"]);
        command.arg(&faulty.root).arg("--trusted-public-keys");
        run(command.arg(&faulty.corpus.key).arg(path))
    };
    install(&format!("/nix/store/{}", name("libgcc"))).expect(0);
    // The NAR of the first path is delayed, so all paths are known when the only worker takes the
    // second one: libc6, the largest. The commit rejects it while the worker waits for the
    // `Retry-After` of the third one. 60 seconds are more than any machine needs for that.
    let lock = faulty
        .root
        .join(format!("nix/store/{}.lock", name("libc6")));
    fs::write(&lock, "notes of a user").unwrap();
    let nar = faulty.nar(&faulty.path("libonig5"));
    let nar = nar.file_name().unwrap().to_str().unwrap();
    server.fail(nar, Fault::RetryAfter(503, "60".into()));
    let first = faulty.nar(&faulty.path("jq-"));
    let first = first.file_name().unwrap().to_str().unwrap();
    server.fail(first, Fault::Delayed(Duration::from_secs(2)));
    let ran = install(&faulty.corpus.root)
        .expect(1)
        .stderr_contains("libc6");
    assert_eq!(server.requests_for(nar).len(), 1, "{}", ran.stderr);
    let finished: Vec<&str> = ran
        .stderr
        .lines()
        .filter(|line| line.contains("\"event\":\"staged\""))
        .collect();
    assert!(finished.len() <= 2, "{}", ran.stderr);
    let has_libc6 = finished.iter().any(|line| line.contains("libc6"));
    assert!(has_libc6, "{}", ran.stderr);
    fs::remove_file(&lock).unwrap();
    server.clear_faults();
    install(&faulty.corpus.root).expect(0);
    assert_store_contains_exactly(&faulty.root, &faulty.paths_without(&[]));
}

#[test]
fn store_of_other_user_is_rejected_and_unchanged() {
    let Some(fixture) = fixture() else { return };
    let (corpus, root) = (&fixture.corpus, fixture.scratch.join("root"));
    let assert_denied = |ran: CommandOutput| {
        ran.expect(1)
            .stderr_contains("Permission denied")
            .stderr_contains(&root.display().to_string())
            .stderr_contains(
                "try running as the owner of the store, or a store of your own with --root DIR",
            );
    };
    // Test without a store, and with one.
    assert_denied(fixture.install(NOBODY_UID, &root, &corpus.root));
    assert!(!root.exists());
    let small_path = corpus.paths.iter().find(|path| path.contains("-libc6-"));
    fixture.install(0, &root, small_path.unwrap()).expect(0);
    let before = tree(&root);
    let since = fixture.server.requests().len();
    assert_denied(fixture.install(NOBODY_UID, &root, &corpus.root));
    assert_eq!(nars_requested_since(&fixture.server, since), [""; 0]);
    assert_eq!(tree(&root), before);

    // The owner can continue, and the other user can use a store of their own.
    let existing = fs::read_dir(root.join("nix/store")).unwrap();
    let existing = existing.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let existing = existing.filter(|name| name != ".links").collect();
    fixture.install(0, &root, &corpus.root).expect(0);
    assert_fetched_only_missing(corpus, &fixture.server, since, &existing);
    assert_store_contains_exactly(&root, &corpus.paths.iter().cloned().collect());
    let own = fixture.scratch.join("own");
    fs::create_dir(&own).unwrap();
    chown(&own, Some(NOBODY_UID), Some(NOBODY_UID)).unwrap();
    fixture.install(NOBODY_UID, &own, &corpus.root).expect(0);
    assert_store_contains_exactly(&own, &corpus.paths.iter().cloned().collect());
}

#[test]
fn unwritable_store_dir_is_rejected_before_fetching() {
    let Some(fixture) = fixture() else { return };
    let (corpus, root) = (&fixture.corpus, fixture.scratch.join("root"));
    fs::create_dir(&root).unwrap();
    chown(&root, Some(NOBODY_UID), Some(NOBODY_UID)).unwrap();
    let small_path = corpus
        .paths
        .iter()
        .find(|path| path.contains("-gcc-12-base-"));
    let small_path = small_path.unwrap();
    fixture.install(NOBODY_UID, &root, small_path).expect(0);
    let store = root.join("nix/store");
    chown(&store, Some(0), Some(0)).unwrap();
    let since = fixture.server.requests().len();
    fixture
        .install(NOBODY_UID, &root, &corpus.root)
        .expect(1)
        .stderr_contains("Permission denied")
        .stderr_contains(&store.display().to_string());
    assert_eq!(nars_requested_since(&fixture.server, since), [""; 0]);
    assert_eq!(temporary_entries(&store), [""; 0]);

    chown(&store, Some(NOBODY_UID), Some(NOBODY_UID)).unwrap();
    let since = fixture.server.requests().len();
    fixture.install(NOBODY_UID, &root, &corpus.root).expect(0);
    let existing = [small_path.rsplit('/').next().unwrap().to_owned()].into();
    assert_fetched_only_missing(corpus, &fixture.server, since, &existing);
    assert_store_contains_exactly(&root, &corpus.paths.iter().cloned().collect());
}
