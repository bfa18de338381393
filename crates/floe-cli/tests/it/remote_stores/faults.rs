//! Faults of a connection to a daemon, and of the daemon itself.

use std::io::Read as _;
use std::path::Path;
use std::time::Duration;

use floe_testkit::socket_proxy::{CuttingProxy, Direction};
use floe_testkit::{Corpus, XorShift, corpus, nixes, run, scratch, wait_until};

use crate::kill::kill;
use crate::support::{floe, floe_with_time_limit};
use crate::tmpfs_mount::mount;

pub(super) fn copy(corpus: &Corpus, from: &str, to: &str) -> std::process::Command {
    let mut command = floe_with_time_limit(["copy", "--no-check-sigs", "--from", from]);
    command.args(["--to", to, &corpus.root]);
    command
}

pub(super) fn socket_uri(socket: &Path) -> String {
    format!("unix://{}", socket.display())
}

/// The number of cuts: each takes about 0.2 s.
fn cut_count() -> usize {
    match std::env::var_os("FLOE_TEST_FULL") {
        Some(_) => 300,
        None => 50,
    }
}

/// Most of the bytes belong to NARs, so half of the cuts are within the first and last messages.
fn place_of_cut(random: &mut XorShift, total: usize) -> usize {
    match random.below(4) {
        0 => 1 + random.below(2000),
        1 => total - random.below(total.min(2000)),
        _ => 1 + random.below(total - 1),
    }
}

#[test]
fn cut_copies_leave_valid_paths_and_the_next_one_completes() {
    let (Some(corpus), Some(nix)) = (corpus("jq"), nixes().pop()) else {
        return;
    };
    let scratch = scratch();
    let from = corpus.file_url("zstd");
    let mut random = XorShift(20);
    let mut cuts = 0;
    for number in 0..cut_count() {
        let root = scratch.join(&format!("behind-{number}"));
        let daemon = nix.daemon(&root, "");
        let (direction, total) = match random.below(2) {
            // The NARs, and the requests before them.
            0 => (Direction::ToServer, 14_000_000),
            // One short reply for each request.
            _ => (Direction::ToClient, 400),
        };
        let place = place_of_cut(&mut random, total);
        let proxy = CuttingProxy::start(&daemon.socket(), Some((direction, place)));
        let uri = socket_uri(&proxy.socket());
        let ran = run(&mut copy(&corpus, &from, &uri));
        if proxy.cut_count() > 0 && ran.code != Some(0) {
            cuts += 1;
            assert!(ran.stderr.contains(&uri), "{place}: {}", ran.stderr);
        }
        nix.verify(&root, 0);
        run(&mut copy(&corpus, &from, &daemon.uri())).expect(0);
        nix.verify(&root, corpus.paths.len());
        drop(daemon);
        floe_store::tree::remove_tree(&root).unwrap();
    }
    assert!(cuts > cut_count() / 2, "only {cuts} copies were cut");
}

#[test]
fn cut_reads_leave_valid_paths_and_the_next_one_completes() {
    let (Some(corpus), Some(nix)) = (corpus("jq"), nixes().pop()) else {
        return;
    };
    let scratch = scratch();
    let daemon = nix.daemon(&corpus.store(), "");
    let mut random = XorShift(30);
    let mut cuts = 0;
    for number in 0..cut_count() {
        let root = scratch.join(&format!("copied-{number}"));
        let root_uri = root.display().to_string();
        let (direction, total) = match random.below(4) {
            0 => (Direction::ToServer, 500),
            _ => (Direction::ToClient, 14_000_000),
        };
        let place = place_of_cut(&mut random, total);
        let proxy = CuttingProxy::start(&daemon.socket(), Some((direction, place)));
        let ran = run(&mut copy(&corpus, &socket_uri(&proxy.socket()), &root_uri));
        if proxy.cut_count() > 0 && ran.code != Some(0) {
            cuts += 1;
            assert_eq!(ran.code, Some(4), "{place}: {}", ran.stderr);
            assert!(ran.stderr.contains("unix://"), "{}", ran.stderr);
        }
        run(&mut copy(&corpus, &daemon.uri(), &root_uri)).expect(0);
        nix.verify(&root, corpus.paths.len());
        floe_store::tree::remove_tree(&root).unwrap();
    }
    assert!(cuts > cut_count() / 2, "only {cuts} copies were cut");
}

#[test]
fn kills_on_either_side_leave_valid_paths_and_no_process() {
    let (Some(corpus), Some(nix)) = (corpus("curl"), nixes().pop()) else {
        return;
    };
    let scratch = scratch();
    let root = scratch.join("behind");
    let mut daemon = nix.daemon(&root, "");
    let from = corpus.file_url("xz");
    let store = root.join("nix/store");
    let has_some = || std::fs::read_dir(&store).is_ok_and(|it| it.count() > 5);
    // The daemon.
    let mut command = copy(&corpus, &from, &daemon.uri());
    command.args(["--jobs", "1"]);
    let mut child = command
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    wait_until("some paths are there", has_some);
    daemon.kill();
    let mut stderr = String::new();
    child
        .stderr
        .take()
        .unwrap()
        .read_to_string(&mut stderr)
        .unwrap();
    assert!(!child.wait().unwrap().success(), "the copy was too fast");
    assert!(
        stderr.contains("closed the connection") || stderr.contains("reset"),
        "{stderr}"
    );
    drop(daemon);
    nix.verify(&root, 1);
    floe_store::tree::remove_tree(&root).unwrap();
    // floe, with a daemon that it has started itself.
    nix.store(&root, ["--dump-db"]);
    let words = nix.remote_program("nix-daemon", &scratch.join("conf"), "");
    let marker = scratch.join("behind").display().to_string();
    let uri = format!("ssh-ng://localhost?remote-program={words}&remote-store={marker}");
    // Not by `timeout`, which would be killed instead.
    let mut command = floe(["copy", "--no-check-sigs", "--jobs", "1", "--from", &from]);
    let child = command.args(["--to", &uri, &corpus.root]).spawn().unwrap();
    wait_until("some paths are there", has_some);
    assert!(kill(child));
    wait_until("the daemon has ended", || {
        let found = run(std::process::Command::new("pgrep").args(["-f", &marker]));
        found.stdout.is_empty()
    });
    nix.verify(&root, 1);
    run(&mut copy(&corpus, &from, &uri)).expect(0);
    nix.verify(&root, corpus.paths.len());
}

#[test]
fn process_that_keeps_stderr_open_does_not_delay_the_end() {
    let (Some(corpus), Some(nix)) = (corpus("jq"), nixes().pop()) else {
        return;
    };
    let scratch = scratch();
    let root = scratch.join("behind");
    nix.store(&root, ["--dump-db"]);
    let words = nix.remote_program("nix-daemon", &scratch.join("conf"), "");
    for (last, code) in [("exec \"$@\"", 0), ("exit 9", 4)] {
        let script = scratch.join("wrapper");
        // As a connection of ssh that stays for later ones.
        let text = format!("sleep 20 < /dev/null > /dev/null &\n{last}\n");
        std::fs::write(&script, text).unwrap();
        let (script, store) = (script.display(), root.display());
        let uri = format!(
            "ssh-ng://localhost?remote-program=sh%20{script}%20{words}&remote-store={store}"
        );
        let began = std::time::Instant::now();
        let mut command = copy(&corpus, &corpus.file_url("zstd"), &uri);
        // The wrapper's child must not keep the pipes of this test open either.
        let log = std::fs::File::create(scratch.join("log")).unwrap();
        let status = command
            .stderr(log)
            .stdout(std::process::Stdio::null())
            .status();
        assert_eq!(status.unwrap().code(), Some(code));
        assert!(began.elapsed() < Duration::from_secs(15));
    }
}

#[test]
fn full_disk_of_the_daemon_names_the_path() {
    let (Some(corpus), Some(nix)) = (corpus("jq"), nixes().pop()) else {
        return;
    };
    let Some(disk) = mount("size=8m") else { return };
    let words = nix.remote_program("nix-daemon", &disk.sibling("conf"), "gc-reserved-space = 0");
    let store = disk.mount_point().join("root").display().to_string();
    let uri = format!("ssh-ng://localhost?remote-program={words}&remote-store={store}");
    let ran = disk.run(&copy(&corpus, &corpus.file_url("zstd"), &uri));
    assert_ne!(ran.code, Some(0));
    assert!(
        ran.stderr.contains("o space left on device"),
        "{}",
        ran.stderr
    );
    assert!(ran.stderr.contains("cannot add"), "{}", ran.stderr);
}

#[test]
fn overlapping_copies_survive_collections() {
    let (Some(jq), Some(curl)) = (corpus("jq"), corpus("curl")) else {
        return;
    };
    for nix in nixes() {
        let scratch = scratch();
        let root = scratch.join("behind");
        let daemon = nix.daemon(&root, "");
        let links = ["jq", "curl"].map(|name| scratch.join(name));
        let start = |corpus: &Corpus, link: &Path| {
            let mut command = copy(corpus, &corpus.file_url("zstd"), &daemon.uri());
            command.arg("--out-link").arg(link).spawn().unwrap()
        };
        let mut children = [start(&jq, &links[0]), start(&curl, &links[1])];
        let mut collections = 0;
        while children
            .iter_mut()
            .any(|it| it.try_wait().unwrap().is_none())
        {
            nix.store(&root, ["--gc"]);
            collections += 1;
        }
        assert!(collections > 0);
        nix.store(&root, ["--gc"]);
        for (child, corpus) in children.iter_mut().zip([&jq, &curl]) {
            let infos = || nix.path_infos(root.to_str().unwrap(), &corpus.root).len();
            if child.wait().unwrap().success() {
                assert_eq!(infos(), corpus.paths.len())
            } else {
                // Collectors before Nix 2.36 may delete temporary roots. Then the copy fails.
                let mut again = copy(corpus, &corpus.file_url("zstd"), &daemon.uri());
                run(&mut again).expect(0);
                assert_eq!(infos(), corpus.paths.len());
            }
        }
        nix.verify(&root, curl.paths.len());
    }
}

#[test]
fn path_deleted_before_its_root_is_copied_again() {
    let (Some(corpus), Some(nix)) = (corpus("jq"), nixes().pop()) else {
        return;
    };
    if floe_testkit::find_tool("strace", "strace").is_none() {
        return;
    }
    let scratch = scratch();
    let root = scratch.join("behind");
    let daemon = nix.daemon(&root, "");
    let log = scratch.join("log");
    // The copy stops before it makes the link: all paths are valid then.
    let mut command = std::process::Command::new("strace");
    let copy = copy(&corpus, &corpus.file_url("zstd"), &daemon.uri());
    command.args(["-f", "-qq", "-e"]);
    command.args(["inject=symlink,symlinkat:signal=SIGSTOP:when=1", "-e"]);
    command
        .arg("trace=symlink,symlinkat")
        .arg("-o")
        .arg(&log)
        .arg(env!("CARGO_BIN_EXE_floe"));
    command.args(copy.get_args().skip_while(|it| *it != "copy"));
    command.arg("--out-link").arg(scratch.join("result"));
    floe_testkit::hide_nix_conf(&mut command);
    command.stderr(std::process::Stdio::piped());
    let child = command.spawn().unwrap();
    let stopped = || stopped_process(&log);
    wait_until("the copy has stopped at its link", || stopped().is_some());
    // As a collector that chose the paths before they had temporary roots.
    for file in std::fs::read_dir(root.join("nix/var/nix/temproots")).unwrap() {
        std::fs::remove_file(file.unwrap().path()).unwrap();
    }
    let paths = nix.path_infos(root.to_str().unwrap(), &corpus.root);
    assert_eq!(paths.len(), corpus.paths.len());
    nix.store(&root, ["--gc"]);
    rustix::process::kill_process(stopped().unwrap(), rustix::process::Signal::CONT).unwrap();
    let output = child.wait_with_output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    assert!(
        stderr.contains("a garbage collection has deleted it"),
        "{stderr}"
    );
    nix.store(&root, ["--gc"]);
    let found = nix.path_infos(root.to_str().unwrap(), &corpus.root).len();
    assert_eq!(found, corpus.paths.len());
}

#[test]
fn root_beside_a_collection_that_chose_the_path_survives() {
    let (Some(corpus), Some(nix)) = (corpus("jq"), nixes().pop()) else {
        return;
    };
    if floe_testkit::find_tool("strace", "strace").is_none() {
        return;
    }
    let scratch = scratch();
    let root = scratch.join("behind");
    let daemon = nix.daemon(&root, "");
    let from = corpus.file_url("zstd");
    run(&mut copy(&corpus, &from, &daemon.uri())).expect(0);
    // The collector has chosen the path, and takes two seconds to delete its row.
    let collect = nix.command("nix-store", ["--store".as_ref(), root.as_os_str()]);
    let mut command = std::process::Command::new("strace");
    command.args(["-f", "-qq", "-o", "/dev/null"]);
    command.args(["-e", "trace=pwrite64", "-P"]);
    command.arg(root.join("nix/var/nix/db/db.sqlite-wal"));
    command.args(["-e", "inject=pwrite64:delay_enter=2000000:when=1"]);
    command.arg(collect.get_program()).args(collect.get_args());
    command.arg("--gc").stderr(std::process::Stdio::null());
    let environment = collect.get_envs();
    command.envs(environment.filter_map(|(name, value)| Some((name, value?))));
    let socket = root.join("nix/var/nix/gc-socket/socket");
    let _: std::io::Result<()> = std::fs::remove_file(&socket);
    let mut collector = command.spawn().unwrap();
    wait_until("the collector listens", || {
        std::os::unix::net::UnixStream::connect(&socket).is_ok()
    });
    let mut again = copy(&corpus, &from, &daemon.uri());
    again.arg("--out-link").arg(scratch.join("result"));
    run(&mut again).expect(0);
    assert!(collector.wait().unwrap().success());
    nix.store(&root, ["--gc"]);
    let found = nix.path_infos(root.to_str().unwrap(), &corpus.root).len();
    assert_eq!(found, corpus.paths.len());
}

/// Returns the process that stopped, by the log of strace.
fn stopped_process(log: &Path) -> Option<rustix::process::Pid> {
    let log = std::fs::read_to_string(log).unwrap_or_default();
    let line = log
        .lines()
        .find(|line| line.contains("stopped by SIGSTOP"))?;
    rustix::process::Pid::from_raw(line.split_whitespace().next()?.parse().ok()?)
}
