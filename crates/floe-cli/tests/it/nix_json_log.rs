//! `--log-format internal-json` writes the activities that Nix writes.

use std::collections::{BTreeMap, BTreeSet};

use floe_testkit::{CommandOutput, corpus, nixes, run, scratch};
use serde_json::Value;

use crate::support::floe;

/// Parses the lines of stderr.
#[track_caller]
fn actions(ran: &CommandOutput) -> Vec<Value> {
    let lines = ran.stderr.lines().map(|line| {
        let json = line.strip_prefix("@nix ");
        let json = json.unwrap_or_else(|| panic!("{line:?} has no @nix"));
        serde_json::from_str(json).unwrap()
    });
    lines.collect()
}

/// Returns the fields of the activities that copy a path, by the path.
fn copied(actions: &[Value]) -> BTreeMap<String, Vec<Value>> {
    let started = actions
        .iter()
        .filter(|action| action["action"] == "start" && action["type"] == 100);
    let fields = started.map(|action| {
        let fields = action["fields"].as_array().unwrap().clone();
        (fields[0].as_str().unwrap().to_owned(), fields)
    });
    fields.collect()
}

/// Checks that each activity that begins also ends, and only then.
fn check_activities(actions: &[Value]) {
    let mut open = BTreeSet::new();
    for action in actions {
        let number = action["id"].as_u64();
        match action["action"].as_str().unwrap() {
            "start" => assert!(open.insert(number), "{action}"),
            "stop" => assert!(open.remove(&number), "{action}"),
            "result" => assert!(open.contains(&number), "{action}"),
            "msg" => assert!(action["level"].is_u64() && action["msg"].is_string()),
            other => panic!("{other} is no action"),
        }
    }
    assert!(open.is_empty(), "{open:?}");
}

#[test]
fn activities_are_those_of_nix() {
    let Some(corpus) = corpus("jq") else { return };
    let cache = corpus.file_url("zstd");
    let scratch = scratch();
    let to = scratch.join("ours").display().to_string();
    let args = [
        "--log-format",
        "internal-json",
        "--from",
        &cache,
        "--to",
        &to,
    ];
    let copy = || {
        let mut command = floe(["copy", "--no-check-sigs"]);
        run(command.args(args).arg(&corpus.root)).expect(0)
    };
    let ran = copy();
    let ours = actions(&ran);
    check_activities(&ours);
    assert!(ran.stdout.contains(&corpus.root), "{}", ran.stdout);
    for (number, nix) in nixes().iter().enumerate() {
        let to = scratch.join(&format!("theirs-{number}"));
        let to = to.display().to_string();
        let args = ["copy", "--log-format", "internal-json", "--no-check-sigs"];
        let mut command = nix.command("nix", args);
        let theirs = run(command.args(["--from", &cache, "--to", &to, &corpus.root]));
        let theirs = copied(&actions(&theirs.expect(0)));
        let names = |fields: &BTreeMap<String, Vec<Value>>| -> Vec<String> {
            fields.keys().cloned().collect()
        };
        assert_eq!(names(&copied(&ours)), names(&theirs), "{}", nix.version);
        for (path, fields) in copied(&ours) {
            assert_eq!(fields.len(), theirs[&path].len());
            assert_eq!(fields[1], theirs[&path][1], "the source of {path}");
        }
    }
    // The last progress of all paths, and of the largest one.
    let count = corpus.paths.len();
    let progress: Vec<&Value> = ours
        .iter()
        .filter(|action| action["action"] == "result" && action["type"] == 105)
        .collect();
    let last = progress.last().unwrap();
    assert_eq!(last["fields"], serde_json::json!([count, count, 0, 0]));
    let is_complete = |action: &&&Value| {
        let fields = &action["fields"];
        fields[0] == fields[1] && fields[1].as_u64() > Some(1000)
    };
    assert_eq!(progress.iter().filter(is_complete).count(), count);
    // Nothing is left to do.
    let again = actions(&copy());
    check_activities(&again);
    assert_eq!(copied(&again).len(), 0);
}

#[test]
fn errors_are_messages() {
    let Some(corpus) = corpus("jq") else { return };
    let scratch = scratch();
    let absent = "/nix/store/00000000000000000000000000000000-absent";
    let from = corpus.file_url("zstd");
    let args = ["install", "--log-format", "internal-json", "--from", &from];
    let mut command = floe(args);
    let ran = run(command.arg("--root").arg(scratch.join("root")).arg(absent)).expect(1);
    let actions = actions(&ran);
    check_activities(&actions);
    let is_error = |action: &&Value| {
        let message = action["msg"].as_str().unwrap_or_default();
        action["level"] == 0 && message.contains("cannot find 00000000000000000000000000000000")
    };
    assert_eq!(actions.iter().filter(is_error).count(), 1, "{}", ran.stderr);
}

#[test]
fn formats_of_nix_are_text() {
    for format in ["raw", "bar", "bar-with-logs", "multiline"] {
        let ran = run(&mut floe(["info", "--log-format", format, "/nix/store/x"]));
        assert!(ran.stderr.starts_with("floe: "), "{}", ran.stderr);
    }
}
