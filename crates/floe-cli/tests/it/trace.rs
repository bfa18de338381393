//! `--trace`: a timeline of every path. The file is complete however the command ends.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::path::Path;
use std::process::Stdio;

use floe_testkit::fault_server::{Fault, FaultServer};
use floe_testkit::{corpora, corpus, run, scratch, wait_until};
use serde_json::Value;

use crate::faulty_cache::faulty_cache;
use crate::support::floe;

/// Reads the events of a trace, which must be a complete JSON array.
#[track_caller]
fn read(file: &Path) -> Vec<Value> {
    let text = fs::read_to_string(file).unwrap();
    let events: Vec<Value> = serde_json::from_str(&text)
        .unwrap_or_else(|error| panic!("{error}: {}", &text[text.len().saturating_sub(300)..]));
    assert!(!events.is_empty());
    events
}

fn with_phase<'a>(events: &'a [Value], phase: &str) -> Vec<&'a Value> {
    events
        .iter()
        .filter(|event| event["ph"] == *phase)
        .collect()
}

/// Returns the spans of each thread as start, end and name, by thread name.
fn threads(events: &[Value]) -> BTreeMap<String, Vec<(u64, u64, String)>> {
    let names: HashMap<u64, String> = with_phase(events, "M")
        .into_iter()
        .filter(|event| event["name"] == "thread_name")
        .map(|event| {
            let name = event["args"]["name"].as_str().unwrap().to_owned();
            (event["tid"].as_u64().unwrap(), name)
        })
        .collect();
    let mut spans: BTreeMap<String, Vec<_>> = BTreeMap::new();
    for event in with_phase(events, "X") {
        let (from, len) = (
            event["ts"].as_u64().unwrap(),
            event["dur"].as_u64().unwrap(),
        );
        let thread = &names[&event["tid"].as_u64().unwrap()];
        let name = event["name"].as_str().unwrap().to_owned();
        spans
            .entry(thread.clone())
            .or_default()
            .push((from, from + len, name));
    }
    spans.values_mut().for_each(|spans| spans.sort());
    spans
}

/// Asserts that the spans of each thread do not overlap.
#[track_caller]
fn assert_no_overlap(events: &[Value]) {
    for (thread, spans) in threads(events) {
        for pair in spans.windows(2) {
            assert!(pair[0].1 <= pair[1].0, "{thread}: {pair:?}");
        }
    }
}

/// Returns the ordered stages and the outcome of each path. Asserts that spans are properly
/// nested.
#[track_caller]
fn rows(events: &[Value]) -> BTreeMap<String, (Vec<String>, String)> {
    let mut by_id: BTreeMap<&str, Vec<&Value>> = BTreeMap::new();
    for event in events.iter().filter(|event| event["cat"] == "path") {
        by_id
            .entry(event["id"].as_str().unwrap())
            .or_default()
            .push(event);
    }
    let mut rows = BTreeMap::new();
    for (id, mut events) in by_id {
        // Sort by time, and keep the file order for equal times, as trace viewers do.
        events.sort_by_key(|event| event["ts"].as_u64().unwrap());
        let (mut open, mut stages, mut ended) = (Vec::new(), Vec::new(), None);
        for event in events {
            let name = event["name"].as_str().unwrap();
            match event["ph"].as_str().unwrap() {
                "b" => {
                    if !open.is_empty() {
                        stages.push(name.to_owned());
                    }
                    open.push(name);
                }
                "e" => {
                    let begun = open
                        .pop()
                        .unwrap_or_else(|| panic!("{id}: {name} has no begin"));
                    if open.is_empty() {
                        let outcome = event["args"]["outcome"].as_str().unwrap();
                        ended = Some((name.to_owned(), outcome.to_owned()));
                    } else {
                        assert_eq!(begun, name, "{id}");
                    }
                }
                other => panic!("{id}: {other}"),
            }
        }
        assert!(open.is_empty(), "{id}: {open:?} are open");
        let (name, outcome) = ended.unwrap();
        assert!(
            rows.insert(name, (stages, outcome)).is_none(),
            "{id} occurs twice"
        );
    }
    rows
}

/// Returns the number of bytes that all workers received.
fn received(events: &[Value]) -> u64 {
    let spans = with_phase(events, "X").into_iter();
    spans
        .filter_map(|event| event["args"]["downloadBytes"].as_u64())
        .sum()
}

/// Returns the last value of a counter.
fn last_count(events: &[Value], name: &str) -> u64 {
    let mut counts = with_phase(events, "C")
        .into_iter()
        .filter(|event| event["name"] == name);
    counts.next_back().unwrap()["args"]["bytes"]
        .as_u64()
        .unwrap()
}

#[test]
fn trace_has_every_stage_once_and_byte_counts_add_up() {
    for corpus in corpora() {
        let server = FaultServer::start(&corpus.cache("zstd"));
        for from in [server.url(), corpus.file_url("xz")] {
            let scratch = scratch();
            let file = scratch.join("trace.json");
            let json = run(floe(["install", "--json", "--from", &from, "--root"])
                .arg(scratch.join("root"))
                .arg("--trace")
                .arg(&file)
                .args(["--trusted-public-keys", &corpus.key, &corpus.root]))
            .expect(0)
            .json();
            let events = read(&file);
            let rows = rows(&events);
            let base = |path: &String| path.strip_prefix("/nix/store/").unwrap().to_owned();
            let expected: BTreeSet<String> = corpus.paths.iter().map(base).collect();
            assert_eq!(rows.keys().cloned().collect::<BTreeSet<_>>(), expected);
            for (path, (stages, outcome)) in &rows {
                assert_eq!(stages, &STAGES, "{path}");
                assert_eq!(outcome, "valid", "{path}");
            }
            assert_no_overlap(&events);
            let threads = threads(&events);
            let workers: Vec<_> = threads
                .iter()
                .filter(|(name, _)| name.starts_with("floe-worker-"))
                .collect();
            let spans: usize = workers.iter().map(|(_, spans)| spans.len()).sum();
            assert_eq!(spans, corpus.paths.len());
            let main: BTreeSet<&str> = threads["main"]
                .iter()
                .map(|(_, _, name)| name.as_str())
                .collect();
            assert_eq!(main, ["commit", "resolve"].into());
            let committed = with_phase(&events, "X").into_iter();
            let committed: u64 = committed.filter_map(|e| e["args"]["paths"].as_u64()).sum();
            assert_eq!(committed, corpus.paths.len() as u64);
            assert_eq!(json["downloadBytes"], received(&events));
            assert_eq!(json["downloadBytes"], last_count(&events, "downloaded"));
            assert_eq!(json["narBytes"], last_count(&events, "unpacked"));
            let sizes = with_phase(&events, "e").into_iter();
            let sizes: u64 = sizes
                .filter_map(|event| event["args"]["narSize"].as_u64())
                .sum();
            assert_eq!(json["narBytes"], sizes);
        }
    }
}

#[test]
fn copy_between_stores_is_traced() {
    let Some(corpus) = corpus("jq") else { return };
    let scratch = scratch();
    let file = scratch.join("trace.json");
    let to = format!(
        "file://{}?compression=zstd",
        scratch.join("cache").display()
    );
    run(floe(["copy", "--from"])
        .arg(corpus.store())
        .args(["--to", &to, "--trace"])
        .arg(&file)
        .arg(&corpus.root))
    .expect(0);
    let events = read(&file);
    for (path, (stages, outcome)) in rows(&events) {
        assert_eq!(
            (&stages[..], outcome.as_str()),
            (&STAGES.map(String::from)[..], "valid"),
            "{path}"
        );
    }
    assert_no_overlap(&events);
    assert_eq!(
        with_phase(&events, "e").len(),
        corpus.paths.len() * (STAGES.len() + 1)
    );
}

#[test]
fn trace_is_complete_after_failed_install() {
    let Some(faulty) = faulty_cache("zstd") else {
        return;
    };
    let server = FaultServer::start(&faulty.cache);
    let damaged = faulty.path("libc6");
    let mut bytes = fs::read(faulty.nar(&damaged)).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(faulty.nar(&damaged), bytes).unwrap();
    // Another request fails once and is retried. Its path does not depend on libc6, because floe
    // does not retry paths whose reference has failed.
    let retried = faulty.path("gcc-12-base");
    let name = faulty.nar(&retried);
    let name = name.file_name().unwrap().to_str().unwrap();
    server.fail_times(name, Fault::Status(503), 1);
    let file = faulty.scratch.join("trace.json");
    let json = run(
        floe(["install", "--json", "--from", &server.url(), "--root"])
            .arg(&faulty.root)
            .arg("--trace")
            .arg(&file)
            .args([
                "--trusted-public-keys",
                &faulty.corpus.key,
                &faulty.corpus.root,
            ]),
    )
    .expect(3)
    .json();
    let events = read(&file);
    assert_no_overlap(&events);
    let rows = rows(&events);
    assert_eq!(rows.len(), faulty.corpus.paths.len());
    let valid = rows
        .values()
        .filter(|(_, outcome)| outcome == "valid")
        .count();
    assert_eq!(json["copied"], valid);
    assert_eq!(rows[damaged.as_str()].1, "failed");
    assert_eq!(rows[damaged.as_str()].0, ["resolve", "wait", "receive"]);
    let unknown = rows
        .values()
        .find(|(_, outcome)| outcome != "valid" && outcome != "failed");
    assert_eq!(unknown, None);
    let failed = with_phase(&events, "X").into_iter();
    let failed = failed.filter(|event| event["args"]["outcome"] == "failed");
    let failed: Vec<&Value> = failed.map(|event| &event["args"]["path"]).collect();
    assert_eq!(failed, [damaged.as_str()], "paths that a worker failed");
    let marks: BTreeSet<&str> = with_phase(&events, "i")
        .into_iter()
        .map(|event| event["name"].as_str().unwrap())
        .collect();
    assert_eq!(marks, ["failed", "retry"].into());
}

#[test]
fn trace_is_complete_after_interrupt() {
    let Some(faulty) = faulty_cache("zstd") else {
        return;
    };
    let server = FaultServer::start(&faulty.cache);
    let stalled = faulty.path("libc6");
    let nar = faulty.nar(&stalled);
    let name = nar.file_name().unwrap().to_str().unwrap();
    server.fail(name, Fault::Stalled(1000));
    let file = faulty.scratch.join("trace.json");
    let mut child = floe(["install", "--from", &server.url(), "--trusted-public-keys"])
        .args([&faulty.corpus.key, "--root"])
        .arg(&faulty.root)
        .arg("--trace")
        .arg(&file)
        .arg(&faulty.corpus.root)
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let done = faulty.path("gcc-12-base");
    let valid = || {
        run(floe(["verify", "--root"])
            .arg(&faulty.root)
            .arg(done.as_str()))
    };
    wait_until("the path was not registered", || valid().code == Some(0));
    run(std::process::Command::new("kill").args(["-INT", &child.id().to_string()])).expect(0);
    assert_eq!(child.wait().unwrap().code(), Some(130));
    let events = read(&file);
    assert_no_overlap(&events);
    let rows = rows(&events);
    assert_ne!(rows[stalled.as_str()].1, "valid");
    assert_eq!(rows[stalled.as_str()].0.last().unwrap(), "receive");
    assert_eq!(rows[done.as_str()].1, "valid");
}

#[test]
fn unwritable_trace_file_is_rejected_before_any_request() {
    let Some(corpus) = corpus("jq") else { return };
    let server = FaultServer::start(&corpus.cache("zstd"));
    let scratch = scratch();
    run(floe(["install", "--from", &server.url(), "--root"])
        .arg(scratch.join("root"))
        .args(["--trusted-public-keys", &corpus.key, "--trace"])
        .arg(scratch.join("no/such/trace.json"))
        .arg(&corpus.root))
    .expect(1)
    .stderr_contains("cannot create the trace file");
    assert_eq!(server.requests().len(), 0);
    assert!(!scratch.join("root").exists());
}

#[test]
fn full_disk_ends_the_trace_but_not_the_install() {
    let Some(corpus) = corpus("jq") else { return };
    let scratch = scratch();
    run(
        floe(["install", "--from", &corpus.file_url("zstd"), "--root"])
            .arg(scratch.join("root"))
            .args([
                "--trusted-public-keys",
                &corpus.key,
                "--trace",
                "/dev/full",
                &corpus.root,
            ]),
    )
    .expect(0)
    .stderr_contains(
        "floe: warning: ending the trace early: cannot write the trace file /dev/full",
    );
}

/// The stages of every path.
const STAGES: [&str; 5] = [
    "resolve",
    "wait",
    "receive",
    "wait for references",
    "commit",
];
