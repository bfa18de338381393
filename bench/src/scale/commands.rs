//! The command of each program for a row, its preparation, and the check of its result.

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use floe_bench::{BenchError, Variant};

use super::checks::{self, Output, PathSet};
use super::rows::{RowPlan, Task};
use super::stage::{Program, Stage};
use crate::file_cache;
use crate::synthetic_store::{Files, full_path, shape};

/// The variants of a row: one for each program that can do its work.
pub(super) fn variants(stage: &Stage, plan: &RowPlan) -> Result<Vec<Variant<'static>>> {
    if plan.task == Task::PushOne {
        fill_cache(stage, plan)?;
    }
    let work = Work { stage, plan };
    let variants = stage.programs.iter().filter_map(|program| {
        let command = work.command(program)?;
        let mut variant = stage.variant(program, command);
        work.complete(&mut variant, program);
        Some(variant)
    });
    Ok(variants.collect())
}

/// Pushes the closure of a path, without which a push of one path would push all of it.
fn fill_cache(stage: &Stage, plan: &RowPlan) -> Result<()> {
    floe_bench::remove_tree(&stage.cache())?;
    let floe = stage.programs.last().context("there is no floe")?;
    let words = Work { stage, plan }.command(floe);
    let words = words.context("floe has no command")?;
    let mut command = stage.command(&words).context("floe has no command")?;
    let output = command.stdout(Stdio::null()).output()?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "cannot push: {}", stderr.trim());
    Ok(())
}

struct Work<'a> {
    stage: &'a Stage,
    plan: &'a RowPlan,
}

impl Work<'_> {
    /// The command line; `None` if a program has none.
    fn command(&self, program: &Program) -> Option<Vec<String>> {
        match program {
            Program::Floe { path, .. } => self.floe_command(path),
            Program::Nix(bin) => self.nix_command(bin),
        }
    }

    fn floe_command(&self, floe: &Path) -> Option<Vec<String>> {
        let (store, target) = (text(&self.stage.store()), text(&self.stage.target()));
        let (cache, path) = (self.cache_url(), self.pushed_path()?);
        let arguments: &[&str] = match self.plan.task {
            Task::GcDryRun => &["gc", "--dry-run", "--root", &store],
            Task::Gc => &["gc", "--root", &target],
            Task::List => &["list", "--root", &store],
            Task::ListAllDense => &["list", "--all", "--root", &store],
            Task::Roots => &["roots", "--root", &store],
            Task::InfoAll => &["info", "--all", "--root", &store],
            Task::InfoAllJson => &["info", "--all", "--json", "--root", &store],
            Task::ServeStart => return None,
            Task::CopyPlan => &[
                "copy",
                "--all",
                "--dry-run",
                "--no-check-sigs",
                "--from",
                &store,
                "--to",
                &target,
            ],
            Task::PushOne => &["push", "--root", &store, "--to", &cache, &path],
        };
        Some(words(floe, arguments))
    }

    fn nix_command(&self, bin: &Path) -> Option<Vec<String>> {
        let (store, target) = (text(&self.stage.store()), text(&self.stage.target()));
        let (cache, path) = (self.cache_url(), self.pushed_path()?);
        let (tool, arguments): (_, &[&str]) = match self.plan.task {
            // Nix lists the files of the store directory.
            Task::GcDryRun if self.plan.files == Files::All => {
                ("nix-store", &["--store", &store, "--gc", "--print-dead"])
            }
            Task::Gc => ("nix-store", &["--store", &target, "--gc"]),
            Task::Roots => ("nix-store", &["--store", &store, "--gc", "--print-roots"]),
            Task::InfoAllJson => ("nix", &["path-info", "--store", &store, "--all", "--json"]),
            Task::PushOne => (
                "nix",
                &[
                    "copy",
                    "--no-check-sigs",
                    "--from",
                    &store,
                    "--to",
                    &cache,
                    &path,
                ],
            ),
            _ => return None,
        };
        Some(words(&bin.join(tool), arguments))
    }

    fn cache_url(&self) -> String {
        format!("file://{}?compression=zstd", self.stage.cache().display())
    }

    /// The path of the first root.
    fn pushed_path(&self) -> Option<String> {
        self.plan.shape.root_numbers().next().map(full_path)
    }

    /// Adds the preparation and the check.
    fn complete(&self, variant: &mut Variant<'static>, program: &Program) {
        let shape = self.plan.shape;
        match self.plan.task {
            Task::Gc => {
                let (from, to) = (self.stage.store(), self.stage.target());
                let root = to.clone();
                variant.prepare = Box::new(move || copy_store(&from, &to));
                variant.check = Box::new(move || checks::collected(&root, shape));
            }
            Task::PushOne => {
                let (cache, path) = (self.stage.cache(), self.pushed_path());
                let number = shape.root_numbers().next().unwrap_or_default();
                let closure = shape.closure(number).len();
                let pushed = cache.clone();
                variant.prepare = Box::new(move || {
                    file_cache::remove_path(&pushed, path.as_deref().unwrap_or_default())
                });
                variant.check = Box::new(move || checks::narinfos(&cache, closure));
            }
            _ => self.check_output_once(variant, program),
        }
    }

    /// Runs the command once more after its first run, and checks its output.
    fn check_output_once(&self, variant: &mut Variant<'static>, program: &Program) {
        let Some(expected) = self.output() else {
            return;
        };
        let mut words = variant.invocation.arguments.clone();
        if self.plan.task == Task::GcDryRun {
            // Both programs print the dead paths with this option.
            let print = words.iter_mut().filter(|word| *word == "--dry-run");
            print.for_each(|word| *word = "--print-dead".into());
        }
        let settings = self.stage.settings.clone();
        let (is_checked, name) = (Cell::new(false), program.name());
        variant.check = Box::new(move || {
            if is_checked.replace(true) {
                return Ok(());
            }
            let failed = |error| BenchError::Result(format!("{name}: {error:#}"));
            let (tool, arguments) = words.split_first().expect("a command has a program");
            let mut command = settings.command(PathBuf::from(tool));
            checks::output(command.args(arguments), &expected).map_err(failed)
        });
    }

    /// The output of a correct program.
    fn output(&self) -> Option<Output> {
        let shape = self.plan.shape;
        match self.plan.task {
            Task::GcDryRun => {
                // Both programs look for files, so a store of rows has no dead paths.
                let has_files = self.plan.files == Files::All;
                let numbers = (0..shape.paths).filter(|_| has_files);
                let dead = numbers.filter(|number| shape::is_dead(*number));
                Some(Output::Paths(dead.map(full_path).collect::<PathSet>()))
            }
            // One line has the headings.
            Task::List => Some(Output::Lines(1 + shape.roots())),
            Task::ListAllDense => Some(Output::Lines(1 + shape.roots() + shape.dead())),
            Task::Roots => Some(Output::Text(" -> ", shape.roots())),
            Task::InfoAll => Some(Output::Text("StorePath: ", shape.paths)),
            Task::InfoAllJson => Some(Output::Text("\"narHash\"", shape.paths)),
            Task::CopyPlan => Some(Output::Text("/nix/store/", shape.paths)),
            Task::Gc | Task::PushOne | Task::ServeStart => None,
        }
    }
}

/// Copies a store with its modes and times.
fn copy_store(from: &Path, to: &Path) -> Result<(), BenchError> {
    let copied = Command::new("cp").arg("-a").arg(from).arg(to).status();
    if copied.is_ok_and(|status| status.success()) {
        Ok(())
    } else {
        Err(BenchError::Result(format!(
            "cannot copy {}",
            from.display()
        )))
    }
}

fn words(program: &Path, arguments: &[&str]) -> Vec<String> {
    let program = text(program);
    let arguments = arguments.iter().map(|word| (*word).to_owned());
    std::iter::once(program).chain(arguments).collect()
}

fn text(path: &Path) -> String {
    path.display().to_string()
}
