//! `cargo xtask bench many-connections`: the latency of one client of floe while another address
//! holds 2,000 connections.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use floe_bench::statistics::median;
use floe_bench::{Measurement, Metric, Row, Sample, Table, Unit};
use rustix::net::sockopt::set_socket_recv_buffer_size;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, socket_with};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::json;
use xtask::workspace;

use super::peers::{Launch, Mode};
use super::workload::{Workload, hash_part};
use crate::aims;
use crate::args::RunArgs;
use crate::http::{Connection, Origin};
use crate::outcome::Outcome;
use crate::programs;
use crate::results;
use crate::schedule::RowTime;

/// The use that the other address makes of its connections.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Others {
    /// It has none.
    None,
    /// Each has got one response.
    Idle,
    /// Each has sent half a head, and one more byte every second.
    HalfHeads,
    /// Each has requested a NAR of 10 MB, and reads nothing.
    Unread,
    /// One after another requests a narinfo, 1,000 in a second.
    Requests,
}

/// The cases beside [`Others::None`], with their names.
const CASES: [(Others, &str); 4] = [
    (Others::Idle, "idle"),
    (Others::HalfHeads, "half a head, then a byte per second"),
    (Others::Unread, "a NAR of 10 MB that is not read"),
    (Others::Requests, "a narinfo every 2 s"),
];

const CONNECTIONS: usize = 2000;
const GREEDY_ADDRESS: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
/// The 99th percentile of so many has 50 values above it.
const REQUESTS: usize = 5000;
/// The 99th percentile may be this many times that of a quiet server.
const RATIO_MAX: f64 = 3.0;
const REQUEST_INTERVAL: Duration = Duration::from_millis(1);
const BYTE_INTERVAL: Duration = Duration::from_millis(1000);

/// The name of the benchmark and of its table.
pub(crate) const NAME: &str = "many-connections";

/// The only row: all cases take turns.
pub(crate) const ROW: &str = "99th percentile of a narinfo";

/// Measures all cases in turn, several times.
pub(crate) fn run(root: &Path, args: &RunArgs) -> Result<Outcome> {
    let mut failure = None;
    let row = args.schedule.row(NAME, ROW, |time| {
        measure(root, args, time).unwrap_or_else(|error| {
            failure = Some(error);
            row(Vec::new())
        })
    });
    if let Some(error) = failure {
        return Err(error);
    }
    let Some(row) = row else {
        return Ok(Outcome::Passed);
    };
    let (table, outcome) = table(&row);
    print!("{table}");
    if args.record {
        let names: Vec<String> = names().map(String::from).collect();
        results::record_table(root, NAME, (&names, &table))?;
    }
    Ok(outcome)
}

/// The names of all cases, the quiet server first.
fn names() -> impl Iterator<Item = &'static str> {
    [QUIET]
        .into_iter()
        .chain(CASES.iter().map(|(_, name)| *name))
}

/// The server without other connections.
const QUIET: &str = "none";

fn row(measurements: Vec<(String, Measurement)>) -> Row {
    Row {
        name: ROW.into(),
        unit: Unit::Request,
        facts: json!({}),
        measurements,
    }
}

fn measure(root: &Path, args: &RunArgs, time: &RowTime) -> Result<Row> {
    raise_open_files()?;
    let directory = workspace::target_directory(root).join("bench");
    let _lock = programs::lock(&directory)?;
    let workload = Workload::prepare(root, &directory.join(super::NAME))?;
    let floe = Launch::floe(programs::floe(root)?);
    let server = floe.start(&Mode::Plain, &workload, &directory.join("run"))?;
    let targets = Targets {
        origin: &server.endpoint.origin,
        narinfo: format!("/{}.narinfo", hash_part(&workload.top)),
        nar: workload
            .narinfo(&workload.big)?
            .get("URL")
            .map(|url| format!("/{url}")),
    };
    let cases = [Others::None].into_iter();
    let cases: Vec<Others> = cases.chain(CASES.iter().map(|(case, _)| *case)).collect();
    let mut samples = vec![Vec::new(); cases.len()];
    let wanted = args.rounds(7);
    for round in 0..wanted {
        if time.has_ended() {
            break;
        }
        for (case, samples) in cases.iter().zip(&mut samples) {
            samples.push(Sample::timed(targets.measure(*case)?, 1.0));
        }
        time.after_round(round + 1, wanted);
    }
    let measured = names().map(String::from).zip(samples);
    Ok(row(measured
        .map(|(name, it)| (name, Measurement::Ran(it)))
        .collect()))
}

/// The table, and whether all cases are near the quiet server.
fn table(row: &Row) -> (String, Outcome) {
    let heading = format!("{CONNECTIONS} connections of another address");
    let mut table = Table::new(&[&heading, ROW, "ratio", "machine"]);
    let mut outcome = Outcome::Passed;
    for name in names() {
        let micros = row.median(name, Metric::Time).unwrap_or(f64::NAN) * 1e6;
        let ratios = row
            .round_ratios(name, QUIET, Metric::Time)
            .unwrap_or_default();
        let ratio = median(&ratios).unwrap_or(f64::NAN);
        // A ratio that is not a number fails too.
        if ratio.is_nan() || ratio > RATIO_MAX {
            outcome = Outcome::Failed;
        }
        let ratio = if name == QUIET {
            String::new()
        } else {
            format!("{ratio:.2}")
        };
        let machine = aims::machine(row).unwrap_or_default();
        table.row(&[name.into(), format!("{micros:.0} µs"), ratio, machine]);
    }
    (table.into_markdown(), outcome)
}

/// The server and its paths.
struct Targets<'a> {
    origin: &'a Origin,
    narinfo: String,
    nar: Option<String>,
}

impl Targets<'_> {
    /// Returns the 99th percentile of the time of a request in seconds, while the other address
    /// has its connections.
    fn measure(&self, others: Others) -> Result<f64> {
        let count = if others == Others::None {
            0
        } else {
            CONNECTIONS
        };
        let mut connections = Vec::with_capacity(count);
        for _ in 0..count {
            connections.push(self.connect(others)?);
        }
        let stop = std::sync::atomic::AtomicBool::new(false);
        thread::scope(|scope| {
            let activity = scope.spawn(|| self.keep_busy(others, &mut connections, &stop));
            let measured = self.percentile(count);
            stop.store(true, std::sync::atomic::Ordering::Relaxed);
            let activity = activity.join();
            activity.map_err(|_| anyhow::anyhow!("the other client panicked"))??;
            measured
        })
    }

    fn percentile(&self, others: usize) -> Result<f64> {
        let mut client = Connection::new(self.origin);
        let (_, expected) = client.fetch(&self.narinfo, "")?;
        let mut times = Vec::with_capacity(REQUESTS);
        for _ in 0..REQUESTS {
            let begin = Instant::now();
            let (head, body) = client.fetch(&self.narinfo, "")?;
            times.push(begin.elapsed());
            ensure!(head.status == 200 && body == expected, "a wrong response");
        }
        let open = self.open_connections(&mut client)?;
        ensure!(open > others, "only {open} connections are open");
        times.sort_unstable();
        let at = times.get(REQUESTS * 99 / 100).context("no request")?;
        Ok(at.as_secs_f64())
    }

    /// Returns how many connections the server has, according to its metrics.
    fn open_connections(&self, client: &mut Connection) -> Result<usize> {
        let (_, metrics) = client.fetch("/metrics", "")?;
        let metrics = String::from_utf8(metrics).context("the metrics are not text")?;
        let mut lines = metrics.lines();
        let value = lines.find_map(|line| line.strip_prefix("floe_connections_open "));
        let value = value.context("no metric for open connections")?;
        value.parse().context("no number of connections")
    }

    /// Makes one connection of the other address.
    fn connect(&self, others: Others) -> Result<TcpStream> {
        let address: SocketAddr = self.origin.authority.parse()?;
        let kind = (AddressFamily::INET, SocketType::STREAM);
        let socket = socket_with(kind.0, kind.1, SocketFlags::CLOEXEC, None)?;
        if others == Others::Unread {
            // With a larger buffer, the system would receive a whole NAR.
            set_socket_recv_buffer_size(&socket, 4096)?;
        }
        bind(&socket, &SocketAddr::new(IpAddr::V4(GREEDY_ADDRESS), 0))?;
        connect(&socket, &address)?;
        let mut stream = TcpStream::from(socket);
        stream.set_read_timeout(Some(Duration::from_secs(30)))?;
        match others {
            Others::None => {}
            Others::Idle => self.request(&mut stream)?,
            Others::HalfHeads => stream.write_all(b"GET / HTTP/1.1\r\nHost: h\r\nX: ")?,
            Others::Requests => stream.set_nodelay(true)?,
            Others::Unread => {
                let nar = self.nar.as_deref().context("the NAR has no URL")?;
                stream.write_all(&head(nar))?;
            }
        }
        Ok(stream)
    }

    /// Does what the other address does while the client is measured.
    fn keep_busy(
        &self,
        others: Others,
        connections: &mut [TcpStream],
        stop: &std::sync::atomic::AtomicBool,
    ) -> Result<()> {
        let is_over = || stop.load(std::sync::atomic::Ordering::Relaxed);
        let mut next = 0;
        while !is_over() {
            match others {
                Others::None | Others::Idle | Others::Unread => thread::sleep(BYTE_INTERVAL / 50),
                Others::HalfHeads => {
                    for connection in connections.iter_mut() {
                        connection.write_all(b"x")?;
                    }
                    thread::sleep(BYTE_INTERVAL);
                }
                Others::Requests => {
                    let connection = connections.get_mut(next).context("no connection")?;
                    self.request(connection)?;
                    next = (next + 1) % CONNECTIONS;
                    thread::sleep(REQUEST_INTERVAL);
                }
            }
        }
        Ok(())
    }

    /// Requests the narinfo, and reads at least the beginning of its response.
    fn request(&self, stream: &mut TcpStream) -> Result<()> {
        stream.write_all(&head(&self.narinfo))?;
        let mut response = [0; 8192];
        let len = stream.read(&mut response)?;
        let ok = response.get(..len).unwrap_or_default();
        ensure!(ok.starts_with(b"HTTP/1.1 200 "), "a connection is refused");
        Ok(())
    }
}

fn head(target: &str) -> Vec<u8> {
    format!("GET {target} HTTP/1.1\r\nHost: h\r\n\r\n").into_bytes()
}

/// The connections need more open files than a shell usually allows.
fn raise_open_files() -> Result<()> {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        ..limit
    };
    setrlimit(Resource::Nofile, raised).context("cannot raise the limit of open files")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_has_each_case_and_fails_above_the_ratio() {
        let measured = |slow: f64| {
            let cases = names().map(|name| {
                let seconds = if name == QUIET { 1e-4 } else { slow };
                let samples = vec![Sample::timed(seconds, 1.0); 3];
                (name.to_owned(), Measurement::Ran(samples))
            });
            row(cases.collect())
        };
        let (text, outcome) = table(&measured(2e-4));
        assert_eq!(text.lines().count(), 2 + 1 + CASES.len(), "{text}");
        assert!(text.contains("| none | 100 µs |  |"), "{text}");
        assert!(text.contains("| idle | 200 µs | 2.00 |"), "{text}");
        assert_eq!(outcome, Outcome::Passed);
        assert_eq!(table(&measured(4e-4)).1, Outcome::Failed);
        assert_eq!(table(&row(Vec::new())).1, Outcome::Failed);
    }
}
