//! Load on a server: concurrent requests by wrk with one thread, and sequential requests by a
//! simple client.

use std::fs;
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use floe_bench::statistics::median;
use floe_bench::{Latency, Sample, Unit};
use rustix::process::{Pid, Signal, kill_process};

use super::processes;
use crate::http::Connection;
use crate::server::Endpoint;
use crate::tls;

/// The requests, and how their number is counted.
pub(super) struct Load<'a> {
    /// Paths of the requests, in turn.
    pub(super) targets: &'a [String],
    /// The unit of the samples.
    pub(super) unit: Unit,
    /// The correct status of every response.
    pub(super) status: u16,
    /// Additional header lines, each with its `\r\n`.
    pub(super) headers: &'a str,
    /// Settings of OpenSSL for wrk, instead of those of the machine.
    pub(super) openssl_conf: Option<&'a Path>,
    pub(super) time: Duration,
}

/// The work done under load.
#[derive(Clone, Copy, Debug, Default)]
struct Done {
    requests: u64,
    /// How often all targets were requested; for concurrent requests, the number of requests.
    passes: u64,
    bytes: u64,
}

impl Done {
    fn units(self, unit: Unit) -> f64 {
        let count = match unit {
            Unit::Request | Unit::Call => self.requests,
            Unit::Byte => self.bytes,
            Unit::Run => self.passes,
        };
        count as f64
    }
}

/// wrk counts a slower response as an error; the largest NAR takes less than a second.
const RESPONSE_SECONDS_MAX: u32 = 30;
/// After the signal, wrk needs a tenth of a second to stop.
const WRK_STOP_TIMEOUT: Duration = Duration::from_secs(10);

/// Sends as many requests as a number of connections can in the time of the load. The script of wrk
/// goes to the directory `scratch`.
pub(super) fn concurrent(
    endpoint: &Endpoint,
    load: &Load<'_>,
    connections: usize,
    scratch: &Path,
) -> Result<Sample> {
    let script = scratch.join("load.lua");
    let text = lua(load, &endpoint.origin.login);
    fs::write(&script, text).with_context(|| format!("cannot write {}", script.display()))?;
    let output = scratch.join("wrk.out");
    let mut command = Command::new("wrk");
    command
        .arg("--threads=1")
        .arg(format!("--connections={connections}"))
        .arg(format!("--timeout={RESPONSE_SECONDS_MAX}s"))
        .arg("--script")
        .arg(script)
        .arg(endpoint.origin.url_of("/"));
    if let Some(settings) = load.openssl_conf {
        command.env(tls::OPENSSL_CONF, settings);
    }
    let (report, sample) = with_usage(endpoint, || {
        run_wrk(&mut command, load.time, &output)?;
        let text = fs::read_to_string(&output).context("cannot read the output of wrk")?;
        WrkReport::parse(&text).with_context(|| format!("wrk printed no result:\n{text}"))
    })?;
    report.check(load.status)?;
    let done = Done {
        requests: report.requests,
        passes: report.requests,
        bytes: report.bytes,
    };
    Ok(Sample {
        seconds: report.microseconds as f64 / 1e6,
        units: done.units(load.unit),
        latency: Some(Latency {
            p50: report.p50 as f64 / 1e6,
            p99: report.p99 as f64 / 1e6,
        }),
        ..sample
    })
}

/// Runs wrk for a time. Its option takes whole seconds only, so a signal stops it.
fn run_wrk(command: &mut Command, time: Duration, output: &Path) -> Result<()> {
    let file = fs::File::create(output);
    let file = file.with_context(|| format!("cannot write {}", output.display()))?;
    let duration = time.as_secs() + WRK_STOP_TIMEOUT.as_secs();
    let mut wrk = command
        .arg(format!("--duration={duration}s"))
        .stdin(Stdio::null())
        .stderr(file.try_clone().context("cannot share a file")?)
        .stdout(file)
        .spawn()
        .context("cannot start wrk")?;
    thread::sleep(time);
    if let Some(pid) = Pid::from_raw(wrk.id().cast_signed()) {
        kill_process(pid, Signal::INT).context("cannot stop wrk")?;
    }
    let deadline = Instant::now() + WRK_STOP_TIMEOUT;
    while Instant::now() < deadline {
        if let Some(status) = wrk.try_wait().context("cannot wait for wrk")? {
            ensure!(status.success(), "wrk: {status}");
            return Ok(());
        }
        thread::sleep(Duration::from_millis(5));
    }
    wrk.kill().context("cannot end wrk")?;
    wrk.wait().context("cannot wait for wrk")?;
    bail!("wrk did not stop")
}

/// The script of wrk: all connections take the next target from one list. It prints the results as
/// integers, because wrk itself rounds them.
fn lua(load: &Load<'_>, login: &str) -> String {
    let mut text = String::from("local requests, at = {}, 0\n");
    for line in load.headers.lines().chain(login.lines()) {
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

/// The last line of the script's output.
#[derive(Debug, PartialEq)]
struct WrkReport {
    requests: u64,
    bytes: u64,
    microseconds: u64,
    /// Errors while connecting, reading, writing and waiting.
    errors: [u64; 4],
    /// Responses with a status of 400 or more.
    refused: u64,
    /// Latencies in microseconds.
    p50: u64,
    p99: u64,
}

impl WrkReport {
    fn parse(output: &str) -> Option<WrkReport> {
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
        Some(WrkReport {
            requests,
            bytes,
            microseconds,
            errors: [connect, read, write, timeout],
            refused,
            p50,
            p99,
        })
    }

    /// Refuses a load with any error, because it measured something else.
    fn check(&self, status: u16) -> Result<()> {
        let [connect, read, write, timeout] = self.errors;
        ensure!(
            self.errors == [0; 4],
            "errors under load: {connect} connecting, {read} reading, {write} writing, \
             {timeout} timeouts"
        );
        ensure!(self.requests > 0, "no response arrived in time");
        let expected = if status < 400 { 0 } else { self.requests };
        ensure!(
            self.refused == expected,
            "{} of {} responses have a status of 400 or more instead of {expected}",
            self.refused,
            self.requests
        );
        Ok(())
    }
}

/// Sends the requests one after another on one connection, all of them again and again for the time
/// of the load, and at least once.
pub(super) fn sequential(endpoint: &Endpoint, load: &Load<'_>) -> Result<Sample> {
    let mut connection = Connection::new(&endpoint.origin);
    let first = load.targets.first().context("there are no requests")?;
    if load.time > Duration::ZERO {
        // Connect before the time starts.
        connection.get(first, load.headers, &mut io::sink())?;
    }
    let ((done, mut latencies), sample) = with_usage(endpoint, || {
        let mut body = ByteCounter(0);
        let mut latencies = Vec::new();
        let start = Instant::now();
        let mut passes = 0;
        while passes == 0 || start.elapsed() < load.time {
            for target in load.targets {
                let sent = Instant::now();
                let head = connection.get(target, load.headers, &mut body)?;
                latencies.push(sent.elapsed().as_secs_f64());
                let status = head.status;
                ensure!(status == load.status, "{target}: status {status}");
            }
            passes += 1;
        }
        let done = Done {
            requests: latencies.len() as u64,
            passes,
            bytes: body.0,
        };
        Ok((done, latencies))
    })?;
    latencies.sort_by(f64::total_cmp);
    let p99 = latencies.get(latencies.len() * 99 / 100).copied();
    let percentiles = median(&latencies).zip(p99);
    Ok(Sample {
        units: done.units(load.unit),
        latency: percentiles.map(|(p50, p99)| Latency { p50, p99 }),
        ..sample
    })
}

/// Counts the bytes of a body and discards them.
struct ByteCounter(u64);

impl io::Write for ByteCounter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Does some work, and returns its time with the CPU time and memory of the server.
pub(super) fn with_usage<T>(
    endpoint: &Endpoint,
    work: impl FnOnce() -> Result<T>,
) -> Result<(T, Sample)> {
    processes::reset_peak_memory(&endpoint.pids);
    let before = processes::cpu_seconds(&endpoint.pids);
    let start = Instant::now();
    let done = work()?;
    let seconds = start.elapsed().as_secs_f64();
    let after = processes::cpu_seconds(&endpoint.pids);
    let spent = before.zip(after).map(|(before, after)| after - before);
    let memory = processes::memory(&endpoint.pids);
    let sample = Sample {
        // The CPU time of a child disappears when it ends without a parent that waits for it.
        cpu_seconds: spent.filter(|spent| *spent >= 0.0),
        peak_memory: memory.map(|memory| memory.peak_rss),
        final_memory: memory.map(|memory| memory.pss),
        ..Sample::timed(seconds, 1.0)
    };
    Ok((done, sample))
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "Running 1m test @ http://127.0.0.1:8765/\n  1 threads and 1 connections\n\
        Requests/sec:    716.05\nresult 361 187720 504153 0 0 0 0 361 713 9795\n";

    #[test]
    fn wrk_report_is_found_in_the_output() {
        let expected = WrkReport {
            requests: 361,
            bytes: 187_720,
            microseconds: 504_153,
            errors: [0; 4],
            refused: 361,
            p50: 713,
            p99: 9795,
        };
        assert_eq!(WrkReport::parse(OUTPUT), Some(expected));
        assert_eq!(WrkReport::parse("result 1 2 3\n"), None);
        assert_eq!(WrkReport::parse("unable to connect\n"), None);
    }

    #[test]
    fn refused_requests_must_match_the_expected_status() {
        let report = WrkReport::parse(OUTPUT).unwrap();
        assert!(report.check(404).is_ok());
        assert!(report.check(200).is_err());
        let mut report = report;
        report.refused = 360;
        assert!(report.check(404).is_err());
    }

    #[test]
    fn socket_error_invalidates_the_load() {
        let mut report = WrkReport::parse(OUTPUT).unwrap();
        report.errors[1] = 1;
        let problem = report.check(404).unwrap_err().to_string();
        assert!(problem.contains("1 reading"), "{problem}");
    }

    #[test]
    fn script_has_every_target_and_header() {
        let targets = ["/a.narinfo".to_string(), "/nar/b".to_string()];
        let load = Load {
            targets: &targets,
            unit: Unit::Request,
            status: 200,
            headers: "Accept-Encoding: zstd\r\n",
            openssl_conf: None,
            time: Duration::ZERO,
        };
        let script = lua(&load, "Authorization: Bearer floe_x\r\n");
        for part in [
            "wrk.headers[\"Authorization\"] = \"Bearer floe_x\"",
            "\"/a.narinfo\"",
            "\"/nar/b\"",
            "wrk.headers[\"Accept-Encoding\"] = \"zstd\"",
        ] {
            assert!(script.contains(part), "{script}");
        }
    }
}
