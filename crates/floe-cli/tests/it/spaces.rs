//! Checks for free space: copies that cannot fit are rejected early, tight ones cause a warning,
//! and a dry run prints what is needed and free.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::faulty::{Faulty, faulty};
use crate::mounts::{Mount, mount};
use crate::server::Server;
use crate::support::floe;

/// A cache of a closure with 13.5 MiB in 373 inodes, and a small file system for the store.
fn stage(options: &str) -> Option<(Faulty, Server, Mount)> {
    let cache = faulty("zstd")?;
    let server = Server::start(&cache.cache);
    Some((cache, server, mount(options)?))
}

fn install(cache: &Faulty, from: &str, root: &Path) -> Command {
    let mut command = floe(["install", "--from", from, "--trusted-public-keys"]);
    command.args([&cache.corpus.key, "--root"]).arg(root);
    command.arg(&cache.corpus.root);
    command
}

/// Counts requests for NARs.
fn nars(server: &Server) -> usize {
    let hits = server.hits();
    hits.iter().filter(|hit| hit.path.contains("/nar/")).count()
}

#[test]
fn what_cannot_fit_is_refused_before_any_nar_is_asked_for() {
    let Some((cache, server, mount)) = stage("size=9m") else {
        return;
    };
    let root = mount.root();
    let mut command = install(&cache, &server.url(), &root);
    let ran = mount.run(&command).expect(5);
    let place = format!("{} (tmpfs)", mount.place().display());
    let store = format!("written to {}/nix/store", root.display());
    ran.says("about 14.4 MiB are to be")
        .says(&store)
        .says(&place)
        .says(" free; nothing was fetched")
        .says("--no-check-space");
    let narinfos = server.hits_on(".narinfo").len();
    assert_eq!(
        narinfos,
        cache.corpus.paths.len(),
        "the closure was not resolved"
    );
    assert_eq!(nars(&server), 0, "{:?}", server.hits());

    // With --no-check-space, the copy starts and fails when the disk is full.
    mount
        .run(command.arg("--no-check-space"))
        .expect(5)
        .says("No space left on device");
    assert!(nars(&server) > 0);

    mount.remount("size=64m");
    let ran = mount.run(&install(&cache, &server.url(), &root)).expect(0);
    assert!(!ran.stderr.contains("warning"), "{}", ran.stderr);
    assert_eq!(mount.assert_sound().len(), cache.corpus.paths.len());
}

#[test]
fn fewer_inodes_than_paths_are_refused_and_few_of_them_are_warned_of() {
    let Some((cache, server, mount)) = stage("size=64m") else {
        return;
    };
    let root = mount.root();
    // Create an empty store, so that its inodes can be counted.
    let absent = "00000000000000000000000000000000";
    let mut nothing = floe(["install", "--from", &server.url(), "--root"]);
    mount.run(nothing.arg(&root).arg(absent)).expect(1);
    let (_, left) = mount.left();
    let mut command = Command::new("find");
    let used = mount.run(command.arg(mount.place())).expect(0);
    // The count includes the root directory of the file system.
    let used = used.stdout.lines().count() as u64;
    assert!(left > 1000, "{left} inodes");

    // The temporary roots file needs one more inode than there are.
    let paths = cache.corpus.paths.len() as u64;
    mount.remount(&format!("nr_inodes={}", used + paths));
    let ran = mount.run(&install(&cache, &server.url(), &root)).expect(5);
    ran.says(&format!("{paths} paths, each of an inode or more,"))
        .says(" inodes free; nothing was fetched");
    assert_eq!(nars(&server), 0, "{:?}", server.hits());

    // Enough for the actual inodes, but less than the estimate.
    mount.remount(&format!("nr_inodes={}", used + 420));
    let ran = mount.run(&install(&cache, &server.url(), &root)).expect(0);
    ran.says("floe: warning: about 436 inodes are to be written")
        .says("it may not fit");
    assert_eq!(mount.assert_sound().len() as u64, paths);
}

#[test]
fn a_dry_run_says_what_is_wanted_and_free_on_the_right_file_system() {
    let Some((cache, server, mount)) = stage("size=9m,nr_inodes=1000") else {
        return;
    };
    // Only the store directory is on the small file system. It does not exist yet.
    let real = mount.place().join("deep/store");
    let to = format!(
        "local?root={}&real={}",
        mount.beside("root").display(),
        real.display()
    );
    let dry_run = |more: &[&str]| {
        let mut command = floe(["install", "--dry-run", "--from", &server.url(), "--to", &to]);
        command.args(["--trusted-public-keys", &cache.corpus.key]);
        mount.run(command.arg(&cache.corpus.root).args(more))
    };
    let (blocks, inodes) = mount.left();
    let object = dry_run(&["--json"]).expect(0).json();
    let nar_sizes = object["planned"].as_array().unwrap().iter();
    let nar_bytes: u64 = nar_sizes
        .map(|path| path["narSize"].as_u64().unwrap())
        .sum();
    let place = mount.place().display().to_string();
    assert_eq!(object["fileSystem"]["directory"], *place);
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
    ran.says("to write: about 14.4")
        .says(&format!("{estimate} inodes, to {place} (tmpfs)"))
        .says(&format!("{inodes} inodes free"))
        .says("it cannot fit");
    let ran = dry_run(&["--no-check-space"]).expect(0);
    assert!(!ran.stderr.contains("cannot fit"), "{}", ran.stderr);
    assert_eq!(nars(&server), 0, "{:?}", server.hits());
    assert!(!mount.seen(&mount.place().join("deep")).exists());

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
fn a_cache_that_cannot_hold_the_nars_is_refused_and_one_that_compresses_is_warned_of() {
    let Some((cache, server, mount)) = stage("size=3m") else {
        return;
    };
    let copy = |parameters: &str| {
        let to = format!("file://{}/cache?{parameters}", mount.place().display());
        let mut command = floe(["copy", "--from", &server.url(), "--to", &to]);
        command.arg(&cache.corpus.root);
        mount.run(&command)
    };
    let place = format!("{}/cache/nar", mount.place().display());
    copy("compression=none")
        .expect(5)
        .says(&place)
        .says("nothing was fetched");
    assert_eq!(nars(&server), 0, "{:?}", server.hits());
    copy("compression=zstd").expect(5).says("it may not fit");
    assert!(nars(&server) > 0);
    mount.remount("size=16m");
    let ran = copy("compression=zstd").expect(0);
    assert!(!ran.stderr.contains("warning"), "{}", ran.stderr);
}
