//! `--log-format json`: every line on stderr is a JSON object.

use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use floe_testkit::fault_server::{Fault, FaultServer};
use floe_testkit::{CommandOutput, run};
use serde_json::Value;

use crate::faulty_cache::{FaultyCache, faulty_cache};
use crate::support::floe;

/// Parses stderr and checks the fields that every line has.
#[track_caller]
fn lines(ran: &CommandOutput) -> Vec<Value> {
    assert!(!ran.stderr.contains('\u{1b}'), "{}", ran.stderr);
    let lines = ran.stderr.lines().map(|line| {
        let line: Value =
            serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line:?}"));
        assert!(
            ["info", "warning", "error"].contains(&line["level"].as_str().unwrap()),
            "{line}"
        );
        assert!(!line["event"].as_str().unwrap().is_empty(), "{line}");
        let time = line["time"].as_str().unwrap();
        assert!(
            time.starts_with("20") && time.ends_with('Z') && time.len() == 24,
            "{line}"
        );
        line
    });
    lines.collect()
}

fn events_named<'a>(lines: &'a [Value], event: &str) -> Vec<&'a Value> {
    lines
        .iter()
        .filter(|line| line["event"] == *event)
        .collect()
}

/// Installs from the faulty cache.
fn install(faulty: &FaultyCache, server: &FaultServer) -> CommandOutput {
    run(floe([
        "install",
        "--log-format",
        "json",
        "--from",
        &server.url(),
        "--root",
    ])
    .arg(&faulty.root)
    .args([
        "--trusted-public-keys",
        &faulty.corpus.key,
        &faulty.corpus.root,
    ]))
}

#[test]
fn install_logs_plan_each_path_and_throttled_progress() {
    let Some(faulty) = faulty_cache("zstd") else {
        return;
    };
    let server = FaultServer::start(&faulty.cache);
    let began = Instant::now();
    let ran = install(&faulty, &server).expect(0);
    let seconds = began.elapsed() + Duration::from_secs(1);
    assert_eq!(ran.stdout.trim(), faulty.corpus.root);
    let lines = lines(&ran);
    let planned = events_named(&lines, "planned");
    assert_eq!(planned.len(), 1);
    assert_eq!(planned[0]["paths"], faulty.corpus.paths.len());
    assert!(planned[0]["downloadBytes"].as_u64().unwrap() > 0);
    let finished: Vec<&str> = events_named(&lines, "staged")
        .iter()
        .map(|line| line["path"].as_str().unwrap())
        .collect();
    assert_eq!(finished.len(), faulty.corpus.paths.len());
    assert!(
        finished.contains(&faulty.path("libc6").as_str()),
        "{finished:?}"
    );
    let progress = events_named(&lines, "progress").len() as u64;
    assert!(
        progress <= seconds.as_secs(),
        "{progress} progress events in {seconds:?}"
    );
    let created = events_named(&lines, "created");
    assert_eq!(created.len(), 1);
    assert_eq!(
        created[0]["target"],
        faulty.root.join("nix/store").display().to_string()
    );
    let done = events_named(&lines, "done");
    assert_eq!(done.len(), 1);
    assert_eq!(done[0]["copied"], faulty.corpus.paths.len());
    assert_eq!(
        lines.len(),
        3 + finished.len() + progress as usize,
        "{}",
        ran.stderr
    );
}

#[test]
fn failure_event_has_path_url_and_kind() {
    let Some(faulty) = faulty_cache("zstd") else {
        return;
    };
    let server = FaultServer::start(&faulty.cache);
    let damaged = faulty.path("libc6");
    let mut bytes = fs::read(faulty.nar(&damaged)).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(faulty.nar(&damaged), bytes).unwrap();
    let ran = install(&faulty, &server).expect(3);
    let lines = lines(&ran);
    let failed = events_named(&lines, "failed");
    assert_eq!(failed[0]["level"], "error");
    assert_eq!(failed[0]["kind"], "untrusted");
    assert_eq!(failed[0]["path"], damaged.as_str());
    let url = format!("{}/{}", server.url(), faulty.narinfo(&damaged).url);
    assert_eq!(failed[0]["url"], url);
    assert!(
        failed[0]["message"]
            .as_str()
            .unwrap()
            .contains("cannot decompress"),
        "{}",
        failed[0]
    );
    // Failures of the referrers follow.
    assert!(failed.len() > 1);
    assert!(
        failed[1..].iter().all(|line| line["kind"] == "failed"),
        "{failed:?}"
    );
    let last = lines.last().unwrap();
    assert_eq!(
        (&last["event"], &last["exitCode"]),
        (&"error".into(), &3.into())
    );
    assert_eq!(last["failed"], failed.len());
}

#[test]
fn failed_verify_ends_with_error_event() {
    let Some(faulty) = faulty_cache("zstd") else {
        return;
    };
    let server = FaultServer::start(&faulty.cache);
    install(&faulty, &server).expect(0);
    let store = faulty.root.join("nix/store");
    let lost = store.join(faulty.path("libc6").as_str());
    fs::rename(&lost, faulty.scratch.join("lost")).unwrap();
    let args = ["--log-format", "json", "verify", "--root"];
    let ran = run(floe(args).arg(&faulty.root)).expect(3);
    let lines = lines(&ran);
    let last = lines.last().unwrap();
    assert_eq!(last["event"], "error");
    assert_eq!((&last["exitCode"], &last["failed"]), (&3.into(), &1.into()));
}

#[test]
fn retry_event_names_path_and_url() {
    let Some(faulty) = faulty_cache("zstd") else {
        return;
    };
    let server = FaultServer::start(&faulty.cache);
    let retried = faulty.path("libc6");
    let nar = faulty.nar(&retried);
    // The server names no version of the NAR, so that it is fetched from its beginning.
    server.fail_times(
        nar.file_name().unwrap().to_str().unwrap(),
        Fault::Truncated(1000),
        1,
    );
    let ran = install(&faulty, &server).expect(0);
    let lines = lines(&ran);
    let retrying = events_named(&lines, "retrying");
    assert_eq!(retrying.len(), 1, "{}", ran.stderr);
    assert_eq!(retrying[0]["level"], "warning");
    assert_eq!(retrying[0]["kind"], "network");
    assert_eq!(retrying[0]["path"], retried.as_str());
    assert!(
        retrying[0]["url"]
            .as_str()
            .unwrap()
            .starts_with(&server.url())
    );
}

#[test]
fn retry_of_metadata_is_logged_before_the_wait() {
    let Some(faulty) = faulty_cache("zstd") else {
        return;
    };
    let part = faulty.path("libjq").hash_part().to_owned();
    let narinfo = format!("{part}.narinfo");
    for file in ["nix-cache-info", &*narinfo] {
        let server = FaultServer::start(&faulty.cache);
        server.fail_times(file, Fault::RetryAfter(503, "1".into()), 1);
        let lines = lines(&install(&faulty, &server).expect(0));
        let [retrying] = events_named(&lines, "retrying")[..] else {
            panic!("{lines:?}")
        };
        assert_eq!(retrying["level"], "warning");
        assert_eq!(retrying["kind"], "network");
        assert_eq!(retrying["url"], format!("{}/{file}", server.url()));
        assert!(retrying["message"].as_str().unwrap().contains("503"));
        assert!(retrying.get("path").is_none(), "{retrying}");
        floe_store::tree::remove_tree(&faulty.root).unwrap();

        // The same as text, in a command that copies nothing.
        server.fail_times(file, Fault::RetryAfter(503, "1".into()), 1);
        run(&mut floe(["info", "--from", &server.url(), part.as_str()]))
            .expect(0)
            .stderr_contains(&format!("retrying: cannot fetch {}/{file}", server.url()));
        assert_eq!(server.fault_count(), 2);
    }
    // The same for the rest of a NAR.
    let nar = faulty.narinfo(&faulty.path("libc6")).url;
    let server = FaultServer::start(&faulty.cache).with_validators();
    server.fail_times(&nar, Fault::Truncated(2_000_000), 1);
    server.fail_times(&nar, Fault::RetryAfter(503, "1".into()), 1);
    let lines = lines(&install(&faulty, &server).expect(0));
    let retrying = events_named(&lines, "retrying");
    assert_eq!(retrying.len(), 1, "{retrying:?}");
    assert_eq!(retrying[0]["url"], format!("{}/{nar}", server.url()));
}

#[test]
fn every_fatal_error_is_logged_as_json() {
    let Some(faulty) = faulty_cache("zstd") else {
        return;
    };
    let store = faulty.scratch.join("none");
    let none = store.to_str().unwrap();
    let cases: [(&[&str], i32, &str); 7] = [
        (
            &["install", "--log-format", "json", "--root", none, "no path"],
            2,
            "usage",
        ),
        (
            &["--log-format", "json", "install", "--root", none, "no path"],
            2,
            "usage",
        ),
        // These fail before the argument parser has seen the format.
        (&["install", "--log-format=json"], 2, "usage"),
        (&["--log-format", "json", "instal"], 2, "usage"),
        (
            &[
                "info",
                "--log-format",
                "json",
                "--from",
                "file:///none",
                "no path",
            ],
            4,
            "network",
        ),
        (
            &["verify", "--log-format", "json", "--root", none],
            4,
            "network",
        ),
        (
            &["--log-format", "json", "serve", "--root", none],
            4,
            "network",
        ),
    ];
    for (args, code, kind) in cases {
        let ran = run(&mut floe(args)).expect(code);
        let lines = lines(&ran);
        assert_eq!(lines.len(), 1, "{args:?}: {}", ran.stderr);
        assert_eq!(lines[0]["event"], "error", "{args:?}");
        assert_eq!(lines[0]["kind"], kind, "{args:?}");
        assert_eq!(lines[0]["exitCode"], code, "{args:?}");
    }
    // Help is not an error. It goes to stdout as usual.
    let ran = run(&mut floe(["install", "--log-format", "json", "--help"])).expect(0);
    assert!(ran.stderr.is_empty() && ran.stdout.contains("Usage:"));
    let ran = run(&mut floe(["install"])).expect(2);
    assert!(ran.stderr.contains("Usage:"), "{}", ran.stderr);
}

#[test]
fn skipped_sources_and_settings_are_warning_events() {
    let Some(faulty) = faulty_cache("zstd") else {
        return;
    };
    let server = FaultServer::start(&faulty.cache);
    let closed = FaultServer::start(&faulty.cache);
    closed.fail("nix-cache-info", Fault::Status(401));
    let warned = |command: &mut Command| {
        let ran = run(command).expect(0);
        let lines = lines(&ran);
        let warnings = events_named(&lines, "warning").into_iter().map(|line| {
            assert_eq!(line["level"], "warning");
            line["message"].as_str().unwrap().to_owned()
        });
        warnings.collect::<Vec<_>>()
    };
    let command = |args: &[&str]| {
        let mut command = floe(["install", "--log-format", "json", "--root"]);
        command.arg(&faulty.root).args(args);
        command.args(["--trusted-public-keys", &faulty.corpus.key]);
        command.arg(&faulty.corpus.root);
        command
    };
    let said = warned(&mut command(&[
        "--from",
        &closed.url(),
        "--from",
        &server.url(),
    ]));
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(said[0].starts_with(&format!("skipping source {}", closed.url())));

    let substituters = format!("gs://bucket {}", server.url());
    let option = ["--option", "substituters", &substituters];
    let mut configured = command(&[&option[..], &["--option", "no-such-setting", "1"]].concat());
    let said = warned(&mut configured);
    assert_eq!(said.len(), 2, "{said:?}");
    assert!(said[0].contains("no-such-setting"), "{said:?}");
    assert!(said[1].starts_with("ignoring substituter"), "{said:?}");
}
