//! Checks for free space: copies that cannot fit are rejected early, tight ones cause a warning,
//! and a dry run prints what is needed and free.

use std::path::Path;
use std::process::Command;

use floe_format::StoreDir;
use floe_store::{StoreLayout, StoreWriter};
use floe_testkit::fault_server::FaultServer;
use serde_json::Value;

use crate::faulty_cache::{FaultyCache, faulty_cache};
use crate::support::floe;
use crate::tmpfs_mount::{Mount, mount};

/// A cache of a closure with 13.5 MiB in 373 inodes, and a small file system for the store.
fn fixture(options: &str) -> Option<(FaultyCache, FaultServer, Mount)> {
    let cache = faulty_cache("zstd")?;
    let server = FaultServer::start(&cache.cache);
    Some((cache, server, mount(options)?))
}

fn install(cache: &FaultyCache, from: &str, root: &Path) -> Command {
    let mut command = floe(["install", "--from", from, "--trusted-public-keys"]);
    command.args([&cache.corpus.key, "--root"]).arg(root);
    command.arg(&cache.corpus.root);
    command
}

/// Counts requests for NARs.
fn nar_request_count(server: &FaultServer) -> usize {
    let requests = server.requests();
    requests
        .iter()
        .filter(|request| request.path.contains("/nar/"))
        .count()
}

#[test]
fn copy_that_cannot_fit_is_rejected_early() {
    let Some((cache, server, mount)) = fixture("size=9m") else {
        return;
    };
    let root = mount.root();
    let mut command = install(&cache, &server.url(), &root);
    let ran = mount.run(&command).expect(5);
    let place = format!("{} (tmpfs)", mount.mount_point().display());
    let store = format!("in {}/nix/store", root.display());
    ran.stderr_contains("about 14 MiB in")
        .stderr_contains(&store)
        .stderr_contains(&place)
        .stderr_contains(" free; nothing was installed")
        .stderr_contains("--no-check-space");
    let narinfos = server.requests_for(".narinfo").len();
    assert_eq!(
        narinfos,
        cache.corpus.paths.len(),
        "the closure was not resolved"
    );
    // The copy fetches paths early only as long as they need at most half of the space.
    let fetched = nar_request_count(&server);
    assert!(fetched < narinfos, "{:?}", server.requests());
    assert!(!root.join("nix").exists(), "the refused copy left a store");

    // With --no-check-space, the copy starts and fails when the disk is full.
    mount
        .run(command.arg("--no-check-space"))
        .expect(5)
        .stderr_contains("No space left on device");
    assert!(nar_request_count(&server) > fetched);

    mount.remount("size=64m");
    let ran = mount.run(&install(&cache, &server.url(), &root)).expect(0);
    assert!(!ran.stderr.contains("warning"), "{}", ran.stderr);
    assert_eq!(mount.assert_store_valid().len(), cache.corpus.paths.len());
}

#[test]
fn too_few_inodes_are_rejected_and_scarce_ones_cause_warning() {
    let Some((cache, server, mount)) = fixture("size=64m") else {
        return;
    };
    let root = mount.root();
    // Create an empty store, so that its inodes can be counted.
    let empty = mount.sibling("empty");
    drop(StoreWriter::open(StoreLayout::in_root(&empty, StoreDir::default())).unwrap());
    let mut nothing = floe(["copy", "--all", "--from"]);
    mount
        .run(nothing.arg(empty).arg("--to").arg(&root))
        .expect(0);
    let (_, left) = mount.free_blocks_and_inodes();
    let mut command = Command::new("find");
    let used = mount.run(command.arg(mount.mount_point())).expect(0);
    // The count includes the root directory of the file system.
    let used = used.stdout.lines().count() as u64;
    assert!(left > 1000, "{left} inodes");

    // The temporary roots file needs one more inode than there are.
    let paths = cache.corpus.paths.len() as u64;
    mount.remount(&format!("nr_inodes={}", used + paths));
    let ran = mount.run(&install(&cache, &server.url(), &root)).expect(5);
    ran.stderr_contains(&format!("it needs at least {paths} inodes"))
        .stderr_contains(" inodes free; nothing was installed");
    assert_eq!(nar_request_count(&server), 0, "{:?}", server.requests());

    // Enough for the actual inodes, but less than the estimate.
    mount.remount(&format!("nr_inodes={}", used + 420));
    let ran = mount.run(&install(&cache, &server.url(), &root)).expect(0);
    ran.stderr_contains("floe: warning: not sure whether the copy fits: it needs about 436 inodes")
        .stderr_contains("not sure whether the copy fits");
    assert_eq!(mount.assert_store_valid().len() as u64, paths);
}

#[test]
fn dry_run_prints_needed_and_free_space() {
    let Some((cache, server, mount)) = fixture("size=9m,nr_inodes=1000") else {
        return;
    };
    // Only the store directory is on the small file system. It does not exist yet.
    let real = mount.mount_point().join("deep/store");
    let to = format!(
        "local?root={}&real={}",
        mount.sibling("root").display(),
        real.display()
    );
    let dry_run = |more: &[&str]| {
        let mut command = floe(["install", "--dry-run", "--from", &server.url(), "--to", &to]);
        command.args(["--trusted-public-keys", &cache.corpus.key]);
        mount.run(command.arg(&cache.corpus.root).args(more))
    };
    let (blocks, inodes) = mount.free_blocks_and_inodes();
    let object = dry_run(&["--json"]).expect(0).json();
    let nar_sizes = object["planned"].as_array().unwrap().iter();
    let nar_bytes: u64 = nar_sizes
        .map(|path| path["narSize"].as_u64().unwrap())
        .sum();
    let place = mount.mount_point().display().to_string();
    assert_eq!(object["fileSystem"]["mountPoint"], *place);
    assert_eq!(object["fileSystem"]["kind"], "tmpfs");
    assert_eq!(object["freeBytes"], blocks * 4096);
    assert_eq!(object["freeInodes"], inodes);
    let number = |name: &str| object[name].as_u64().unwrap();
    let (bytes, estimate) = (number("writeBytes"), number("writeInodesEstimate"));
    assert!(nar_bytes > 13_000_000, "{nar_bytes}");
    assert!((nar_bytes..nar_bytes * 11 / 10).contains(&bytes), "{bytes}");
    assert!((300..450).contains(&estimate), "{estimate} inodes, not 373");

    // Text output: totals go to stderr, stdout has one line per path.
    let ran = dry_run(&[]).expect(0);
    assert_eq!(ran.stdout.lines().count(), cache.corpus.paths.len());
    assert!(ran.stdout.lines().all(|line| line.split(' ').count() == 3));
    ran.stderr_contains("would write about 14 MiB")
        .stderr_contains(&format!("{estimate} inodes to {place} (tmpfs)"))
        .stderr_contains(&format!("{inodes} inodes free"))
        .stderr_contains("the copy does not fit");
    let ran = dry_run(&["--no-check-space"]).expect(0);
    assert!(!ran.stderr.contains("does not fit"), "{}", ran.stderr);
    assert_eq!(nar_request_count(&server), 0, "{:?}", server.requests());
    assert!(
        !mount
            .outside_path(&mount.mount_point().join("deep"))
            .exists()
    );

    // Valid paths need no space.
    mount.remount("size=64m,nr_inodes=2000");
    let mut command = floe(["install", "--from", &server.url(), "--to", &to]);
    command.args(["--trusted-public-keys", &cache.corpus.key]);
    mount.run(command.arg(&cache.corpus.root)).expect(0);
    let object = dry_run(&["--json"]).expect(0).json();
    assert_eq!(
        (&object["writeBytes"], &object["freeBytes"]),
        (&0.into(), &Value::Null)
    );
}

#[test]
fn cache_without_space_is_rejected_or_causes_warning() {
    let Some((cache, server, mount)) = fixture("size=3m") else {
        return;
    };
    let copy = |parameters: &str| {
        let to = format!(
            "file://{}/cache?{parameters}",
            mount.mount_point().display()
        );
        let mut command = floe(["copy", "--from", &server.url(), "--to", &to]);
        command.arg(&cache.corpus.root);
        mount.run(&command)
    };
    let place = format!("{}/cache/nar", mount.mount_point().display());
    copy("compression=none")
        .expect(5)
        .stderr_contains(&place)
        .stderr_contains("nothing was installed");
    assert_eq!(nar_request_count(&server), 0, "{:?}", server.requests());
    copy("compression=zstd")
        .expect(5)
        .stderr_contains("not sure whether the copy fits");
    assert!(nar_request_count(&server) > 0);
    mount.remount("size=16m");
    let ran = copy("compression=zstd").expect(0);
    assert!(!ran.stderr.contains("warning"), "{}", ran.stderr);
}
