//! The surroundings of the closure benchmarks: programs, settings, corpora and directories.

use std::cell::OnceCell;
use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};
use floe_bench::machine;

use super::chains;
use super::disk::{Disk, temporary_directory};
use crate::aims::FLOE;
use crate::before_after::BEFORE;
use crate::corpus::Corpus;
use crate::nix::{self, Settings};
use crate::programs;

pub(super) const NIX: &str = "nix";
const OLDER_NIX: &str = "older nix";

/// A program that copies closures.
#[derive(Clone, Debug)]
pub(super) struct Program {
    /// The name of the variant.
    pub(super) name: &'static str,
    pub(super) path: PathBuf,
    pub(super) kind: Kind,
}

/// The command line that a program understands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Floe,
    Nix,
}

/// Programs and directories of a run. The directories are removed with it.
pub(super) struct Fixture {
    /// The programs that do the same work, in the order of the report.
    pub(super) programs: Vec<Program>,
    /// This tool, built like floe, for the baselines. `None` if two builds of floe are compared,
    /// and nothing else is measured.
    pub(super) bench: Option<PathBuf>,
    /// For files that are made once and kept.
    pub(super) directory: PathBuf,
    /// In memory.
    pub(super) memory: tempfile::TempDir,
    /// For settings, homes and logs.
    pub(super) scratch: tempfile::TempDir,
    pub(super) settings: Settings,
    root: PathBuf,
    /// `bin` of the newest Nix, for preparations and checks.
    nix: PathBuf,
    disk: OnceCell<Result<Disk, String>>,
}

impl Fixture {
    /// Returns the file of floe.
    ///
    /// Errors: no variant is floe.
    pub(super) fn floe(&self) -> Result<&Program> {
        let floe = self.programs.iter().find(|it| it.name == FLOE);
        floe.context("there is no floe")
    }

    /// Builds floe and finds the programs to compare it with: `before`, if given, or else Nix.
    pub(super) fn prepare(
        root: &Path,
        directory: PathBuf,
        before: Option<PathBuf>,
    ) -> Result<Fixture> {
        for (tool, package) in [("nginx", "nginx"), ("tar", "tar"), ("xz", "xz-utils")] {
            programs::installed(tool, package)?;
        }
        let bench = match before {
            Some(_) => None,
            None => Some(programs::bench(root)?),
        };
        let nix = nix::newest(root)?;
        let scratch = temporary_directory(&env::temp_dir())?;
        std::fs::create_dir_all(&directory)?;
        Ok(Fixture {
            programs: programs_to_compare(root, &nix, before)?,
            bench,
            nix,
            directory,
            memory: temporary_directory(Path::new("/dev/shm"))?,
            settings: Settings::write(scratch.path())?,
            scratch,
            root: root.to_owned(),
            disk: OnceCell::new(),
        })
    }

    /// The repository.
    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    /// A command of the newest Nix, without stderr.
    pub(super) fn nix_command(&self, tool: &str) -> Command {
        let mut command = self.settings.command(self.nix_program(tool));
        command.stderr(Stdio::null());
        command
    }

    /// A program of the newest Nix.
    pub(super) fn nix_program(&self, tool: &str) -> PathBuf {
        self.nix.join(tool)
    }

    /// The version of each program, for the report.
    pub(super) fn versions(&self) -> Vec<String> {
        let version = |program: &Program| {
            let line = machine::first_line(Command::new(&program.path).arg("--version"));
            format!("{}: {}", program.name, line.unwrap_or_default())
        };
        self.programs.iter().map(version).collect()
    }

    /// A corpus by one of its names; `chains` is made here.
    pub(super) fn corpus(&self, names: &[&str]) -> Result<Corpus> {
        if names != ["chains"] {
            return Corpus::find(&self.root, names);
        }
        let directory = self.directory.join("chains");
        chains::make(&directory, chains::Shape::ROUND_TRIPS, &|tool| {
            self.nix_command(tool)
        })?;
        Corpus::read(directory)
    }

    /// A directory on a journaled ext4.
    pub(super) fn disk(&self) -> Result<&Path> {
        let mount = || Disk::mount(&self.directory).map_err(|error| format!("{error:#}"));
        match self.disk.get_or_init(mount) {
            Ok(disk) => Ok(&disk.mount_point),
            Err(why) => bail!("cannot mount a journaled disk: {why}"),
        }
    }
}

fn programs_to_compare(root: &Path, nix: &Path, before: Option<PathBuf>) -> Result<Vec<Program>> {
    let program = |name, path, kind| Program { name, path, kind };
    let floe = program(FLOE, programs::floe(root)?, Kind::Floe);
    if let Some(before) = before {
        return Ok(vec![
            program(BEFORE, before.canonicalize()?, Kind::Floe),
            floe,
        ]);
    }
    let mut found = vec![program(NIX, nix.join("nix"), Kind::Nix), floe];
    let older = nix::installed().filter(|bin| bin != nix);
    found.extend(older.map(|bin| program(OLDER_NIX, bin.join("nix"), Kind::Nix)));
    Ok(found)
}
