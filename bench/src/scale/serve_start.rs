//! The time from the start of `floe serve` to the response with a narinfo.

use std::fs;
use std::path::Path;
use std::process::{Child, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use floe_bench::{BenchError, Measurement, Repetitions, Sample, take_turns};

use super::rows::RowPlan;
use super::stage::{Program, Stage};
use crate::http::{Connection, Origin};
use crate::schedule::RowTime;
use crate::server::{free_port, process_group_command};
use crate::synthetic_store::full_path;

/// Measures each build of floe.
pub(super) fn measure(
    stage: &Stage,
    plan: &RowPlan,
    (repetitions, time): (Repetitions, &RowTime),
) -> Result<Vec<(String, Measurement)>> {
    let number = plan.shape.root_numbers().next();
    let path = full_path(number.context("the store has no root")?);
    let builds = stage.programs.iter().filter_map(|program| match program {
        Program::Floe { name, path } => Some((*name, path.as_path())),
        Program::Nix(_) => None,
    });
    let builds: Vec<(&str, &Path)> = builds.collect();
    let mut turn = |at: usize| {
        if time.has_ended() {
            return Err(BenchError::Interrupted);
        }
        let (_, floe) = builds[at];
        let sample = start(stage, floe, &path);
        sample.map_err(|error| BenchError::Unavailable(format!("{error:#}")))
    };
    let measurements = take_turns(builds.len(), repetitions, &mut turn, &mut |_, _| {});
    let names = builds.iter().map(|(name, _)| (*name).to_owned());
    Ok(names.zip(measurements).collect())
}

/// A server that is ended when this is dropped.
struct Serving(Child);

impl Drop for Serving {
    fn drop(&mut self) {
        let _: std::io::Result<()> = self.0.kill();
        let _: std::io::Result<std::process::ExitStatus> = self.0.wait();
    }
}

fn start(stage: &Stage, floe: &Path, path: &str) -> Result<Sample> {
    let port = free_port()?;
    let mut command = process_group_command(floe);
    command
        .args(["serve", "--listen", &format!("127.0.0.1:{port}"), "--root"])
        .arg(stage.store())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let began = Instant::now();
    let mut serving = Serving(command.spawn().context("cannot start floe serve")?);
    let narinfo = wait_for_narinfo(&mut serving.0, port, path)?;
    let seconds = began.elapsed().as_secs_f64();
    ensure!(
        narinfo.contains(&format!("StorePath: {path}\n")),
        "a wrong narinfo"
    );
    Ok(Sample {
        peak_memory: peak_memory(serving.0.id()),
        ..Sample::timed(seconds, 1.0)
    })
}

fn wait_for_narinfo(server: &mut Child, port: u16, path: &str) -> Result<String> {
    let hash_part = path
        .rsplit('/')
        .next()
        .and_then(|name| name.split('-').next());
    let target = format!("/{}.narinfo", hash_part.unwrap_or_default());
    let deadline = Instant::now() + START_TIMEOUT;
    loop {
        match Connection::new(&Origin::local(port)).fetch(&target, "") {
            Ok((head, body)) => {
                ensure!(head.status == 200, "{target}: {}", head.status);
                return String::from_utf8(body).context("the narinfo is not text");
            }
            Err(error) if Instant::now() > deadline => return Err(error),
            Err(_) => {}
        }
        if let Some(status) = server.try_wait()? {
            bail!("it ended with {status}");
        }
        thread::sleep(POLL_INTERVAL);
    }
}

/// The largest resident set of a process so far, in bytes.
fn peak_memory(process: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kibibytes: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kibibytes * 1024)
}

/// A server with a million paths starts in seconds.
const START_TIMEOUT: Duration = Duration::from_secs(60);

/// Short beside the time of a start.
const POLL_INTERVAL: Duration = Duration::from_millis(1);
