//! The process of a server: addresses, signals, users and daemon mode.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use floe_testkit::{
    Corpus, Scratch, TIMEOUT, copy_program, corpus, run, scratch, skip, wait_until,
};
use rustix::process::Signal;

use super::running_server::{RunningServer, exchange, get, kill};
use super::{key_file, serve};
use crate::support::floe;

/// Returns `floe serve` for a corpus on a port that the system chooses.
pub(super) fn floe_serve(corpus: &Corpus) -> Command {
    let mut command = serve(&["serve", "--listen", "127.0.0.1:0", "--store"]);
    command.arg(corpus.store());
    command
}

/// Returns the same for `nix-serve`.
pub(super) fn nix_serve(corpus: &Corpus) -> Command {
    let mut command = serve(&["nix-serve", "--host", "127.0.0.1", "--port=0", "--store"]);
    command.arg(corpus.store()).stdout(Stdio::null());
    command
}

pub(super) fn narinfo(path: &str) -> String {
    let name = path.rsplit('/').next().unwrap();
    format!("/{}.narinfo", name.split('-').next().unwrap())
}

/// Installs the corpus into a root that every user may read. The corpus itself may be unreadable.
pub(super) fn open_root(corpus: &Corpus, scratch: &Scratch) -> PathBuf {
    fs::set_permissions(scratch.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let root = scratch.join("root");
    let from = corpus.file_url("none");
    let args = [
        "install",
        "--trusted-public-keys",
        &corpus.key,
        "--from",
        &from,
        "--root",
    ];
    run(floe(args).arg(&root).arg(&corpus.root)).expect(0);
    root
}

/// Returns a line of `/proc/PID/status`. Asserts that it is the same for every thread.
#[track_caller]
fn status_of(pid: u32, field: &str) -> String {
    let mut lines = Vec::new();
    for thread in fs::read_dir(format!("/proc/{pid}/task")).unwrap() {
        let text = fs::read_to_string(thread.unwrap().path().join("status")).unwrap();
        let line = text.lines().find(|line| line.starts_with(field)).unwrap();
        lines.push(line.to_owned());
    }
    assert!(lines.iter().all(|line| *line == lines[0]), "{lines:?}");
    lines.swap_remove(0)
}

fn is_root() -> bool {
    fs::metadata("/proc/self").unwrap().uid() == 0
}

#[test]
fn every_listen_address_is_announced_and_answers() {
    let Some(corpus) = corpus("jq") else { return };
    let scratch = scratch();
    let socket = scratch.join("socket");
    let mut command = floe_serve(&corpus);
    command.args(["--listen", "[::1]:0", "--priority", "7", "--socket"]);
    let server = RunningServer::start(command.arg(&socket), 3);
    assert_eq!(server.before, "");
    assert!(server.urls[0].starts_with("http://127.0.0.1:"));
    assert!(server.urls[1].starts_with("http://[::1]:"));
    assert_eq!(server.urls[2], format!("unix:{}", socket.display()));
    for url in &server.urls {
        let response = get(url, "/nix-cache-info");
        assert_eq!(response.status, 200, "{url}");
        assert!(
            response.body.contains("StoreDir: /nix/store\n"),
            "{}",
            response.body
        );
        assert!(response.body.contains("Priority: 7\n"), "{}", response.body);
    }
    assert_eq!(server.get(&narinfo(&corpus.root)).status, 200);
}

#[test]
fn signal_ends_server_with_success_and_removes_its_files() {
    let Some(corpus) = corpus("jq") else { return };
    let scratch = scratch();
    let (socket, pid) = (scratch.join("socket"), scratch.join("pid"));
    for signal in [Signal::TERM, Signal::INT, Signal::QUIT] {
        let mut command = serve(&["nix-serve", "--quiet", "--socket"]);
        command.arg(&socket).arg("--store").arg(corpus.store());
        let server = RunningServer::start(command.arg("--pid").arg(&pid), 1);
        let number = fs::read_to_string(&pid).unwrap();
        assert_eq!(number.trim(), server.pid().to_string());
        assert_eq!(server.get("/nix-cache-info").status, 200);
        server.signal(signal);
        let ended = server.wait();
        assert_eq!(ended.status.code(), Some(0), "{signal:?}: {}", ended.stderr);
        assert_eq!(ended.stderr, "");
        assert!(!pid.exists() && !socket.exists(), "{signal:?}");
    }
    let server = RunningServer::start(&mut floe_serve(&corpus), 1);
    server.signal(Signal::TERM);
    assert_eq!(server.wait().status.code(), Some(0));
}

#[test]
fn starman_worker_signals_have_no_effect() {
    let Some(corpus) = corpus("jq") else { return };
    let server = RunningServer::start(&mut nix_serve(&corpus), 1);
    for signal in [Signal::HUP, Signal::TTIN, Signal::TTOU] {
        server.signal(signal);
        assert_eq!(server.get("/nix-cache-info").status, 200, "{signal:?}");
    }
}

#[test]
fn secret_keys_sign_narinfos() {
    let Some(corpus) = corpus("jq") else { return };
    let scratch = scratch();
    let keys = [
        key_file(&scratch, "one-1", 0o600),
        key_file(&scratch, "two-2", 0o600),
    ];
    let mut command = floe_serve(&corpus);
    for key in &keys {
        command.arg("--secret-key-file").arg(key);
    }
    let body = RunningServer::start(&mut command, 1)
        .get(&narinfo(&corpus.root))
        .body;
    assert!(body.contains("\nSig: one-1:"), "{body}");
    assert!(body.contains("\nSig: two-2:"), "{body}");
    let mut command = nix_serve(&corpus);
    let server = RunningServer::start(command.env("NIX_SECRET_KEY_FILE", &keys[0]), 1);
    // A client that trusts only this key accepts all paths.
    let secret = fs::File::open(&keys[0]).unwrap();
    let public = run(floe(["key", "public"]).stdin(secret)).expect(0).stdout;
    run(
        floe(["install", "--trusted-public-keys", public.trim(), "--from"])
            .arg(&server.urls[0])
            .arg("--root")
            .arg(scratch.join("root"))
            .arg(&corpus.root),
    )
    .expect(0);
}

#[test]
fn path_prefix_applies_to_every_route() {
    let Some(corpus) = corpus("jq") else { return };
    let server = RunningServer::start(nix_serve(&corpus).args(["--path", "/cache/"]), 1);
    assert_eq!(server.get("/cache/nix-cache-info").status, 200);
    let narinfo = narinfo(&corpus.root);
    assert_eq!(server.get(&format!("/cache{narinfo}")).status, 200);
    assert_eq!(server.get("/nix-cache-info").status, 404);
    assert_eq!(server.get(&narinfo).status, 404);
}

#[test]
fn disabled_keep_alive_closes_after_one_response() {
    let Some(corpus) = corpus("jq") else { return };
    for option in ["--disable-keepalive", "--keepalive-timeout=0"] {
        let server = RunningServer::start(nix_serve(&corpus).arg(option), 1);
        // The request has no `Connection: close`, so the server must close the connection by
        // itself.
        let request = "GET /nix-cache-info HTTP/1.1\r\nHost: floe\r\n\r\n";
        assert_eq!(exchange(&server.urls[0], request).status, 200, "{option}");
    }
    let server = RunningServer::start(nix_serve(&corpus).arg("--keepalive-timeout=1"), 1);
    let asked = Instant::now();
    let request = "GET /nix-cache-info HTTP/1.1\r\nHost: floe\r\n\r\n";
    assert_eq!(exchange(&server.urls[0], request).status, 200);
    assert!(asked.elapsed() >= Duration::from_millis(900));
}

#[test]
fn open_file_limit_is_raised_to_the_hard_limit() {
    let Some(corpus) = corpus("jq") else { return };
    let mut shell = Command::new("sh");
    shell
        .args(["-c", "ulimit -S -n 100; exec \"$@\"", "sh"])
        .arg(env!("CARGO_BIN_EXE_floe"))
        .args(["serve", "--listen", "127.0.0.1:0", "--store"])
        .arg(corpus.store());
    let server = RunningServer::start(&mut shell, 1);
    let limits = fs::read_to_string(format!("/proc/{}/limits", server.pid())).unwrap();
    let line = limits
        .lines()
        .find(|line| line.starts_with("Max open files"))
        .unwrap();
    let words: Vec<&str> = line.split_whitespace().collect();
    assert_eq!(words[3], words[4], "{line}");
    assert_ne!(words[3], "100", "{line}");
}

#[test]
fn daemon_listens_before_its_parent_exits() {
    let Some(corpus) = corpus("jq") else { return };
    let scratch = scratch();
    let paths = ["socket", "pid", "error.log", "access.log"].map(|name| scratch.join(name));
    let [socket, pid, errors, access] = &paths;
    let mut command = serve(&["nix-serve", "-D", "--workers", "3", "--socket"]);
    command.arg(socket).arg("--store").arg(corpus.store());
    command.arg("--pid").arg(pid).arg("--error-log").arg(errors);
    let url = format!("unix:{}", socket.display());
    // If the daemon kept a stream of its parent, this call would block until the daemon ends.
    let ran = run(command.arg("--access-log").arg(access)).expect(0);
    assert_eq!(ran.stdout, "");
    let said = format!("listening on {url}\n");
    assert_eq!(ran.stderr.matches("ignoring --workers").count(), 1);
    assert!(ran.stderr.ends_with(&said), "{}", ran.stderr);
    assert_eq!(get(&url, "/nix-cache-info").status, 200);
    let number: u32 = fs::read_to_string(pid).unwrap().trim().parse().unwrap();
    let stat = fs::read_to_string(format!("/proc/{number}/stat")).unwrap();
    let session = stat.rsplit(") ").next().unwrap().split(' ').nth(3).unwrap();
    assert_eq!(session, number.to_string());
    assert_eq!(fs::read_to_string(errors).unwrap(), said);
    // A second server finds a live process in the pid file, and leaves the file unchanged.
    let mut second = serve(&["nix-serve", "--host=127.0.0.1", "--port=0", "--store"]);
    second.arg(corpus.store()).arg("--pid").arg(pid);
    run(&mut second)
        .expect(1)
        .stderr_contains(&format!("process {number} "));
    kill(number, Signal::TERM);
    wait_until("the daemon does not end", || !pid.exists());
    wait_until("the socket is not removed", || !socket.exists());
    assert!(
        fs::read_to_string(access)
            .unwrap()
            .contains("/nix-cache-info")
    );
}

#[test]
fn daemon_that_cannot_start_fails_its_parent_with_reason() {
    let Some(corpus) = corpus("jq") else { return };
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    for option in [&[][..], &["--daemonize"]] {
        let mut command = serve(&["nix-serve", "--listen", &address, "--store"]);
        let ran = run(command.arg(corpus.store()).args(option)).expect(1);
        assert_eq!(ran.stderr.lines().count(), 1, "{}", ran.stderr);
        ran.stderr_contains(&address);
    }
}

#[test]
fn daemon_whose_user_cannot_read_the_store_fails_its_parent() {
    let Some(corpus) = corpus("jq") else { return };
    if !is_root() {
        skip("another user", "only root may switch to another user");
        return;
    }
    let scratch = scratch();
    let root = open_root(&corpus, &scratch);
    let database = root.join("nix/var/nix/db");
    fs::set_permissions(&database, fs::Permissions::from_mode(0o700)).unwrap();
    let args = [
        "nix-serve",
        "-l",
        "127.0.0.1:0",
        "--user",
        "nobody",
        "-D",
        "--store",
    ];
    let ran = run(serve(&args).arg(&root)).expect(1);
    assert!(!ran.stderr.contains("listening on"), "{}", ran.stderr);
    ran.stderr_contains("db");
}

#[test]
fn stderr_goes_to_error_log_once_the_server_listens() {
    let Some(corpus) = corpus("jq") else { return };
    let scratch = scratch();
    let file = scratch.join("errors");
    let mut command = nix_serve(&corpus);
    let server = RunningServer::start(command.arg("--error-log").arg(&file), 1);
    let said = format!("listening on {}\n", server.urls[0]);
    wait_until("the log remains empty", || {
        fs::read_to_string(&file).unwrap() == said
    });
    let place: PathBuf = fs::read_link(format!("/proc/{}/fd/2", server.pid())).unwrap();
    assert_eq!(place, file);
}

#[test]
fn server_switches_to_another_user_and_still_serves() {
    let Some(corpus) = corpus("jq") else { return };
    if !is_root() {
        skip("another user", "only root may switch to another user");
        return;
    }
    let scratch = scratch();
    let root = open_root(&corpus, &scratch);
    for (options, uid, gid) in [
        (&["--user", "nobody"][..], "65534", "65534"),
        (&["--user", "nobody", "--group", "12345"], "65534", "12345"),
        (&["--user", "12345"], "12345", "12345"),
        (&["--group", "12345"], "0", "12345"),
    ] {
        let mut command = serve(&["nix-serve", "--quiet", "-l", "127.0.0.1:0", "--store"]);
        let server = RunningServer::start(command.arg(&root).args(options), 1);
        let narinfo = server.get(&narinfo(&corpus.root));
        assert_eq!(narinfo.status, 200, "{options:?}");
        let nar = nar_of(&narinfo.body);
        assert_eq!(server.get(&nar).status, 200, "{options:?}: {nar}");
        for (field, id) in [("Uid", uid), ("Gid", gid)] {
            let line = status_of(server.pid(), field);
            // Real, effective, saved and file-system id.
            assert_eq!(
                line,
                format!("{field}:\t{id}\t{id}\t{id}\t{id}"),
                "{options:?}"
            );
        }
        let groups = status_of(server.pid(), "Groups:");
        let groups: Vec<&str> = groups.split_whitespace().skip(1).collect();
        assert!(
            groups.iter().all(|group| *group == gid),
            "{options:?}: {groups:?}"
        );
    }
}

#[test]
fn user_without_permission_truncates_pid_file() {
    let Some(corpus) = corpus("jq") else { return };
    if !is_root() {
        skip("another user", "only root may switch to another user");
        return;
    }
    let scratch = scratch();
    let root = open_root(&corpus, &scratch);
    let pid = scratch.join("pid");
    let mut command = serve(&[
        "nix-serve",
        "--quiet",
        "-l",
        "127.0.0.1:0",
        "--user",
        "nobody",
    ]);
    command.arg("--store").arg(&root).arg("--pid").arg(&pid);
    for _ in 0..2 {
        let server = RunningServer::start(&mut command, 1);
        let number = fs::read_to_string(&pid).unwrap();
        assert_eq!(number.trim(), server.pid().to_string());
        server.signal(Signal::TERM);
        let ended = server.wait();
        assert_eq!((ended.status.code(), ended.stderr.as_str()), (Some(0), ""));
        assert_eq!(fs::read_to_string(&pid).unwrap(), "");
    }
}

#[test]
fn unprivileged_user_cannot_switch_user() {
    let Some(corpus) = corpus("jq") else { return };
    let scratch = scratch();
    let root = open_root(&corpus, &scratch);
    let program = scratch.join("floe");
    copy_program(Path::new(env!("CARGO_BIN_EXE_floe")), &program);
    let mut command = if is_root() {
        // Root can start the command as an unprivileged user.
        let mut command = Command::new(&program);
        command.uid(65534).gid(65534);
        command
    } else {
        Command::new(&program)
    };
    command.args([
        "nix-serve",
        "-l",
        "127.0.0.1:0",
        "--user",
        "root",
        "--store",
    ]);
    let ran = run(command.arg(&root).stdin(Stdio::null())).expect(1);
    ran.stderr_contains("cannot change to the group 0");
}

#[test]
fn second_signal_does_not_wait_for_stalled_client() {
    let Some(corpus) = corpus("jq") else { return };
    let large = corpus.paths.iter().find(|path| path.contains("-libc6-"));
    let server = RunningServer::start(&mut floe_serve(&corpus), 1);
    let nar = nar_of(&server.get(&narinfo(large.unwrap())).body);
    let address = server.urls[0].strip_prefix("http://").unwrap();
    let mut idle = TcpStream::connect(address).unwrap();
    idle.set_read_timeout(Some(TIMEOUT)).unwrap();
    idle.write_all(b"HEAD / HTTP/1.1\r\nHost: floe\r\n\r\n")
        .unwrap();
    idle.read_exact(&mut [0; 9]).unwrap();
    let mut client = TcpStream::connect(address).unwrap();
    let request = format!("GET {nar} HTTP/1.1\r\nHost: floe\r\n\r\n");
    client.write_all(request.as_bytes()).unwrap();
    // The response has started, and exceeds the socket buffers.
    client.read_exact(&mut [0; 9]).unwrap();
    let asked = Instant::now();
    server.signal(Signal::TERM);
    // Two pending signals would count as one. The server has handled the first when it closes the
    // idle connection, and still waits for this client.
    idle.read_to_end(&mut Vec::new()).unwrap();
    assert!(Path::new(&format!("/proc/{}/exe", server.pid())).exists());
    server.signal(Signal::TERM);
    assert_eq!(server.wait().status.code(), Some(0));
    assert!(
        asked.elapsed() < Duration::from_secs(8),
        "{:?}",
        asked.elapsed()
    );
}

/// Returns the request target of the NAR that a narinfo names.
fn nar_of(narinfo: &str) -> String {
    let url = narinfo.lines().find_map(|line| line.strip_prefix("URL: "));
    format!("/{}", url.unwrap())
}

#[test]
fn server_without_address_serves_this_machine_with_hint() {
    let Some(corpus) = corpus("jq") else { return };
    let mut command = serve(&["serve", "--port", "0", "--store"]);
    let server = RunningServer::start(command.arg(corpus.store()), 1);
    assert!(
        server.urls[0].starts_with("http://127.0.0.1:"),
        "{:?}",
        server.urls
    );
    assert_eq!(server.get("/nix-cache-info").status, 200);
    server.signal(Signal::TERM);
    let ended = server.wait();
    let hint = "only programs on this machine can connect; --listen '*:PORT'";
    assert!(ended.stderr.contains(hint), "{}", ended.stderr);

    let configured = RunningServer::start(&mut floe_serve(&corpus), 1);
    configured.signal(Signal::TERM);
    assert_eq!(configured.wait().stderr, "");
}
