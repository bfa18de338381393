//! Faults of the machine while a server runs: a full disk, used-up descriptors, a clock that jumps.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread;

use floe_testkit::http_client::{Client, narinfo_of};
use floe_testkit::{corpus, find_tool, run, scratch, wait_until};
use rustix::process::geteuid;

use crate::serve_logins::{add_token, bearer};
use crate::serve_options::serve;
use crate::server_process::ServerProcess;

/// A file system in memory, which the drop unmounts.
struct SmallDisk<'p>(&'p Path);

impl<'p> SmallDisk<'p> {
    fn mount(place: &'p Path, size: &str) -> SmallDisk<'p> {
        fs::create_dir(place).unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"]);
        run(mount.arg(place)).expect(0);
        SmallDisk(place)
    }

    fn resize(&self, size: &str) {
        let mut mount = Command::new("mount");
        mount.args(["-o", &format!("remount,size={size}")]);
        run(mount.arg(self.0)).expect(0);
    }
}

impl Drop for SmallDisk<'_> {
    fn drop(&mut self) {
        let _: std::io::Result<_> = Command::new("umount").arg(self.0).status();
    }
}

/// NARs are sent uncompressed as long as there is no room for compressed ones.
#[test]
fn full_side_cache_costs_no_download() {
    let Some(corpus) = corpus("jq") else { return };
    if !geteuid().is_root() {
        return;
    }
    let scratch = scratch();
    let place = scratch.join("side");
    let disk = SmallDisk::mount(&place, "64k");
    let side = place.display().to_string();
    let server = ServerProcess::start(corpus.store(), &["--compressed-cache", &side]);
    let encodings = || {
        let encoding = |path: &String| {
            let narinfo = server.get(&narinfo_of(path));
            let target = format!("/{}", narinfo.narinfo_field("URL"));
            let nar = server.get_with(&target, "Accept-Encoding: zstd\r\n");
            assert_eq!(nar.status, 200, "{path}");
            let contents = match nar.field("Content-Encoding") {
                Some("zstd") => zstd::decode_all(&nar.body[..]).unwrap(),
                other => {
                    assert_eq!(other, None);
                    nar.body.clone()
                }
            };
            let hash = floe_format::Hash::sha256(floe_hash::sha256(&contents));
            assert_eq!(narinfo.narinfo_field("NarHash"), hash.to_nix32(), "{path}");
            nar.field("Content-Encoding").is_some()
        };
        corpus.paths.iter().map(encoding).collect::<Vec<_>>()
    };
    encodings();
    wait_until("a warning", || server.stderr().contains("No space left"));
    let before = encodings();
    assert!(before.contains(&false), "everything fits");
    disk.resize("50m");
    wait_until("compressed NARs", || encodings().iter().all(|it| *it));
    let stderr = server.stop();
    let warnings = stderr.matches("warning").count();
    assert!(warnings == 1 && !stderr.contains("panic"), "{stderr}");
}

/// A server that can open no more files pauses, and goes on as soon as it can.
#[test]
fn used_up_descriptors_delay_clients() {
    let Some(corpus) = corpus("jq") else { return };
    let Some(prlimit) = find_tool("prlimit", "util-linux") else {
        return;
    };
    let server = ServerProcess::start(corpus.store(), &["--threads", "1"]);
    let mut first = server.connect();
    let narinfo = narinfo_of(&corpus.root);
    assert_eq!(first.request("GET", &narinfo, "").status, 200);
    let limit = |files: usize| {
        let mut command = Command::new(&prlimit);
        command.arg(format!("--pid={}", server.pid()));
        run(command.arg(format!("--nofile={files}:"))).expect(0);
    };
    let open = format!("/proc/{}/fd", server.pid());
    let is_open = |number: usize| Path::new(&open).join(number.to_string()).is_symlink();
    // The next file would get this number.
    limit((0..).find(|number| !is_open(*number)).unwrap());
    thread::scope(|scope| {
        let waiting = scope.spawn(|| server.connect().request("GET", &narinfo, "").status);
        wait_until("the warning", || {
            server.stderr().contains("too many open files")
        });
        // The clients that are connected notice nothing, as far as no file is needed.
        assert_eq!(first.request("GET", &narinfo, "").status, 200);
        assert!(!waiting.is_finished());
        limit(1000);
        assert_eq!(waiting.join().unwrap(), 200);
    });
    let nar = format!("/{}", server.get(&narinfo).narinfo_field("URL"));
    assert_eq!(server.get(&nar).status, 200);
    server.stop();
}

/// Only what has a date depends on the clock: logins, but no connection and no wait.
#[test]
fn clock_that_jumps_ends_no_connection() {
    let Some(corpus) = corpus("jq") else { return };
    let Some(faketime) = find_tool("faketime", "faketime") else {
        return;
    };
    let printed = run(Command::new(faketime).args(["now", "printenv", "LD_PRELOAD"])).expect(0);
    let scratch = scratch();
    let clock = scratch.join("clock");
    let set = |offset: &str| fs::write(&clock, offset).unwrap();
    set("+0");
    let logins = scratch.join("logins");
    let short = bearer(&add_token(&logins, &["short", "--expires", "1d"]));
    let long = bearer(&add_token(&logins, &["long"]));
    let mut command = serve(&["serve", "--listen", "127.0.0.1:0", "--auth-file"]);
    command.arg(&logins).arg("--store").arg(corpus.store());
    command.env("LD_PRELOAD", printed.stdout.trim());
    command.env("FAKETIME_TIMESTAMP_FILE", &clock);
    command.envs([
        ("FAKETIME_NO_CACHE", "1"),
        ("FAKETIME_DONT_FAKE_MONOTONIC", "1"),
    ]);
    let server = ServerProcess::spawn(&mut command);
    let mut clients: [Client; 2] = [server.connect(), server.connect()];
    let mut statuses = || {
        let [first, second] = &mut clients;
        let target = narinfo_of(&corpus.root);
        [
            first.request("GET", &target, &short).status,
            second.request("GET", &target, &long).status,
        ]
    };
    assert_eq!(statuses(), [200, 200]);
    set("+10d");
    assert_eq!(statuses(), [401, 200]);
    set("-10d");
    assert_eq!(statuses(), [200, 200]);
    assert_eq!(server.stop(), "");
}
