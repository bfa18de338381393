//! The command line of `floe bench`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

#[derive(Debug, Subcommand)]
pub(crate) enum BenchCommand {
    /// Time programs that copy a closure, and say whether they differ
    Copy(Box<BenchCopyArgs>),
}

/// Each round, every variant copies the closure once into an empty store, with empty caches of its
/// own, and the result is checked. The first variant is what the others are compared with.
#[derive(Debug, Args)]
pub(crate) struct BenchCopyArgs {
    /// A program to time: `nix`, `floe`, NAME=PROGRAM for another nix or floe, or
    /// NAME='CMD {from} {dest} {path}'; repeat for more
    #[arg(long, value_name = "NAME[=CMD]", default_values = ["nix", "floe"])]
    pub(crate) variant: Vec<String>,
    /// What to copy: store paths, of which whole closures are copied
    #[arg(long, value_name = "PATH", required = true)]
    pub(crate) path: Vec<String>,
    /// What to time: local-tmpfs[=STORE], local-disk[=STORE], cache-tmpfs=URL or cache-disk=URL;
    /// repeat for more
    #[arg(long, value_name = "S", default_values = ["local-tmpfs"])]
    pub(crate) scenario: Vec<String>,
    /// How many runs of each variant count
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub(crate) iters: usize,
    /// How many rounds come before them and do not count
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) warmup: usize,
    /// A directory on a disk, for scenarios that write to one [default: the directory for
    /// temporary files]
    #[arg(long, value_name = "DIR")]
    pub(crate) scratch: Option<PathBuf>,
    /// A directory in memory, for scenarios that write there
    #[arg(long, value_name = "DIR", default_value = "/dev/shm")]
    pub(crate) tmpfs: PathBuf,
    /// Have `nix` and `floe` check signatures by these keys, instead of checking none
    #[arg(long, value_name = "NAME:KEY …")]
    pub(crate) trusted_public_keys: Option<String>,
    /// End a run that takes longer, as a failure
    #[arg(long, value_name = "SECONDS", default_value_t = 3600)]
    pub(crate) timeout: u64,
    /// Also run each variant under `perf stat` and `perf record`, and keep the results here
    #[arg(long, value_name = "DIR")]
    pub(crate) perf: Option<PathBuf>,
    /// Write all samples and figures to this file
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// Write the report to this file
    #[arg(long, value_name = "FILE")]
    pub(crate) markdown: Option<PathBuf>,
    /// Draw the means and their spread into this file
    #[arg(long, value_name = "FILE")]
    pub(crate) svg: Option<PathBuf>,
}
