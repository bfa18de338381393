//! The access log of a server, and its lines on stderr.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Command, Stdio};

use floe_testkit::{corpus, scratch};
use rustix::process::Signal;

use super::process::{floe_serve, narinfo, nix_serve};
use super::running_server::{RunningServer, kill};
use super::serve;

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
    let json = log(floe_serve(&corpus).args(["--access-log-format", "json"]));
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["target"], "/nix-cache-info", "{json}");
    assert_eq!(json["status"], 200, "{json}");
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
