//! The loads: wrk with one thread for many requests at once, and a plain client for work whose
//! requests come one after another.

use std::fs;
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};

use super::figures::{Sample, median};
use super::http::Connection;
use super::peers::Endpoint;
use super::processes;

/// What is asked of a server.
pub(super) struct Load<'a> {
    /// What stands in the requests' first lines, in turn.
    pub(super) targets: &'a [String],
    pub(super) connections: usize,
    /// Every answer must have this status.
    pub(super) status: u16,
    /// Lines of header, each with its `\r\n`.
    pub(super) extra: &'a str,
}

/// wrk counts an answer that takes longer as an error; the largest NAR takes less than one.
const ANSWER_SECONDS_MAX: u32 = 30;
/// After the signal, wrk needs a tenth of a second to stop; after this it hangs.
const WRK_PATIENCE: Duration = Duration::from_secs(10);

/// As many requests as the connections take in this time. wrk's script lies in `scratch`.
pub(super) fn hammer(
    site: &Endpoint,
    load: &Load<'_>,
    time: Duration,
    scratch: &Path,
) -> Result<Sample> {
    let script = scratch.join("load.lua");
    fs::write(&script, lua(load)).with_context(|| format!("writing {}", script.display()))?;
    let output = scratch.join("wrk.out");
    let report = with_usage(site, || {
        run_wrk(site, load, time, &script, &output)?;
        let text = fs::read_to_string(&output).context("reading what wrk printed")?;
        Report::parse(&text).with_context(|| format!("wrk printed no result:\n{text}"))
    });
    let (report, sample) = report?;
    report.judge(load.status)?;
    Ok(Sample {
        requests: report.requests,
        passes: report.requests,
        bytes: report.bytes,
        seconds: report.microseconds as f64 / 1e6,
        latency: Some((report.p50 as f64 / 1e3, report.p99 as f64 / 1e3)),
        ..sample
    })
}

fn run_wrk(
    site: &Endpoint,
    load: &Load<'_>,
    time: Duration,
    script: &Path,
    out: &Path,
) -> Result<()> {
    let file = fs::File::create(out).with_context(|| format!("writing {}", out.display()))?;
    let mut wrk = Command::new("wrk")
        .arg("--threads=1")
        .arg(format!("--connections={}", load.connections))
        .arg(format!("--timeout={ANSWER_SECONDS_MAX}s"))
        // It takes whole seconds only, so it is told to stop by a signal.
        .arg(format!(
            "--duration={}s",
            time.as_secs() + WRK_PATIENCE.as_secs()
        ))
        .arg("--script")
        .arg(script)
        .arg(format!("http://{}/", site.origin.authority))
        .stdin(Stdio::null())
        .stderr(file.try_clone().context("sharing a file")?)
        .stdout(file)
        .spawn()
        .context("starting wrk (apt-get install wrk)")?;
    thread::sleep(time);
    if let Some(pid) = Pid::from_raw(wrk.id().cast_signed()) {
        kill_process(pid, Signal::INT).context("stopping wrk")?;
    }
    let deadline = Instant::now() + WRK_PATIENCE;
    while Instant::now() < deadline {
        if let Some(status) = wrk.try_wait().context("waiting for wrk")? {
            ensure!(status.success(), "wrk: {status}");
            return Ok(());
        }
        thread::sleep(Duration::from_millis(5));
    }
    wrk.kill().context("ending wrk")?;
    wrk.wait().context("waiting for wrk")?;
    bail!("wrk did not stop")
}

/// All connections take the next target from one list. The results are printed as integers, for
/// wrk rounds what it prints by itself.
fn lua(load: &Load<'_>) -> String {
    let mut text = String::from("local requests, at = {}, 0\n");
    for line in load.extra.lines() {
        if let Some((name, value)) = line.split_once(": ") {
            text += &format!("wrk.headers[\"{name}\"] = \"{value}\"\n");
        }
    }
    text += "function init(arguments)\n";
    for target in load.targets {
        text += &format!("  requests[#requests + 1] = wrk.format(\"GET\", \"{target}\")\n");
    }
    text += "end\nfunction request()\n  at = at % #requests + 1\n  return requests[at]\nend\n";
    text += "function done(summary, latency)\n  local e = summary.errors\n";
    text += "  io.write(string.format(\"result %d %d %d %d %d %d %d %d %d %d\\n\",\n";
    text += "    summary.requests, summary.bytes, summary.duration, e.connect, e.read, e.write,\n";
    text += "    e.timeout, e.status, latency:percentile(50), latency:percentile(99)))\nend\n";
    text
}

/// What the script's last line says.
#[derive(Debug, PartialEq)]
struct Report {
    requests: u64,
    bytes: u64,
    microseconds: u64,
    /// Of connecting, reading, writing and waiting.
    errors: [u64; 4],
    /// Answers with a status from 400.
    refused: u64,
    /// In microseconds.
    p50: u64,
    p99: u64,
}

impl Report {
    fn parse(output: &str) -> Option<Report> {
        let line = output
            .lines()
            .find_map(|line| line.strip_prefix("result "))?;
        let numbers: Option<Vec<u64>> = line.split(' ').map(|word| word.parse().ok()).collect();
        let [
            requests,
            bytes,
            microseconds,
            connect,
            read,
            write,
            timeout,
            refused,
            p50,
            p99,
        ] = numbers?[..]
        else {
            return None;
        };
        Some(Report {
            requests,
            bytes,
            microseconds,
            errors: [connect, read, write, timeout],
            refused,
            p50,
            p99,
        })
    }

    /// A load in which anything went wrong measured something else.
    fn judge(&self, status: u16) -> Result<()> {
        let [connect, read, write, timeout] = self.errors;
        ensure!(
            self.errors == [0; 4],
            "errors under load: {connect} connecting, {read} reading, {write} writing, \
             {timeout} too slow"
        );
        ensure!(self.requests > 0, "no request was answered in time");
        let expected = if status < 400 { 0 } else { self.requests };
        ensure!(
            self.refused == expected,
            "{} of {} answers have a status from 400, where {expected} are right",
            self.refused,
            self.requests
        );
        Ok(())
    }
}

/// Asks for the targets one after another on one connection, again and again for at least this
/// time and at least once.
pub(super) fn in_turn(site: &Endpoint, load: &Load<'_>, time: Duration) -> Result<Sample> {
    let mut connection = Connection::new(&site.origin);
    // A connection that is made first: the work is to ask, not to connect.
    let one = load.targets.first().context("nothing to ask for")?;
    if time > Duration::ZERO {
        connection.get(one, load.extra, &mut io::sink())?;
    }
    let ((passes, bytes, times), sample) = with_usage(site, || {
        let mut counter = Counter(0);
        let mut times = Vec::new();
        let start = Instant::now();
        let mut passes = 0;
        while passes == 0 || start.elapsed() < time {
            for target in load.targets {
                let asked = Instant::now();
                let head = connection.get(target, load.extra, &mut counter)?;
                times.push(asked.elapsed().as_secs_f64() * 1e3);
                ensure!(
                    head.status == load.status,
                    "{target}: status {}",
                    head.status
                );
            }
            passes += 1;
        }
        Ok((passes, counter.0, times))
    })?;
    let mut sorted = times;
    sorted.sort_by(f64::total_cmp);
    let p99 = sorted.get(sorted.len() * 99 / 100).copied();
    Ok(Sample {
        requests: sorted.len() as u64,
        passes,
        bytes,
        latency: median(&sorted).zip(p99),
        ..sample
    })
}

/// Counts a body and forgets it.
struct Counter(u64);

impl io::Write for Counter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Runs `work`, and says what it took of time and of the server.
pub(super) fn with_usage<T>(
    site: &Endpoint,
    work: impl FnOnce() -> Result<T>,
) -> Result<(T, Sample)> {
    processes::forget_peaks(&site.pids);
    let before = processes::cpu_seconds(&site.pids);
    let start = Instant::now();
    let done = work()?;
    let seconds = start.elapsed().as_secs_f64();
    let after = processes::cpu_seconds(&site.pids);
    let spent = before.zip(after).map(|(before, after)| after - before);
    let sample = Sample {
        seconds,
        // A child that ended and that nobody waited for takes its time away with it.
        cpu_seconds: spent.filter(|spent| *spent >= 0.0),
        memory: processes::memory(&site.pids),
        ..Sample::default()
    };
    Ok((done, sample))
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "Running 1m test @ http://127.0.0.1:8765/\n  1 threads and 1 connections\n\
        Requests/sec:    716.05\nresult 361 187720 504153 0 0 0 0 361 713 9795\n";

    #[test]
    fn the_result_is_found_among_what_wrk_prints() {
        let expected = Report {
            requests: 361,
            bytes: 187_720,
            microseconds: 504_153,
            errors: [0; 4],
            refused: 361,
            p50: 713,
            p99: 9795,
        };
        assert_eq!(Report::parse(OUTPUT), Some(expected));
        assert_eq!(Report::parse("result 1 2 3\n"), None);
        assert_eq!(Report::parse("unable to connect\n"), None);
    }

    #[test]
    fn refusals_count_only_where_they_are_wrong() {
        let report = Report::parse(OUTPUT).unwrap();
        assert!(report.judge(404).is_ok());
        assert!(report.judge(200).is_err());
        let mut report = report;
        report.refused = 360;
        assert!(report.judge(404).is_err());
    }

    #[test]
    fn an_error_of_a_socket_voids_the_load() {
        let mut report = Report::parse(OUTPUT).unwrap();
        report.errors[1] = 1;
        let problem = report.judge(404).unwrap_err().to_string();
        assert!(problem.contains("1 reading"), "{problem}");
    }

    #[test]
    fn the_script_has_every_target_and_header() {
        let targets = ["/a.narinfo".to_string(), "/nar/b".to_string()];
        let script = lua(&Load {
            targets: &targets,
            connections: 1,
            status: 200,
            extra: "Accept-Encoding: zstd\r\n",
        });
        for part in [
            "\"/a.narinfo\"",
            "\"/nar/b\"",
            "wrk.headers[\"Accept-Encoding\"] = \"zstd\"",
        ] {
            assert!(script.contains(part), "{script}");
        }
    }
}
