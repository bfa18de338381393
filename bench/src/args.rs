//! The command line.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::baseline::Part;
use crate::http::Origin;
use crate::schedule::Schedule;
use crate::server::Endpoint;
use crate::synthetic_store::Files;
use crate::synthetic_store::shape::{PATHS_PER_ROOT, References, Shape};

/// Compares floe with Nix, nginx and other servers on this machine.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask bench", arg_required_else_help = true, after_help = ENVIRONMENT)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Installs closures from binary caches
    Install(RunArgs),
    /// Copies closures between local stores
    Copy(RunArgs),
    /// Copies closures into a binary cache
    Push(RunArgs),
    /// Installs closures over networks with a delay
    Network(RunArgs),
    /// Uploads closures to S3 and HTTP servers over networks with a delay, and fetches some
    Upload(RunArgs),
    /// Copies closures to and from a Nix daemon, over SSH with a delay and on this machine
    Remote(RunArgs),
    /// Verifies the contents of a store
    Verify(RunArgs),
    /// Collects garbage, and links equal files
    Collect(RunArgs),
    /// Runs install, copy, push, verify and collect
    Closures(RunArgs),
    /// Serves a store, beside nginx and other servers
    Serve(ServeArgs),
    /// Serves one client while another address has 2,000 connections
    ManyConnections(RunArgs),
    /// Runs commands on synthetic stores with many paths
    Scale(ScaleArgs),
    /// Makes a synthetic store, as scale does
    MakeStore(MakeStoreArgs),
    /// Submits requests to libfloe from many threads
    Submit(LibfloeArgs),
    /// Encodes and decodes the messages of libfloe
    Codec(LibfloeArgs),
    /// Calls libfloe from C++
    Call(LibfloeArgs),
    /// Runs all of these whose tables stand in docs/performance.md, and continues where an earlier
    /// run ended
    All(AllArgs),
    /// Does one part of the work of a copy; the baselines are made of these parts
    Baseline {
        part: Part,
        /// Files, or URLs to receive. tar passes `-d` to its decompressor, so words with hyphens
        /// are inputs too
        #[arg(allow_hyphen_values = true, trailing_var_arg = true)]
        inputs: Vec<String>,
    },
}

/// Options of closures and serve: the rows, the rounds, and the use of the results.
#[derive(Debug, Default, Args)]
pub(crate) struct RunArgs {
    /// Fewer rounds, only to check that everything works
    #[arg(long)]
    pub(crate) quick: bool,
    /// The number of rounds that count
    #[arg(long, value_name = "N")]
    pub(crate) rounds: Option<NonZeroUsize>,
    /// Only the rows with PART in their name; repeat for more
    #[arg(long = "row", value_name = "PART")]
    pub(crate) rows: Vec<String>,
    /// Writes all samples to a file
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// Writes bench/results and the table in docs/performance.md
    #[arg(long, conflicts_with_all = ["quick", "rows", "before"])]
    pub(crate) record: bool,
    /// Compares with an older floe instead of with other programs; fails if a row became slower
    #[arg(long, value_name = "FLOE")]
    pub(crate) before: Option<PathBuf>,
    /// The rows of other runs, and the limit of time.
    #[arg(skip)]
    pub(crate) schedule: Schedule,
}

/// Options of all benchmarks together.
#[derive(Debug, Args)]
pub(crate) struct AllArgs {
    /// Fewer rounds, only to check that everything works
    #[arg(long)]
    pub(crate) quick: bool,
    /// Only the rows with PART in their name; repeat for more
    #[arg(long = "row", value_name = "PART")]
    pub(crate) rows: Vec<String>,
    /// Writes bench/results and the tables in docs/performance.md. Rows that were not measured keep
    /// their lines there
    #[arg(long, conflicts_with = "quick")]
    pub(crate) record: bool,
    /// The time that the run may take. A row that needs much of it gets fewer rounds, and rows
    /// after it are left out
    #[arg(long, value_name = "MINUTES", default_value_t = LIMIT_MINUTES)]
    pub(crate) limit: u64,
    /// One more server of a store, such as nix-serve, as for serve
    #[arg(
        long = "peer-command",
        value_name = "NAME='CMD {root} {port} {key}'",
        value_parser = GivenPeer::command
    )]
    pub(crate) commands: Vec<GivenPeer>,
}

impl Default for AllArgs {
    fn default() -> AllArgs {
        AllArgs {
            quick: false,
            rows: Vec::new(),
            record: false,
            limit: LIMIT_MINUTES,
            commands: Vec::new(),
        }
    }
}

/// A machine that is lent for three hours has time for the builds before.
const LIMIT_MINUTES: u64 = 150;

impl RunArgs {
    /// Whether a row was asked for.
    pub(crate) fn wants(&self, row: &str) -> bool {
        self.rows.is_empty() || self.rows.iter().any(|part| row.contains(part.as_str()))
    }

    /// The number of rounds: as given, or one of the defaults. All defaults are odd, so that the
    /// median is a measured value.
    pub(crate) fn rounds(&self, normal: usize) -> usize {
        let default = match (self.quick, &self.before) {
            (true, _) => 3,
            (false, Some(_)) => 15,
            (false, None) => normal,
        };
        self.rounds.map_or(default, NonZeroUsize::get)
    }
}

#[derive(Debug, Default, Args)]
pub(crate) struct ServeArgs {
    #[command(flatten)]
    pub(crate) run: RunArgs,
    /// With --before: gives the newer floe an access log and logins, and sends a token
    #[arg(long, requires = "before")]
    pub(crate) extras: bool,
    /// One more server that is running already; its CPU time is that of PID and its children
    #[arg(long = "peer", value_name = "NAME=URL[,PID]...", value_parser = GivenPeer::running)]
    pub(crate) running: Vec<GivenPeer>,
    /// One more server, started with this shell command and ended afterwards
    #[arg(
        long = "peer-command",
        value_name = "NAME='CMD {root} {port} {key}'",
        value_parser = GivenPeer::command
    )]
    pub(crate) commands: Vec<GivenPeer>,
}

#[derive(Debug, Default, Args)]
pub(crate) struct ScaleArgs {
    #[command(flatten)]
    pub(crate) run: RunArgs,
    /// The number of paths, a multiple of 1,000; repeat for more [default: 100000; with --record
    /// also 1000000]
    #[arg(long, value_name = "N", value_parser = path_count)]
    pub(crate) paths: Vec<usize>,
    /// Writes the files of all paths; otherwise, with more than 200,000 paths, only those that are
    /// pushed
    #[arg(long)]
    pub(crate) files: bool,
    /// A directory for the stores [default: /dev/shm]
    #[arg(long, value_name = "DIR")]
    pub(crate) directory: Option<PathBuf>,
}

impl ScaleArgs {
    /// The numbers of paths of all stores.
    pub(crate) fn sizes(&self) -> &[usize] {
        match (&*self.paths, self.run.record) {
            ([], true) => &RECORDED_SIZES,
            ([], false) => &[100_000],
            (given, _) => given,
        }
    }
}

/// The numbers of paths in the recorded table.
pub(crate) const RECORDED_SIZES: [usize; 2] = [100_000, 1_000_000];

#[derive(Debug, Args)]
pub(crate) struct MakeStoreArgs {
    /// The root of the store, which must not exist
    pub(crate) directory: PathBuf,
    /// The number of paths, a multiple of 1,000
    #[arg(long, value_name = "N", value_parser = path_count, default_value = "100000")]
    pub(crate) paths: usize,
    /// The references between the paths
    #[arg(long, value_name = "KIND", default_value = "common")]
    pub(crate) references: References,
    /// The paths that have files
    #[arg(long, value_name = "WHICH", default_value = "all")]
    pub(crate) files: Files,
}

impl MakeStoreArgs {
    pub(crate) fn shape(&self) -> Shape {
        Shape {
            paths: self.paths,
            references: self.references,
        }
    }
}

/// Parses a number of paths, for which the store has at least one root.
fn path_count(text: &str) -> Result<usize, String> {
    let paths: usize = text.parse().map_err(|_| "it is not a number")?;
    if paths == 0 || !paths.is_multiple_of(PATHS_PER_ROOT) {
        return Err(format!("it is not a multiple of {PATHS_PER_ROOT}"));
    }
    Ok(paths)
}

/// A server that only the caller knows.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct GivenPeer {
    pub(crate) name: String,
    pub(crate) server: GivenServer,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum GivenServer {
    /// It is running already.
    Running(Endpoint),
    /// A shell command with `{root}`, `{port}` and `{key}` still in it.
    Command(String),
}

impl GivenPeer {
    /// Parses `NAME=URL[,PID]...`.
    fn running(text: &str) -> Result<GivenPeer, String> {
        let (name, rest) = named(text)?;
        let mut parts = rest.split(',');
        let url = parts.next().unwrap_or_default();
        let origin = Origin::parse(url).ok_or_else(|| format!("`{url}` is not http://…"))?;
        let pids: Result<Vec<u32>, _> = parts.map(str::parse).collect();
        let pids = pids.map_err(|_| "a process id is not a number")?;
        Ok(GivenPeer {
            name,
            server: GivenServer::Running(Endpoint { origin, pids }),
        })
    }

    /// Parses `NAME=COMMAND`.
    fn command(text: &str) -> Result<GivenPeer, String> {
        let (name, command) = named(text)?;
        if !command.contains("{port}") {
            return Err("the command lacks {port}".into());
        }
        Ok(GivenPeer {
            name,
            server: GivenServer::Command(command.into()),
        })
    }
}

fn named(text: &str) -> Result<(String, &str), String> {
    match text.split_once('=') {
        Some((name, rest)) if !name.is_empty() && !rest.is_empty() => Ok((name.into(), rest)),
        _ => Err("write NAME=…".into()),
    }
}

/// Options of the benchmarks of libfloe. All but those from `json` on are passed on to them.
#[derive(Debug, Args)]
pub(crate) struct LibfloeArgs {
    /// Numbers of threads, as in 1,2,4
    #[arg(long, value_name = "N,N")]
    pub(crate) threads: Option<String>,
    /// Requests of each thread
    #[arg(long, value_name = "N")]
    pub(crate) per_thread: Option<u64>,
    /// The number of rounds that count
    #[arg(long, value_name = "N")]
    pub(crate) iters: Option<NonZeroUsize>,
    /// Only variants with this text in their name
    #[arg(long, value_name = "TEXT")]
    pub(crate) only: Option<String>,
    /// Includes messages of 1 MiB
    #[arg(long)]
    pub(crate) include_1mib: bool,
    /// Only reports aims that are missed
    #[arg(long)]
    pub(crate) no_gate: bool,
    /// Writes all samples to a file
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// Writes bench/results
    #[arg(long, conflicts_with = "before")]
    pub(crate) record: bool,
    /// Compares with another checkout of floe; fails if a row became slower
    #[arg(long, value_name = "CHECKOUT", conflicts_with = "json")]
    pub(crate) before: Option<PathBuf>,
    /// With --before: the number of runs of each checkout
    #[arg(long, value_name = "N", default_value = "15")]
    pub(crate) rounds: NonZeroUsize,
    /// With --before: OLD in the other checkout is called NEW here; repeat for more
    #[arg(long, value_name = "OLD=NEW", value_parser = renaming)]
    pub(crate) renamed: Vec<(String, String)>,
    /// The results of other runs, and the limit of time.
    #[arg(skip)]
    pub(crate) schedule: Schedule,
}

impl LibfloeArgs {
    /// The options for a run of all benchmarks.
    pub(crate) fn of(args: &RunArgs) -> LibfloeArgs {
        LibfloeArgs {
            threads: None,
            per_thread: None,
            iters: args.quick.then_some(NonZeroUsize::MIN),
            only: None,
            include_1mib: false,
            no_gate: args.quick,
            json: None,
            record: args.record,
            before: None,
            rounds: NonZeroUsize::MIN,
            renamed: Vec::new(),
            schedule: args.schedule.clone(),
        }
    }
}

fn renaming(text: &str) -> Result<(String, String), String> {
    let (old, new) = text.split_once('=').ok_or("write OLD=NEW")?;
    Ok((old.into(), new.into()))
}

const ENVIRONMENT: &str = "\
closures needs nginx and nix-bin from apt, and root for ext4 and CPU quotas. serve needs wrk, nginx,
zstd, curl, openssl and nix-bin. `cargo xtask test --full` makes the corpora curl, jq and
firefox-esr, bench/corpus/make-corpus makes kdenlive.

Environment:
  FLOE_BIN                 a floe binary to measure, instead of building one
  FLOE_CORPORA             a directory of corpora
  FLOE_BENCH_NIX           a directory with bin/nix and bin/nix-store
  FLOE_BENCH_HARMONIA      a checkout of harmonia, which is built
  FLOE_BENCH_HARMONIA_BIN  a harmonia-cache binary";

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    fn parse(words: &[&str]) -> Result<Command, String> {
        let words = [&["bench"], words].concat();
        let parsed = Arguments::try_parse_from(words);
        parsed
            .map(|it| it.command)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn help_names_every_benchmark() {
        let mut command = Arguments::command();
        command.clone().debug_assert();
        let help = command.render_help().to_string();
        for subcommand in command.get_subcommands() {
            assert!(help.contains(subcommand.get_name()), "{help}");
        }
    }

    #[test]
    fn unknown_benchmark_is_refused() {
        let problem = parse(&["speed"]).unwrap_err();
        assert!(problem.contains("'speed'"), "{problem}");
    }

    #[test]
    fn rounds_default_to_an_odd_number() {
        let Ok(Command::Closures(args)) = parse(&["closures", "--rounds", "5"]) else {
            panic!("not parsed");
        };
        assert_eq!(args.rounds(7), 5);
        let mut args = RunArgs::default();
        assert_eq!(args.rounds(7), 7);
        args.before = Some("floe".into());
        assert_eq!(args.rounds(7), 15);
        args.quick = true;
        assert_eq!(args.rounds(7), 3);
    }

    #[test]
    fn rows_are_selected_by_parts_of_their_names() {
        let Ok(Command::Serve(args)) = parse(&["serve", "--row", "empty", "--row", "zstd"]) else {
            panic!("not parsed");
        };
        assert!(args.run.wants("empty NAR, 1 connection"));
        assert!(!args.run.wants("10 MB NAR, 1 connection"));
        assert!(RunArgs::default().wants("10 MB NAR, 1 connection"));
    }

    #[test]
    fn peers_are_given_by_url_or_by_command() {
        let words = [
            "serve",
            "--peer",
            "ng=http://127.0.0.1:5000/x,12,13",
            "--peer-command",
            "nix-serve=run {root} {port} {key}",
        ];
        let Ok(Command::Serve(args)) = parse(&words) else {
            panic!("not parsed");
        };
        let GivenServer::Running(endpoint) = &args.running[0].server else {
            panic!("{args:?}");
        };
        assert_eq!(endpoint.origin.authority, "127.0.0.1:5000");
        assert_eq!(endpoint.origin.prefix, "/x");
        assert_eq!(endpoint.pids, [12, 13]);
        let command = GivenServer::Command("run {root} {port} {key}".into());
        assert_eq!(args.commands[0].server, command);
    }

    #[test]
    fn invalid_options_are_refused_with_a_reason() {
        for (words, reason) in [
            (&["closures", "--fast"][..], "--fast"),
            (&["closures", "--rounds"], "--rounds"),
            (&["closures", "--rounds", "0"], "invalid value '0'"),
            (&["serve", "--json"], "--json"),
            (&["serve", "--peer", "http://x"], "NAME="),
            (&["serve", "--peer", "x=https://y"], "https://y"),
            (&["serve", "--peer", "x=http://y,p"], "process id"),
            (&["serve", "--peer-command", "x=run"], "{port}"),
            (&["serve", "--record", "--quick"], "cannot be used with"),
            (&["all", "--record", "--quick"], "cannot be used with"),
            (&["all", "--limit", "long"], "--limit"),
            (&["codec", "--renamed", "x"], "OLD=NEW"),
            (&["scale", "--paths", "1234"], "a multiple of 1000"),
        ] {
            let problem = parse(words).unwrap_err();
            assert!(problem.contains(reason), "{words:?}: {problem}");
        }
    }
}
