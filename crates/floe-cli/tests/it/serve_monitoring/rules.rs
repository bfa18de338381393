//! The alert rules and the dashboard in docs/monitoring, and the table of metrics in the manual.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use floe_testkit::{corpus, find_tool, run};
use serde_json::Value;

use super::scrape::Scrape;
use crate::server_process::ServerProcess;

pub(super) fn docs(file: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../docs")
        .join(file)
}

fn read(file: &str) -> String {
    fs::read_to_string(docs(file)).unwrap()
}

/// Returns the names of metrics in a text: words that begin as those of floe do.
fn names_in(text: &str) -> BTreeSet<String> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let words = text.split(|c| !is_part(c));
    let names = words.filter(|word| word.starts_with("floe_") || word.starts_with("process_"));
    names.map(str::to_owned).collect()
}

/// Returns the metric that a name of the query language belongs to.
fn family(name: &str) -> &str {
    let histogram = "floe_http_request_duration_seconds";
    match name.strip_prefix(histogram) {
        Some("_bucket" | "_sum" | "_count") => histogram,
        _ => name,
    }
}

/// The metrics that a server shows only under some settings.
const CONDITIONAL: &[&str] = &["floe_tls_certificate_expiry_timestamp_seconds"];

#[test]
fn promtool_accepts_the_alert_rules_and_their_tests() {
    let Some(promtool) = find_tool("promtool", "prometheus") else {
        return;
    };
    let (rules, tests) = (
        "monitoring/floe-alerts.yml",
        "monitoring/floe-alerts-test.yml",
    );
    for (command, file) in [("check", rules), ("test", tests)] {
        let mut promtool = Command::new(&promtool);
        run(promtool.args([command, "rules"]).arg(docs(file))).expect(0);
    }
    let tested = read(tests);
    let rules = read(rules);
    let alerts: Vec<&str> = rules
        .lines()
        .filter_map(|line| line.trim().strip_prefix("- alert: "))
        .collect();
    assert!(!alerts.is_empty());
    for alert in alerts {
        let fires = format!("alertname: {alert}\n        exp_alerts:\n");
        assert!(tested.contains(&fires), "{alert} fires in no test");
        let silent = format!("alertname: {alert}}}");
        assert!(tested.contains(&silent), "{alert} is silent in no test");
    }
}

#[test]
fn dashboard_queries_are_valid_for_promtool() {
    let Some(promtool) = find_tool("promtool", "prometheus") else {
        return;
    };
    let dashboard: Value = serde_json::from_str(&read("monitoring/floe-dashboard.json")).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let targets = panels
        .iter()
        .filter_map(|panel| panel["targets"].as_array());
    let queries: Vec<String> = targets
        .flatten()
        .map(|target| target["expr"].as_str().unwrap())
        .map(|query| query.replace("$__rate_interval", "5m"))
        .collect();
    assert!(queries.len() > 10);
    let rules = queries.iter().enumerate().map(|(number, query)| {
        let query = Value::from(query.as_str());
        format!("      - record: query_{number}\n        expr: {query}\n")
    });
    let scratch = floe_testkit::scratch();
    let file = scratch.join("queries.yml");
    let header = "groups:\n  - name: queries\n    rules:\n";
    fs::write(&file, header.to_owned() + &rules.collect::<String>()).unwrap();
    run(Command::new(promtool).args(["check", "rules"]).arg(&file)).expect(0);
}

#[test]
fn named_metrics_exist_and_all_are_documented() {
    let Some(corpus) = corpus("jq") else { return };
    let serve = ServerProcess::start(corpus.store(), &[]);
    let scrape = Scrape::parse(serve.get("/metrics").text());
    let mut existing = scrape.names();
    existing.extend(CONDITIONAL);
    for file in [
        "floe-alerts.yml",
        "floe-alerts-test.yml",
        "floe-dashboard.json",
    ] {
        let names = names_in(&read(&format!("monitoring/{file}")));
        assert!(names.len() > 10, "{file}");
        for name in &names {
            assert!(existing.contains(family(name)), "{file}: {name}");
        }
    }
    let manual = read("operating.md");
    let rows = manual.lines().filter_map(|line| line.strip_prefix("| "));
    let documented: BTreeSet<String> = rows
        .map(|row| row.split(" |").next().unwrap())
        .flat_map(names_in)
        .collect();
    let existing: BTreeSet<String> = existing.into_iter().map(str::to_owned).collect();
    assert_eq!(documented, existing);
}
