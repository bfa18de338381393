//! The access log of a server, and its lines on stderr.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use floe_testkit::{corpus, run, scratch, wait_until};
use rusqlite::Connection;
use rustix::process::Signal;

use super::process::{floe_serve, narinfo, nix_serve, open_root};
use super::running_server::{RunningServer, kill};
use super::{key_file, serve};

#[test]
fn each_program_name_has_its_own_access_log_format() {
    let Some(corpus) = corpus("jq") else { return };
    let scratch = scratch();
    let file = scratch.join("access.log");
    let log = |command: &mut Command| {
        let server = RunningServer::start(command.stdout(Stdio::piped()), 1);
        assert_eq!(server.get("/nix-cache-info").status, 200);
        server.signal(Signal::TERM);
        server.wait().stdout
    };
    let line = "GET /nix-cache-info HTTP/1.1\" 200";
    let apache = log(&mut nix_serve(&corpus));
    assert_eq!(apache.lines().count(), 1, "{apache}");
    assert!(apache.contains(line), "{apache}");
    assert_eq!(log(nix_serve(&corpus).arg("--quiet")), "");
    assert_eq!(log(&mut floe_serve(&corpus)), "");
    let asked = log(floe_serve(&corpus).args(["--access-log", "-"]));
    assert!(asked.contains(line), "{asked}");
    assert_eq!(log(nix_serve(&corpus).arg("--access-log").arg(&file)), "");
    let text = fs::read_to_string(&file).unwrap();
    assert!(text.contains(line), "{text}");
    let verbose = log(floe_serve(&corpus).args(["--access-log-format", "verbose"]));
    assert!(verbose.contains("/nix-cache-info") && !verbose.contains(line));
    assert!(asked.ends_with(" \"-\" \"-\"\n"), "{asked}");
    let common = log(floe_serve(&corpus).args(["--access-log-format", "common"]));
    assert!(
        common.contains(line) && !common.contains("\"-\""),
        "{common}"
    );
    let json = log(floe_serve(&corpus).args(["--access-log-format", "json"]));
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["target"], "/nix-cache-info", "{json}");
    assert_eq!(json["status"], 200, "{json}");
}

#[test]
fn sigusr1_reopens_the_access_log_without_losing_a_line() {
    let Some(corpus) = corpus("jq") else { return };
    let scratch = scratch();
    let (file, renamed) = (scratch.join("access.log"), scratch.join("access.log.1"));
    let mut command = floe_serve(&corpus);
    command.args(["--threads", "1", "--access-log"]).arg(&file);
    let server = RunningServer::start(&mut command, 1);
    let get = |number: u32| server.get(&format!("/{number}")).status;
    assert_eq!(get(1), 404);
    fs::rename(&file, &renamed).unwrap();
    assert_eq!(get(2), 404);
    wait_until("the open file has no further line", || {
        fs::read_to_string(&renamed).unwrap().contains(" /2 ")
    });
    server.signal(Signal::USR1);
    wait_until("the log is not reopened", || file.exists());
    assert_eq!(get(3), 404);
    server.signal(Signal::TERM);
    assert_eq!(server.wait().stderr, "");
    let targets = |file: &Path| -> Vec<String> {
        let text = fs::read_to_string(file).unwrap();
        let words = text
            .lines()
            .map(|line| line.split(' ').nth(6).unwrap().to_owned());
        words.collect()
    };
    assert_eq!(targets(&renamed), ["/1", "/2"]);
    assert_eq!(targets(&file), ["/3"]);
}

#[test]
fn sigusr1_without_access_log_has_no_effect() {
    let Some(corpus) = corpus("jq") else { return };
    for command in [&mut floe_serve(&corpus), nix_serve(&corpus).arg("--quiet")] {
        let server = RunningServer::start(command, 1);
        server.signal(Signal::USR1);
        assert_eq!(server.get("/nix-cache-info").status, 200);
    }
}

#[test]
fn sigusr1_does_not_end_a_server_that_waits_to_start() {
    let Some(corpus) = corpus("jq") else { return };
    let scratch = scratch();
    let root = open_root(&corpus, &scratch);
    let database = Connection::open(root.join("nix/var/nix/db/db.sqlite")).unwrap();
    // With a write-ahead log, readers would not wait.
    database
        .pragma_update(None, "journal_mode", "delete")
        .unwrap();
    database.execute_batch("begin exclusive").unwrap();
    let mut command = serve(&["serve", "--listen", "127.0.0.1:0", "--root"]);
    let mut server = RunningServer::spawn(command.arg(&root));
    wait_until("the signal is not caught", || {
        let status = fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
        let mut lines = status.lines();
        let caught = lines.find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
        let caught = u64::from_str_radix(caught.trim(), 16).unwrap();
        caught & 1 << (Signal::USR1.as_raw() - 1) != 0
    });
    server.signal(Signal::USR1);
    database.execute_batch("rollback").unwrap();
    server.await_addresses(1);
    assert_eq!(server.get("/nix-cache-info").status, 200);
}

#[test]
fn json_access_log_tells_hits_from_misses() {
    let Some(corpus) = corpus("jq") else { return };
    let mut command = floe_serve(&corpus);
    command.args(["--access-log-format", "json", "--threads", "1"]);
    let server = RunningServer::start(command.stdout(Stdio::piped()), 1);
    let narinfo = narinfo(&corpus.root);
    for _ in 0..2 {
        assert_eq!(server.get(&narinfo).status, 200);
    }
    server.signal(Signal::TERM);
    let log = server.wait().stdout;
    let lines: Vec<serde_json::Value> = log
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let caches: Vec<_> = lines.iter().map(|line| line["cache"].as_str()).collect();
    assert_eq!(caches, [Some("miss"), Some("hit")], "{log}");
    assert_ne!(lines[0]["requestId"], lines[1]["requestId"], "{log}");
    assert_eq!(lines[0]["remoteAddress"], "127.0.0.1", "{log}");
}

#[test]
fn json_stderr_has_start_and_end_of_a_server() {
    let Some(corpus) = corpus("jq") else { return };
    for args in [
        &["serve", "--log-format", "json"][..],
        &["--log-format", "json", "serve"],
    ] {
        let mut command = serve(args);
        command.args(["--listen", "127.0.0.1:0", "--store"]);
        let mut child = command
            .arg(corpus.store())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        let mut first = String::new();
        stderr.read_line(&mut first).unwrap();
        kill(child.id(), Signal::TERM);
        let mut rest = String::new();
        stderr.read_to_string(&mut rest).unwrap();
        assert!(child.wait().unwrap().success(), "{rest}");
        let first: serde_json::Value = serde_json::from_str(&first).unwrap();
        assert_eq!(first["event"], "listening", "{first}");
        assert_eq!(first["level"], "info", "{first}");
        let url = first["url"].as_str().unwrap();
        assert!(url.starts_with("http://127.0.0.1:"), "{first}");
        let last: serde_json::Value = serde_json::from_str(&rest).unwrap();
        assert_eq!(last["event"], "stopped", "{last}");
    }
}

#[test]
fn journal_gets_the_priority_of_each_line() {
    let Some(corpus) = corpus("jq") else { return };
    let scratch = scratch();
    let key = key_file(&scratch, "open-1", 0o644);
    let file = scratch.join("stderr");
    let stderr = fs::File::create(&file).unwrap();
    let metadata = stderr.metadata().unwrap();
    let stream = format!("{}:{}", metadata.dev(), metadata.ino());
    let mut command = floe_serve(&corpus);
    command.arg("--secret-key-file").arg(&key).stderr(stderr);
    let mut child = command.env("JOURNAL_STREAM", &stream).spawn().unwrap();
    let lines = || fs::read_to_string(&file).unwrap();
    wait_until("the server does not listen", || {
        lines().contains("\n<6>listening on http://127.0.0.1:")
    });
    kill(child.id(), Signal::TERM);
    assert!(child.wait().unwrap().success());
    assert!(lines().starts_with("<4>floe: warning: "), "{}", lines());

    // A server that does not start ends with an error. Another stream than stderr changes nothing.
    let mut failing = serve(&["serve", "--root", scratch.join("none").to_str().unwrap()]);
    let ran = run(failing.env("JOURNAL_STREAM", &stream)).expect(4);
    assert!(ran.stderr.starts_with("floe: "), "{}", ran.stderr);
    let stderr = fs::File::options().append(true).open(&file).unwrap();
    failing.stderr(stderr).status().unwrap();
    let last = lines().lines().last().unwrap().to_owned();
    assert!(last.starts_with("<3>floe: "), "{last}");
}

#[test]
fn journal_gets_the_priority_of_json_and_usage_errors() {
    let scratch = scratch();
    let none = scratch.join("none");
    let none = none.to_str().unwrap();
    for (args, code, begin) in [
        (&["serve", "--no-such-option"][..], 2, "<3>error: "),
        (&["serve", "--log-format=json", "--root", none], 4, "<3>{"),
        (&["serve", "--log-format=json", "--port=x"], 2, "<3>{"),
    ] {
        let file = scratch.join("stderr");
        let stderr = fs::File::create(&file).unwrap();
        let metadata = stderr.metadata().unwrap();
        let stream = format!("{}:{}", metadata.dev(), metadata.ino());
        let mut command = serve(args);
        command.stderr(stderr).env("JOURNAL_STREAM", stream);
        assert_eq!(command.status().unwrap().code(), Some(code), "{args:?}");
        let text = fs::read_to_string(&file).unwrap();
        assert!(text.starts_with(begin), "{text}");
        assert!(text.lines().all(|line| line.starts_with("<3>")), "{text}");
    }
}

#[test]
fn access_log_on_a_full_disk_is_one_warning() {
    let Some(corpus) = corpus("jq") else { return };
    let mut command = floe_serve(&corpus);
    command.args(["--access-log", "/dev/full"]);
    let server = RunningServer::start(&mut command, 1);
    for _ in 0..3 {
        assert_eq!(server.get("/nix-cache-info").status, 200);
    }
    server.signal(Signal::TERM);
    assert_eq!(
        server.wait().stderr,
        "floe: warning: dropping lines of the access log: No space left on device (os error 28)\n"
    );
}
