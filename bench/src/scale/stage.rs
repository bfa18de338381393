//! The programs, the settings and the stores of a run.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use clap::ValueEnum as _;
use floe_bench::{Invocation, Variant, machine};

use super::rows::{NIX, RowPlan};
use crate::aims::FLOE;
use crate::args::ScaleArgs;
use crate::before_after::BEFORE;
use crate::nix::{self, Settings};
use crate::programs;
use crate::synthetic_store::Files;
use crate::synthetic_store::shape::Shape;

/// A program that is measured.
#[derive(Clone, Debug)]
pub(super) enum Program {
    Floe {
        name: &'static str,
        path: PathBuf,
    },
    /// The directory with `nix` and `nix-store`.
    Nix(PathBuf),
}

impl Program {
    pub(super) fn name(&self) -> &'static str {
        match self {
            Program::Floe { name, .. } => name,
            Program::Nix(_) => NIX,
        }
    }
}

/// Programs and directories. The directories are removed at the end.
pub(super) struct Stage {
    pub(super) programs: Vec<Program>,
    pub(super) settings: Settings,
    /// The directory of all stores.
    pub(super) memory: tempfile::TempDir,
    scratch: tempfile::TempDir,
    /// The present store.
    made: Option<(Shape, Files)>,
}

impl Stage {
    /// Finds the programs: two builds of floe, or floe and Nix, if there is one.
    pub(super) fn prepare(root: &Path, args: &ScaleArgs) -> Result<Stage> {
        let directory = args.directory.as_deref().unwrap_or(Path::new(MEMORY));
        let floe = |name, path| Program::Floe { name, path };
        let current = floe(FLOE, programs::floe(root)?);
        let programs = match &args.run.before {
            Some(before) => vec![floe(BEFORE, before.canonicalize()?), current],
            None => match nix::newest(root) {
                Ok(bin) => vec![Program::Nix(bin), current],
                Err(_) => vec![current],
            },
        };
        let scratch = temporary_directory(&env::temp_dir())?;
        Ok(Stage {
            programs,
            settings: Settings::write(scratch.path())?,
            memory: temporary_directory(directory)?,
            scratch,
            made: None,
        })
    }

    /// The version of each program, for the report.
    pub(super) fn versions(&self) -> Vec<String> {
        let version = |program: &Program| {
            let path = match program {
                Program::Floe { path, .. } => path.clone(),
                Program::Nix(bin) => bin.join("nix"),
            };
            let line = machine::first_line(Command::new(path).arg("--version"));
            format!("{}: {}", program.name(), line.unwrap_or_default())
        };
        self.programs.iter().map(version).collect()
    }

    /// The root of the present store.
    pub(super) fn store(&self) -> PathBuf {
        self.memory.path().join("store")
    }

    /// A directory that each row may use.
    pub(super) fn target(&self) -> PathBuf {
        self.memory.path().join("target")
    }

    /// The cache of pushes.
    pub(super) fn cache(&self) -> PathBuf {
        self.memory.path().join("cache")
    }

    /// A command with the settings of this run; `None` without words.
    pub(super) fn command(&self, words: &[String]) -> Option<Command> {
        let (program, arguments) = words.split_first()?;
        let mut command = self.settings.command(program.into());
        command.args(arguments);
        Some(command)
    }

    /// Makes the store of a row, unless it is the present one.
    ///
    /// Another process writes it. The memory of this one must stay small, because that of a
    /// measured program begins with it.
    pub(super) fn make_store(&mut self, plan: &RowPlan) -> Result<()> {
        let wanted = (plan.shape, plan.files);
        if self.made == Some(wanted) {
            return Ok(());
        }
        self.made = None;
        floe_bench::remove_tree(&self.store())?;
        let name = |value: Option<clap::builder::PossibleValue>| {
            value
                .map(|value| value.get_name().to_owned())
                .unwrap_or_default()
        };
        // This program, even if a build has replaced its file since the start.
        let status = Command::new("/proc/self/exe")
            .arg("make-store")
            .arg(self.store())
            .args(["--paths", &plan.shape.paths.to_string()])
            .args([
                "--references",
                &name(plan.shape.references.to_possible_value()),
            ])
            .args(["--files", &name(plan.files.to_possible_value())])
            .status()
            .context("cannot make a store")?;
        ensure!(status.success(), "cannot make a store: {status}");
        self.made = Some(wanted);
        Ok(())
    }

    /// A variant that runs a command with an empty home.
    pub(super) fn variant(&self, program: &Program, arguments: Vec<String>) -> Variant<'static> {
        Variant {
            name: program.name().into(),
            invocation: Invocation {
                arguments,
                environment: self.settings.environment(),
                stderr: self.scratch.path().join("stderr"),
                deadline: DEADLINE,
            },
            home: self.settings.home(),
            scratch_paths: vec![self.target()],
            synced: None,
            prepare: Box::new(|| Ok(())),
            check: Box::new(|| Ok(())),
        }
    }
}

fn temporary_directory(parent: &Path) -> Result<tempfile::TempDir> {
    tempfile::Builder::new()
        .prefix("floe-bench-")
        .tempdir_in(parent)
        .with_context(|| format!("cannot create a directory in {}", parent.display()))
}

/// The stores are in memory, so that no disk is measured.
const MEMORY: &str = "/dev/shm";

/// Nix needs minutes for a large collection.
const DEADLINE: Duration = Duration::from_secs(900);
