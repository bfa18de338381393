//! The arguments of `floe bench`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::args::parse_number;

#[derive(Debug, Subcommand)]
pub(crate) enum BenchCommand {
    /// Time programs that copy a closure, and test whether they differ
    Copy(Box<BenchCopyArgs>),
}

/// In each round, every variant copies the closure once into an empty store, with empty caches, and
/// the result is checked. All variants are compared with the first one.
#[derive(Debug, Args)]
pub(crate) struct BenchCopyArgs {
    /// A program to time: `nix`, `floe`, NAME=PROGRAM for another nix or floe, or
    /// NAME='CMD {from} {dest} {path}'; repeat for more
    #[arg(long, value_name = "NAME[=CMD]", default_values = ["nix", "floe"])]
    pub(crate) variant: Vec<String>,
    /// Copy the closure of this store path; repeat for more
    #[arg(long, value_name = "PATH", required = true)]
    pub(crate) path: Vec<String>,
    /// A source and the storage of the target: local-tmpfs[=STORE], local-disk[=STORE],
    /// cache-tmpfs=URL or cache-disk=URL; repeat for more
    #[arg(long, value_name = "S", default_values = ["local-tmpfs"])]
    pub(crate) scenario: Vec<String>,
    /// The number of counted runs of each variant
    #[arg(long, value_name = "N", value_parser = parse_number::<usize>, default_value_t = 20)]
    pub(crate) iters: usize,
    /// The number of rounds before these, which do not count
    #[arg(long, value_name = "N", value_parser = parse_number::<usize>, default_value_t = 1)]
    pub(crate) warmup: usize,
    /// A directory on a disk, for scenarios that write to a disk [default: the directory for
    /// temporary files]
    #[arg(long, value_name = "DIR")]
    pub(crate) scratch: Option<PathBuf>,
    /// A directory in memory, for scenarios that write to memory
    #[arg(long, value_name = "DIR", default_value = "/dev/shm")]
    pub(crate) tmpfs: PathBuf,
    /// Let `nix` and `floe` check signatures with these keys, instead of checking none
    #[arg(long, value_name = "NAME:KEY …")]
    pub(crate) trusted_public_keys: Option<String>,
    /// End a run that takes longer, and count it as failed
    #[arg(long, value_name = "SECONDS", value_parser = parse_number::<u64>, default_value_t = 3600)]
    pub(crate) timeout: u64,
    /// Also run each variant under `perf stat` and `perf record`, and keep the results here
    #[arg(long, value_name = "DIR")]
    pub(crate) perf: Option<PathBuf>,
    /// Write all samples and results to this file as JSON
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// Write the report to this file as Markdown
    #[arg(long, value_name = "FILE")]
    pub(crate) markdown: Option<PathBuf>,
    /// Write a chart of the means and their spread to this file as SVG
    #[arg(long, value_name = "FILE")]
    pub(crate) svg: Option<PathBuf>,
}
