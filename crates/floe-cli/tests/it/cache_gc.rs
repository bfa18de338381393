//! `floe cache gc`: collections of caches beside pushes and pins.

mod races;

use std::ffi::OsString;
use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, SystemTime};

use floe_testkit::fault_proxy::{FaultProxy, ProxyFault};
use floe_testkit::fault_server::{Fault, FaultServer};
use floe_testkit::{CommandOutput, Corpus, Scratch, corpus, run, s3_server, scratch, wait_until};
use rustix::process::{Pid, Signal, kill_process};

use crate::push::{assert_nix_copies, floe_with_keys, key, source_root};
use crate::support::floe;

/// A cache in a directory with the closure of a corpus and a path that refers to none.
pub(crate) struct TeamCache {
    pub(crate) scratch: Scratch,
    pub(crate) corpus: Corpus,
    pub(crate) directory: PathBuf,
    pub(crate) uri: String,
    pub(crate) secret_key: String,
    pub(crate) public_key: String,
    pub(crate) other: String,
}

impl TeamCache {
    pub(crate) fn new() -> Option<TeamCache> {
        let corpus = corpus("jq")?;
        let scratch = scratch();
        let directory = scratch.join("cache");
        let (secret_key, public_key) = key(&scratch);
        let mut cache = TeamCache {
            // Others notice soon that a process was killed.
            uri: format!("file://{}?lease-lifetime=3", directory.display()),
            other: String::new(),
            scratch,
            corpus,
            directory,
            secret_key,
            public_key,
        };
        run(&mut cache.push(&cache.corpus.root)).expect(0);
        let file = cache.scratch.join("file");
        fs::write(&file, "contents").unwrap();
        let mut add = floe(["add", "--name", "other", "--to", &cache.uri]);
        cache.other = run(add.arg(file)).expect(0).stdout.trim().to_owned();
        Some(cache)
    }

    fn push(&self, path: &str) -> Command {
        let root = source_root(&self.corpus);
        let mut push = floe(["push", "--to", &self.uri, "--root", &root, path]);
        push.args(["--secret-key-file", &self.secret_key]);
        push
    }

    pub(crate) fn pin(&self, name: &str, path: &str) {
        run(&mut self.pin_command(name, path)).expect(0);
    }

    fn pin_command(&self, name: &str, path: &str) -> Command {
        let mut pin = floe(["pin", name, path, "--to", &self.uri]);
        pin.args(["--secret-key-file", &self.secret_key]);
        pin.env("HOME", self.scratch.path());
        pin
    }

    fn gc(&self, more: &[&str]) -> Command {
        let mut gc = floe(["cache", "gc", &self.uri]);
        gc.args(more);
        gc
    }

    fn has(&self, path: &str) -> bool {
        let part = &path["/nix/store/".len()..][..32];
        self.directory.join(format!("{part}.narinfo")).exists()
    }

    /// Whether a collection has announced its plan.
    fn has_plan(&self) -> bool {
        self.directory.join("gc/plan").exists()
    }

    fn leases(&self) -> usize {
        fs::read_dir(self.directory.join("leases")).map_or(0, Iterator::count)
    }

    /// Makes all objects two hours old.
    fn age(&self) {
        let then = SystemTime::now() - Duration::from_secs(2 * 3600);
        for folder in [self.directory.clone(), self.directory.join("nar")] {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_file() {
                    File::open(path).unwrap().set_modified(then).unwrap();
                }
            }
        }
    }

    /// Checks that the cache is sound, and that both Nixes and floe get the corpus out of it.
    fn check_corpus(&self) {
        let sound = run(&mut floe([
            "cache",
            "verify",
            "--contents",
            "--json",
            &self.uri,
        ]));
        let sound = sound.expect(0).json();
        assert_eq!(sound["unusedFiles"].as_array().unwrap().len(), 0, "{sound}");
        let cache = (&*self.uri, &*self.public_key);
        assert_nix_copies(&self.scratch, &self.corpus, cache);
    }
}

/// Returns the paths of the result of `floe cache gc --json`.
fn deleted(output: &CommandOutput) -> Vec<String> {
    let json = output.json();
    let paths = json["paths"].as_array().unwrap().iter();
    paths
        .map(|path| path.as_str().unwrap().to_owned())
        .collect()
}

fn signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

#[test]
fn pinned_closure_stays_and_the_rest_goes() {
    let Some(cache) = TeamCache::new() else {
        return;
    };
    let refused = run(&mut cache.gc(&["--grace", "0s"])).expect(2);
    assert!(
        refused.stderr.contains("it has no pin"),
        "{}",
        refused.stderr
    );
    cache.pin("jq", &cache.corpus.root);
    let kept = run(&mut cache.gc(&["--json"])).expect(0);
    assert_eq!(deleted(&kept), [""; 0], "younger than the grace period");
    let shown = run(&mut cache.gc(&["--grace", "0s", "--dry-run", "--json"])).expect(0);
    assert_eq!(deleted(&shown), [&*cache.other]);
    assert!(cache.has(&cache.other));
    let kept = run(&mut cache.gc(&["--grace", "0s", "--keep-since", "1d", "--json"])).expect(0);
    assert_eq!(deleted(&kept), [""; 0]);
    let report = run(&mut cache.gc(&["--grace", "0s", "--json"])).expect(0);
    assert_eq!(deleted(&report), [&*cache.other]);
    let json = report.json();
    assert_eq!((&json["files"], &json["pins"]), (&1.into(), &1.into()));
    assert_eq!(json["keptPaths"], cache.corpus.paths.len());
    assert!(!cache.has(&cache.other));
    cache.check_corpus();
    assert!(!cache.has_plan());
    assert_eq!(cache.leases(), 0);
}

#[test]
fn generations_of_pins_stay_as_long_as_the_user_wants() {
    let Some(cache) = TeamCache::new() else {
        return;
    };
    cache.pin("web", &cache.corpus.root);
    cache.pin("web", &cache.other);
    let two = ["--grace", "0s", "--keep-generations", "2", "--json"];
    assert_eq!(deleted(&run(&mut cache.gc(&two)).expect(0)), [""; 0]);
    let report = run(&mut cache.gc(&["--grace", "0s", "--json"])).expect(0);
    assert_eq!(deleted(&report).len(), cache.corpus.paths.len());
    assert_eq!(report.json()["pinGenerations"], 1);
    assert!(cache.has(&cache.other) && !cache.has(&cache.corpus.root));
    let generations = cache.directory.join("pin-generations");
    assert_eq!(fs::read_dir(generations).unwrap().count(), 1);
}

#[test]
fn bucket_is_collected() {
    let (Some(corpus), Some(server)) = (corpus("jq"), s3_server("team")) else {
        return;
    };
    let scratch = scratch();
    let uri = server.uri("team");
    let (key, _) = key(&scratch);
    let root = source_root(&corpus);
    let mut push = floe_with_keys(&server, &["push", "--to", &uri, "--root", &root]);
    run(push.arg(&corpus.root)).expect(0);
    let file = scratch.join("file");
    fs::write(&file, "contents").unwrap();
    let mut add = floe_with_keys(&server, &["add", "--to", &uri]);
    let other = run(add.arg(file)).expect(0).stdout.trim().to_owned();
    let mut pin = floe_with_keys(&server, &["pin", "jq", &corpus.root, "--to", &uri]);
    pin.args(["--secret-key-file", &key])
        .env("HOME", scratch.path());
    run(&mut pin).expect(0);
    let gc = |more: &[&str]| {
        let mut gc = floe_with_keys(&server, &["cache", "gc", "--json", &uri]);
        run(gc.args(more)).expect(0)
    };
    assert_eq!(deleted(&gc(&[])), [""; 0]);
    assert_eq!(deleted(&gc(&["--grace", "0s"])), [&*other]);
    let mut verify = floe_with_keys(&server, &["cache", "verify", "--contents", "--json", &uri]);
    let sound = run(&mut verify).expect(0).json();
    assert_eq!(sound["paths"], corpus.paths.len());
    assert_eq!(sound["unusedFiles"].as_array().unwrap().len(), 0, "{sound}");
    for folder in ["leases", "gc"] {
        let left = fs::read_dir(server.bucket("team").join(folder));
        assert_eq!(left.map_or(0, Iterator::count), 0, "{folder}");
    }
}

/// Not all services that speak S3 know the request that deletes many objects.
#[test]
fn objects_of_a_bucket_are_deleted_at_once_if_the_server_can() {
    let (Some(corpus), Some(server)) = (corpus("jq"), s3_server("team")) else {
        return;
    };
    let uri = server.uri("team");
    let root = source_root(&corpus);
    for refused in [false, true] {
        let mut push = floe_with_keys(&server, &["push", "--to", &uri, "--root", &root]);
        run(push.arg(&corpus.root)).expect(0);
        let before = server.request_count();
        let proxy = FaultProxy::start(server.address(), move |_, line| {
            if refused && line.starts_with("POST") && line.contains("?delete") {
                ProxyFault::StatusBefore(501)
            } else {
                ProxyFault::None
            }
        });
        let through = format!("s3://team?endpoint={}", proxy.url());
        let gc = ["cache", "gc", "--json", "--grace", "0s", &through];
        // Without pins, an age says what stays.
        let gc = [&gc[..], &["--keep-since", "0s"]].concat();
        let report = run(&mut floe_with_keys(&server, &gc)).expect(0);
        assert_eq!(deleted(&report).len(), corpus.paths.len());
        // The server removes the directory of the NARs with the last of them.
        assert!(!server.bucket("team").join("nar").exists());
        let left = fs::read_dir(server.bucket("team")).unwrap();
        let left = left.map(|entry| entry.unwrap().file_name());
        let is_narinfo = |name: &OsString| name.to_string_lossy().ends_with(".narinfo");
        assert_eq!(left.filter(is_narinfo).count(), 0);
        let log = server.log();
        let sent = log.lines().skip(before);
        let bulk = sent.filter(|line| line.contains(" s3_DeleteObjects "));
        assert_eq!(bulk.count() > 0, !refused);
        // One refusal is enough.
        assert_eq!(proxy.fault_count(), usize::from(refused));
    }
}

/// The server deletes all objects of a request but one, and says so.
#[test]
fn object_that_cannot_be_deleted_is_named() {
    let (Some(corpus), Some(server)) = (corpus("jq"), s3_server("team")) else {
        return;
    };
    let Some(chattr) = floe_testkit::find_tool("chattr", "e2fsprogs") else {
        return;
    };
    let uri = server.uri("team");
    let root = source_root(&corpus);
    let mut push = floe_with_keys(&server, &["push", "--to", &uri, "--root", &root]);
    run(push.arg(&corpus.root)).expect(0);
    let nars = fs::read_dir(server.bucket("team").join("nar")).unwrap();
    let nars: Vec<PathBuf> = nars.map(|entry| entry.unwrap().path()).collect();
    let change = |flag: &str| {
        let mut command = Command::new(&chattr);
        run(command.arg(flag).arg(&nars[0])).code == Some(0)
    };
    if !change("+i") {
        floe_testkit::skip("chattr", "not allowed here; run the tests as root");
        return;
    }
    let gc = [
        "cache",
        "gc",
        "--json",
        "--grace",
        "0s",
        "--keep-since",
        "0s",
        &uri,
    ];
    // The server says 500 for a single object, so that another attempt may help.
    let mut once = floe_with_keys(&server, &gc);
    let refused = run(once.args(["--option", "download-attempts", "1"]));
    let left = fs::read_dir(server.bucket("team").join("nar"))
        .unwrap()
        .count();
    assert!(change("-i"));
    assert_ne!(refused.code, Some(0));
    let name = nars[0].file_name().unwrap().to_str().unwrap();
    assert!(refused.stderr.contains(name), "{}", refused.stderr);
    assert_eq!(left, 1, "{}", refused.stderr);
    run(&mut floe_with_keys(&server, &gc)).expect(0);
    assert!(!nars[0].exists());
}

/// A large NAR has another name in a bucket, which is known before its end.
#[test]
fn large_nar_stays_until_its_narinfo_names_it() {
    let Some(server) = s3_server("team") else {
        return;
    };
    let scratch = scratch();
    let proxy = FaultProxy::start(server.address(), |_, line| {
        // The end of an upload in parts.
        if line.starts_with("POST") && line.contains("uploadId=") {
            ProxyFault::Slow(Duration::from_secs(6))
        } else {
            ProxyFault::None
        }
    });
    let options = "compression=none&lease-lifetime=15";
    let through = format!("s3://team?endpoint={}&{options}", proxy.url());
    let direct = format!("{}&{options}", server.uri("team"));
    let file = scratch.join("file");
    fs::write(&file, vec![7; 20 * 1024 * 1024]).unwrap();
    run(&mut floe_with_keys(&server, &["cache", "init", &direct])).expect(0);
    let mut add = floe_with_keys(&server, &["add", "--to", &through]);
    let adding = add.arg(&file).stdout(Stdio::null()).spawn().unwrap();
    let nars = || fs::read_dir(server.bucket("team").join("nar")).map_or(0, Iterator::count);
    wait_until("the NAR", || nars() == 1);
    // The NAR becomes older than the grace period.
    std::thread::sleep(Duration::from_secs(2));
    let gc = [
        "cache",
        "gc",
        "--json",
        "--grace",
        "1s",
        "--keep-since",
        "1s",
        &direct,
    ];
    let report = run(&mut floe_with_keys(&server, &gc)).expect(0).json();
    assert_eq!(report["files"], 0, "{report}");
    assert!(adding.wait_with_output().unwrap().status.success());
    let verify = ["cache", "verify", "--contents", "--json", &direct];
    let sound = run(&mut floe_with_keys(&server, &verify)).expect(0).json();
    assert_eq!(sound["paths"], 1, "{sound}");
    assert!(proxy.fault_count() > 0);
}

#[test]
fn objects_that_are_no_files_do_not_harm() {
    let Some(cache) = TeamCache::new() else {
        return;
    };
    cache.pin("jq", &cache.corpus.root);
    fs::create_dir(cache.directory.join("nar/directory")).unwrap();
    let part = "0".repeat(32);
    fs::create_dir(cache.directory.join(format!("{part}.ls"))).unwrap();
    // A link is another name of a file.
    let root = &cache.corpus.root["/nix/store/".len()..][..32];
    let narinfo = fs::read_to_string(cache.directory.join(format!("{root}.narinfo"))).unwrap();
    let url = narinfo
        .lines()
        .find_map(|line| line.strip_prefix("URL: "))
        .unwrap();
    let (file, other) = (cache.directory.join(url), cache.directory.join("nar/other"));
    fs::rename(&file, &other).unwrap();
    std::os::unix::fs::symlink("other", &file).unwrap();
    let report = run(&mut cache.gc(&["--grace", "0s", "--json"])).expect(0);
    assert_eq!(deleted(&report), [&*cache.other]);
    assert!(file.exists() && other.exists());
    // The references of an unreadable narinfo are not known.
    fs::create_dir(cache.directory.join(format!("{part}.narinfo"))).unwrap();
    let refused = run(&mut cache.gc(&["--grace", "0s"])).expect(1);
    assert!(refused.stderr.contains(&part), "{}", refused.stderr);
}

/// The push finds all of its paths in the cache, which a collection wants to delete.
#[test]
fn push_beside_a_collection_keeps_what_it_counts_on() {
    let Some(cache) = TeamCache::new() else {
        return;
    };
    cache.pin("other", &cache.other);
    cache.age();
    let mut gc = cache.gc(&["--grace", "4s", "--json"]);
    gc.stdout(Stdio::piped());
    let collection = gc.spawn().unwrap();
    wait_until("the plan", || cache.has_plan());
    let push = run(cache.push(&cache.corpus.root).arg("--json")).expect(0);
    assert_eq!(push.json()["copied"], 0, "{}", push.stdout);
    assert!(cache.has_plan(), "the collection has ended too early");
    cache.pin("jq", &cache.corpus.root);
    let ended = collection.wait_with_output().unwrap();
    assert!(ended.status.success(), "{ended:?}");
    let report: serde_json::Value = serde_json::from_slice(&ended.stdout).unwrap();
    assert_eq!(
        report["keptForPushes"],
        cache.corpus.paths.len(),
        "{report}"
    );
    cache.check_corpus();
}

#[test]
fn collection_removes_temporary_files_of_killed_writers() {
    let Some(cache) = TeamCache::new() else {
        return;
    };
    cache.pin("jq", &cache.corpus.root);
    cache.pin("other", &cache.other);
    let [a, b] = ["nar/.floe-a.tmp", ".floe-b.tmp"].map(|name| cache.directory.join(name));
    fs::write(&a, "").and_then(|()| fs::write(&b, "")).unwrap();
    let report = run(&mut cache.gc(&["--grace", "0s", "--json"])).expect(0);
    assert_eq!(deleted(&report), [""; 0]);
    assert!(!a.exists() && !b.exists());
}

#[test]
fn next_collection_cleans_up_after_a_killed_one() {
    let Some(cache) = TeamCache::new() else {
        return;
    };
    cache.pin("jq", &cache.corpus.root);
    cache.age();
    let start = || {
        let mut gc = cache.gc(&["--grace", "30s"]);
        let child = gc.stderr(Stdio::piped()).spawn().unwrap();
        wait_until("the plan", || cache.has_plan());
        child
    };
    let interrupted = start();
    signal(&interrupted, Signal::TERM);
    let ended = interrupted.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(130));
    let stderr = String::from_utf8_lossy(&ended.stderr);
    assert!(stderr.contains("another floe cache gc goes on"), "{stderr}");
    assert!(
        !cache.has_plan(),
        "an interrupted collection removes its plan"
    );
    let mut killed = start();
    signal(&killed, Signal::KILL);
    killed.wait().unwrap();
    let refused = run(&mut cache.gc(&["--grace", "0s"])).expect(1);
    assert!(
        refused.stderr.contains("another collection"),
        "{}",
        refused.stderr
    );
    wait_until("the end of the plan", || {
        let age = fs::metadata(cache.directory.join("gc/plan")).unwrap();
        age.modified().unwrap().elapsed().unwrap() > Duration::from_secs(3)
    });
    let report = run(&mut cache.gc(&["--grace", "0s", "--json"])).expect(0);
    assert_eq!(deleted(&report), [&*cache.other]);
    assert_eq!(fs::read_dir(cache.directory.join("gc")).unwrap().count(), 0);
    cache.check_corpus();
}

/// A collection deletes the references of a path while the copy of the path stands still for longer
/// than its lease. The copy notices that, and copies them as well.
#[test]
fn copy_that_stood_still_checks_everything_again() {
    let Some(cache) = TeamCache::new() else {
        return;
    };
    let root = &cache.corpus.root;
    let references = cache.corpus.paths.len() - 1;
    cache.pin("other", &cache.other);
    let hash_part = &root["/nix/store/".len()..][..32];
    fs::remove_file(cache.directory.join(format!("{hash_part}.narinfo"))).unwrap();
    cache.age();
    // The source sends the NAR of the root late.
    let source = cache.corpus.cache("zstd");
    let server = FaultServer::start(&source);
    server.fail(".nar.zst", Fault::Delayed(Duration::from_secs(7)));
    let to = format!("{}&secret-key={}", cache.uri, cache.secret_key);
    let mut copying = floe(["copy", "--from", &server.url(), "--to", &to, root]);
    copying.stderr(Stdio::piped());
    let child = copying.spawn().unwrap();
    wait_until("the request for the NAR", || server.fault_count() > 0);
    assert_eq!(cache.leases(), 1);
    signal(&child, Signal::STOP);
    // The lease expires.
    std::thread::sleep(Duration::from_secs(4));
    let report = run(&mut cache.gc(&["--grace", "0s", "--json"])).expect(0);
    assert_eq!(deleted(&report).len(), references);
    signal(&child, Signal::CONT);
    server.clear_faults();
    let ended = child.wait_with_output().unwrap();
    let stderr = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(0), "{stderr}");
    assert!(
        stderr.contains(&format!("copying {references} paths")),
        "{stderr}"
    );
    cache.check_corpus();
}
