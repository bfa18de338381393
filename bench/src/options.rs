//! The command line of `cargo xtask bench serve`.

use std::path::PathBuf;
use std::time::Duration;

use super::http::Origin;
use super::peers::{Given, GivenPeer, OWN_NAMES};

/// Shown by `cargo xtask bench`.
pub(super) const USAGE: &str =
    "    [--quick]              shorter measurements and fewer rounds, to see that all works
    [--row PART]...        only the rows with PART in their name
    [--json FILE]          writes raw samples and the facts of the machine
    [--record]             writes bench/results/serve.* and the table in README.md
    [--peer NAME=URL[,PID]...]...
                           one more server, that runs already; its CPU is that of PID and children
    [--peer-command NAME='CMD {root} {port} {key}']...
                           one more server, started and ended here
  Needs wrk, nginx, zstd and nix-bin from apt, and a corpus: `cargo xtask test` makes jq,
  `--full` makes firefox-esr; FLOE_CORPORA names a directory of others. The environment:
    FLOE_BIN               this floe, instead of building one
    FLOE_BENCH_HARMONIA    a checkout of harmonia, built when it is given
    FLOE_BENCH_HARMONIA_BIN  a harmonia-cache that is built already
    FLOE_BENCH_NIX         a directory with bin/nix-store, the client of the last rows";

/// What was asked for.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Options {
    pub(super) quick: bool,
    pub(super) record: bool,
    pub(super) json: Option<PathBuf>,
    /// Parts of the names of rows; all rows when empty.
    pub(super) rows: Vec<String>,
    pub(super) peers: Vec<GivenPeer>,
}

impl Options {
    /// The problem, in words for the caller, if the arguments make no sense.
    pub(super) fn parse(arguments: &[String]) -> Result<Options, String> {
        let mut options = Options::default();
        let mut rest = arguments.iter();
        while let Some(argument) = rest.next() {
            let mut value = || {
                let value = rest.next().cloned();
                value.ok_or_else(|| format!("{argument} wants a value"))
            };
            match argument.as_str() {
                "--quick" => options.quick = true,
                "--record" => options.record = true,
                "--json" => options.json = Some(value()?.into()),
                "--row" => options.rows.push(value()?),
                "--peer" => options.peers.push(running(&value()?)?),
                "--peer-command" => options.peers.push(by_command(&value()?)?),
                _ => return Err(format!("bench serve takes no `{argument}`")),
            }
        }
        if options.record && (options.quick || !options.rows.is_empty()) {
            return Err("--record is for whole runs, without --quick and --row".into());
        }
        let mut names: Vec<&str> = options
            .peers
            .iter()
            .map(|peer| peer.name.as_str())
            .collect();
        names.extend(OWN_NAMES);
        names.sort_unstable();
        match names.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => Err(format!("two peers are called `{}`", pair[0])),
            None => Ok(options),
        }
    }

    /// Whether a row of this name was asked for.
    pub(super) fn wants(&self, row: &str) -> bool {
        self.rows.is_empty() || self.rows.iter().any(|part| row.contains(part.as_str()))
    }

    /// How many times each cell is measured: an odd number, so that the median was measured.
    pub(super) fn rounds(&self) -> usize {
        if self.quick { 3 } else { 11 }
    }

    /// How long a cell is loaded in each round: even the short time is long beside the tick of
    /// 10 ms in which CPU time may be counted.
    pub(super) fn cell(&self) -> Duration {
        Duration::from_millis(if self.quick { 500 } else { 1000 })
    }
}

fn named<'a>(value: &'a str, option: &str) -> Result<(&'a str, &'a str), String> {
    match value.split_once('=') {
        Some((name, rest)) if !name.is_empty() && !rest.is_empty() => Ok((name, rest)),
        _ => Err(format!("{option} wants NAME=…, not `{value}`")),
    }
}

fn running(value: &str) -> Result<GivenPeer, String> {
    let (name, rest) = named(value, "--peer")?;
    let mut parts = rest.split(',');
    let url = parts.next().unwrap_or_default();
    let origin = Origin::parse(url).ok_or_else(|| format!("--peer wants http://…, not `{url}`"))?;
    let pids: Result<Vec<u32>, _> = parts.map(str::parse).collect();
    Ok(GivenPeer {
        name: name.into(),
        how: Given::Running {
            origin,
            pids: pids.map_err(|_| format!("--peer wants numbers of processes in `{value}`"))?,
        },
    })
}

fn by_command(value: &str) -> Result<GivenPeer, String> {
    let (name, command) = named(value, "--peer-command")?;
    if !command.contains("{port}") {
        return Err(format!("--peer-command wants {{port}} in `{command}`"));
    }
    Ok(GivenPeer {
        name: name.into(),
        how: Given::Command(command.into()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(arguments: &[&str]) -> Result<Options, String> {
        let arguments: Vec<String> = arguments.iter().map(|&a| a.into()).collect();
        Options::parse(&arguments)
    }

    #[test]
    fn peers_are_given_by_url_with_processes_or_by_command() {
        let options = parse(&[
            "--peer",
            "ng=http://127.0.0.1:5000/x,12,13",
            "--peer-command",
            "nix-serve=run {root} {port} {key}",
        ])
        .unwrap();
        let Given::Running { origin, pids } = &options.peers[0].how else {
            panic!("{options:?}");
        };
        assert_eq!(origin.authority, "127.0.0.1:5000");
        assert_eq!(origin.prefix, "/x");
        assert_eq!(pids, &[12, 13]);
        assert_eq!(
            options.peers[1].how,
            Given::Command("run {root} {port} {key}".into())
        );
    }

    #[test]
    fn rows_are_chosen_by_parts_of_their_names() {
        let options = parse(&["--row", "empty", "--row", "zstd"]).unwrap();
        assert!(options.wants("empty NAR, 1 connection"));
        assert!(!options.wants("10 MB NAR, 1 connection"));
        assert!(Options::default().wants("10 MB NAR, 1 connection"));
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_its_reason() {
        for (arguments, reason) in [
            (&["--fast"][..], "--fast"),
            (&["--json"], "--json wants a value"),
            (&["--peer", "http://x"], "NAME="),
            (&["--peer", "x=https://y"], "https://y"),
            (&["--peer", "x=http://y,p"], "numbers"),
            (&["--peer-command", "x=run"], "{port}"),
            (&["--peer", "nginx=http://y"], "two peers"),
            (&["--record", "--quick"], "whole runs"),
        ] {
            let problem = parse(arguments).unwrap_err();
            assert!(problem.contains(reason), "{problem}");
        }
    }
}
