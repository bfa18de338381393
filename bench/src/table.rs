//! Rows as a table in Markdown, for people.

use floe_bench::machine;
use serde_json::Value;

use super::figures::{FLOE, Figure, Measure, Measurement, NGINX, Row, Speed, Verdict};

/// The whole result: what was measured where, the rows, and the memory.
pub(super) fn markdown(rows: &[Row], facts: &Value) -> String {
    let mut text = String::from("# Serving a store\n\n");
    text += &introduction(facts);
    text += "\n| row | floe | nginx | others | speed, floe / nginx | CPU, floe / nginx | aim |";
    text += " met? |\n|---|---|---|---|---|---|---|---|\n";
    for row in rows {
        let others = row
            .measurements
            .iter()
            .filter(|(name, _)| name != FLOE && name != NGINX);
        let others: Vec<String> = others
            .map(|(name, cell)| format!("{name}: {}", cell_text(row.measure, cell)))
            .collect();
        let (speed, cpu) = ratios(row);
        let columns = [
            row.name.clone(),
            cell_of(row, FLOE),
            cell_of(row, NGINX),
            others.join("<br>"),
            speed,
            cpu,
            aim(row),
            verdict(row).into(),
        ];
        text += &format!(
            "| {} |\n",
            columns.map(|column| escape(&column)).join(" | ")
        );
    }
    text + &tally(rows) + &memory(rows)
}

fn tally(rows: &[Row]) -> String {
    let count = |verdict| rows.iter().filter(|row| row.verdict() == verdict).count();
    format!(
        "\nAims: {} met, {} missed, {} not measured.\n",
        count(Verdict::Met),
        count(Verdict::Missed),
        count(Verdict::NotMeasured)
    )
}

/// The rows without the figures behind them, where there is little room.
pub(super) fn short(rows: &[Row]) -> String {
    let mut text = String::from("| row | speed, floe / nginx | CPU, floe / nginx | aim | met? |\n");
    text += "|---|---|---|---|---|\n";
    for row in rows {
        let (speed, cpu) = ratios(row);
        let columns = [row.name.clone(), speed, cpu, aim(row), verdict(row).into()];
        text += &format!(
            "| {} |\n",
            columns.map(|column| escape(&column)).join(" | ")
        );
    }
    text
}

/// A row in a line, to look at while the others are measured.
pub(super) fn summary(row: &Row) -> String {
    let measurements = row.measurements.iter();
    let measurements: Vec<String> = measurements
        .map(|(name, cell)| format!("{name}: {}", cell_text(row.measure, cell)))
        .collect();
    measurements.join(" | ")
}

fn introduction(facts: &Value) -> String {
    let mut text = format!(
        "{}\nMedians of {} rounds of {} s, the servers taking turns, on loopback, the load on the \
         same cores.\n",
        machine::describe(&facts["machine"]),
        facts["rounds"],
        facts["cellSeconds"]
    );
    if facts["quick"] == true {
        text += "A quick run: its figures show that all works, and are not to be quoted.\n";
    }
    let corpus = facts["corpus"].as_str().unwrap_or("unknown");
    text += &format!("Corpus: {corpus}, {} paths. Programs: ", facts["paths"]);
    for (name, version) in facts["peers"].as_object().into_iter().flatten() {
        text += &match (version.as_str(), version.is_null()) {
            (Some(version), _) => format!("{name} ({version}), "),
            (None, true) => format!("{name} (version not known), "),
            (None, false) => format!("{name} (not run), "),
        };
    }
    if let Some(commit) = facts["commit"].as_str() {
        text += &format!("commit {commit}, ");
    }
    let client = facts["nixClient"].as_str().unwrap_or("no nix-store");
    let wrk = facts["wrk"].as_str().unwrap_or("wrk");
    text += &format!("{client}, {wrk}.\n");
    text + "Cells: speed or time; the median and the 99th percentile of requests; CPU time of the \
            server; each the median of all rounds. Ratios are medians of those of single rounds.\n\
            Samples, with memory, stand in the JSON beside this.\n"
}

fn cell_of(row: &Row, variant: &str) -> String {
    let cell = row.measurements.iter().find(|(name, _)| name == variant);
    cell.map_or("not run".into(), |(_, cell)| cell_text(row.measure, cell))
}

fn cell_text(measure: Measure, cell: &Measurement) -> String {
    match (cell, cell.figure(measure)) {
        (Measurement::NotRun(why), _) => format!("not run: {why}"),
        (Measurement::Ran(_), None) => "not run: no samples".into(),
        (Measurement::Ran(_), Some(figure)) => figure_text(measure, &figure),
    }
}

fn figure_text(measure: Measure, figure: &Figure) -> String {
    let cpu = figure.cpu.map_or("?".into(), |cpu| digits(cpu * 1e3));
    let latency = figure.latency.map_or(String::new(), |(p50, p99)| {
        format!("; {} / {} ms", digits(p50), digits(p99))
    });
    match measure {
        Measure::Requests => {
            let speed = digits(figure.speed);
            format!("{speed}/s{latency}; CPU {cpu} ms per 1,000")
        }
        Measure::Bytes => {
            let speed = digits(figure.speed / 1e6);
            format!("{speed} MB/s{latency}; CPU {cpu} ms per GB")
        }
        Measure::Time => format!("{} ms; CPU {cpu} ms", digits(1e3 / figure.speed)),
    }
}

/// Speed and CPU beside nginx, or beside whom the aim names.
fn ratios(row: &Row) -> (String, String) {
    let named = row.ratio(row.rival()).map(|ratio| (ratio, row.rival()));
    let Some((ratio, rival)) = named.or(row.ratio(NGINX).map(|ratio| (ratio, NGINX))) else {
        return ("not run".into(), "not run".into());
    };
    let beside = match rival {
        NGINX => String::new(),
        rival => format!(" (/ {rival})"),
    };
    let text = |ratio: f64| {
        let ratio = if ratio < 99.95 {
            format!("{ratio:.2}")
        } else {
            digits(ratio)
        };
        format!("{ratio}{beside}")
    };
    (text(ratio.speed), ratio.cpu.map_or("?".into(), text))
}

/// The aim in words.
pub(super) fn aim(row: &Row) -> String {
    let speed = row.aim.speed.map(|speed| match speed {
        Speed::AtLeast(least) => format!("speed ≥ {least}"),
        Speed::TimeAtMost(most) => format!("time ≤ {most}"),
        Speed::OverNixServe(times) => format!("> {times} × nix-serve"),
    });
    let cpu = row.aim.cpu.map(|most| format!("CPU ≤ {most}"));
    let parts: Vec<String> = speed.into_iter().chain(cpu).collect();
    if parts.is_empty() {
        "none".into()
    } else {
        parts.join(", ")
    }
}

/// The verdict in words.
pub(super) fn verdict(row: &Row) -> &'static str {
    match row.verdict() {
        Verdict::Met => "yes",
        Verdict::Missed => "no",
        Verdict::NoAim => "no aim",
        Verdict::NotMeasured => "not measured",
    }
}

/// The most that each variant used in any row.
fn memory(rows: &[Row]) -> String {
    let mut names: Vec<&String> = Vec::new();
    for (name, _) in rows.iter().flat_map(|row| &row.measurements) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let mut text =
        String::from("\n| server | peak RSS, MB | PSS after a row, MB |\n|---|---|---|\n");
    for name in names {
        let measurements = rows.iter().flat_map(|row| &row.measurements);
        let measurements = measurements.filter(|(variant, _)| variant == name);
        let samples = measurements.flat_map(|(_, cell)| match cell {
            Measurement::Ran(samples) => samples.as_slice(),
            Measurement::NotRun(_) => &[],
        });
        let seen: Vec<_> = samples.filter_map(|sample| sample.memory).collect();
        let most = |values: Vec<u64>| {
            let most = values.into_iter().max();
            most.map_or("not measured".into(), |kib| {
                digits(kib as f64 * 1024.0 / 1e6)
            })
        };
        let rss = most(seen.iter().map(|memory| memory.peak_rss).collect());
        let pss = most(seen.iter().map(|memory| memory.pss).collect());
        text += &format!("| {name} | {rss} | {pss} |\n");
    }
    text
}

/// Three digits that count: more would be noise.
fn digits(value: f64) -> String {
    match value {
        0.0 => "0".into(),
        _ if value >= 99_950.0 => format!("{:.0}k", value / 1e3),
        _ if value >= 9_995.0 => format!("{:.1}k", value / 1e3),
        _ if value >= 99.95 => format!("{value:.0}"),
        _ if value >= 9.995 => format!("{value:.1}"),
        _ if value >= 0.9995 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

/// A reason may hold what ends a column or a line.
fn escape(column: &str) -> String {
    column.replace('|', "\\|").replace('\n', " ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::tests::row;
    use crate::figures::{Aim, NIX_SERVE};

    const AIM: Aim = Aim {
        speed: Some(Speed::AtLeast(1.1)),
        cpu: Some(0.75),
    };

    #[test]
    fn a_row_has_its_figures_ratios_and_verdict() {
        let measurements = [
            (FLOE, Some((240_000, 0.9))),
            (NGINX, Some((200_000, 1.0))),
            ("harmonia", None),
        ];
        let text = markdown(&[row(AIM, &measurements)], &Value::Null);
        let line = text
            .lines()
            .find(|line| line.starts_with("| present"))
            .unwrap();
        assert_eq!(
            line,
            "| present narinfo, 16 connections | 120k/s; 0.500 / 2.00 ms; CPU 3.75 ms per 1,000 \
             | 100k/s; 0.500 / 2.00 ms; CPU 5.00 ms per 1,000 | harmonia: not run: absent | 1.20 \
             | 0.75 | speed ≥ 1.1, CPU ≤ 0.75 | yes |"
        );
    }

    #[test]
    fn nothing_is_said_beside_a_peer_that_did_not_run() {
        let text = short(&[row(AIM, &[(FLOE, Some((1, 1.0))), (NGINX, None)])]);
        assert!(text.contains("| not run | not run | speed ≥ 1.1, CPU ≤ 0.75 | not measured |"));
    }

    #[test]
    fn multiples_of_nix_serve_say_so() {
        let aim = Aim {
            speed: Some(Speed::OverNixServe(2.0)),
            cpu: None,
        };
        let measurements = [
            (FLOE, Some((300, 1.0))),
            (NGINX, Some((300, 1.0))),
            (NIX_SERVE, Some((100, 2.0))),
        ];
        let text = short(&[row(aim, &measurements)]);
        assert!(
            text.contains("| 3.00 (/ nix-serve) | 0.17 (/ nix-serve) |"),
            "{text}"
        );
        assert!(text.contains("| > 2 × nix-serve | yes |"), "{text}");
    }

    #[test]
    fn figures_have_three_digits_that_count() {
        for (value, text) in [
            (134_567.0, "135k"),
            (38_912.0, "38.9k"),
            (512.3, "512"),
            (0.0123, "0.012"),
            (9.999, "10.0"),
        ] {
            assert_eq!(digits(value), text);
        }
    }

    #[test]
    fn a_reason_cannot_break_the_table() {
        assert_eq!(escape("a | b\nc"), "a \\| b c");
    }
}
