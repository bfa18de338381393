//! Scenarios: the source and the target of a measurement.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail};
use floe_bench::Invocation;
use floe_bench::file_system::{self, Durability, FileSystem};
use floe_transfer::{ErrorKind, Size};

use super::closure::Closure;
use super::variant::VariantSpec;
use crate::commands::bench::args::BenchCopyArgs;
use crate::display::eprint_line;
use crate::exit::{AlreadyReported, UsageError};
use crate::messages;

/// The storage that a scenario writes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Medium {
    Tmpfs,
    Disk,
}

/// A scenario: a source, and the storage of the target.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Scenario {
    pub(crate) from: String,
    medium: Medium,
}

/// Parses a `--scenario` option.
pub(crate) fn parse(text: &str) -> Result<Scenario, UsageError> {
    let (kind, from) = match text.split_once('=') {
        Some((kind, from)) => (kind, Some(from)),
        None => (text, None),
    };
    let (medium, from) = match (kind, from) {
        ("local-tmpfs", from) => (Medium::Tmpfs, from.unwrap_or("auto")),
        ("local-disk", from) => (Medium::Disk, from.unwrap_or("auto")),
        ("cache-tmpfs", Some(url)) => (Medium::Tmpfs, url),
        ("cache-disk", Some(url)) => (Medium::Disk, url),
        _ => {
            return Err(UsageError(format!(
                "cannot use --scenario {text}: write local-tmpfs, local-disk, cache-tmpfs=URL or \
                 cache-disk=URL; local ones may name a store, as in local-disk=STORE"
            )));
        }
    };
    let from = from.to_owned();
    Ok(Scenario { from, medium })
}

/// A scenario with its directories, which are removed when it is dropped.
pub(crate) struct ScenarioRun<'a> {
    pub(crate) scenario: &'a Scenario,
    pub(crate) closure: Closure,
    pub(crate) file_system: FileSystem,
    directory: tempfile::TempDir,
    /// The directory of homes and messages, which are not part of the measurement.
    aside: tempfile::TempDir,
}

impl ScenarioRun<'_> {
    /// Creates the directories of a scenario.
    ///
    /// Errors: a directory is on the wrong storage, or has no space for the closure.
    pub(crate) fn create<'a>(
        scenario: &'a Scenario,
        args: &BenchCopyArgs,
        closure: Closure,
    ) -> anyhow::Result<ScenarioRun<'a>> {
        let temp_dir = std::env::temp_dir();
        let (option, parent) = match scenario.medium {
            Medium::Tmpfs => ("--tmpfs", &args.tmpfs),
            Medium::Disk => ("--scratch", args.scratch.as_ref().unwrap_or(&temp_dir)),
        };
        fs::create_dir_all(parent).with_context(|| messages::directory(parent))?;
        let file_system = FileSystem::of(parent)?;
        check_medium(scenario.medium, option, parent, &file_system)?;
        check_free_space(parent, &closure)?;
        let make = |parent: &Path| {
            tempfile::Builder::new()
                .prefix("floe-bench-")
                .tempdir_in(parent)
                .with_context(|| format!("cannot create a directory in {}", parent.display()))
        };
        Ok(ScenarioRun {
            scenario,
            closure,
            file_system,
            directory: make(parent)?,
            aside: make(&temp_dir)?,
        })
    }

    /// Returns the name of the scenario, such as "cache (xz, HTTP) → tmpfs".
    pub(crate) fn name(&self) -> String {
        let way = if self.scenario.from.starts_with("http") {
            "HTTP"
        } else {
            "file"
        };
        let from = match self.closure.compressions() {
            None => "local".to_owned(),
            Some(compressions) => format!("cache ({compressions}, {way})"),
        };
        let to = match self.scenario.medium {
            Medium::Tmpfs => "tmpfs".to_owned(),
            Medium::Disk => format!("disk ({})", self.file_system.describe()),
        };
        format!("{from} → {to}")
    }

    /// Returns the root directory of the target store, which does not exist before a run.
    fn destination(&self) -> PathBuf {
        self.directory.path().join("root")
    }

    /// Returns the arguments of a variant's command.
    pub(crate) fn words(&self, variant: &VariantSpec) -> Vec<String> {
        let (from, paths) = (&self.scenario.from, &self.closure.roots);
        let dest = self.destination().display().to_string();
        variant.template.fill(from, &dest, paths)
    }

    /// Returns a variant that is ready to be timed.
    pub(crate) fn timed_variant(
        &self,
        variant: &VariantSpec,
        deadline: Duration,
    ) -> floe_bench::Variant<'_> {
        let home = self.aside.path().join("home");
        let is_on_disk = self.scenario.medium == Medium::Disk;
        floe_bench::Variant {
            name: variant.name.clone(),
            invocation: Invocation {
                arguments: self.words(variant),
                environment: environment(&home),
                stderr: self.aside.path().join("stderr"),
                deadline,
            },
            home,
            scratch_paths: vec![self.destination()],
            synced: is_on_disk.then(|| self.directory.path().to_owned()),
            prepare: Box::new(|| Ok(())),
            check: Box::new(self.closure.check(self.destination())),
        }
    }
}

/// Returns variables for a home of its own, so that no cache holds results of an earlier run.
fn environment(home: &Path) -> Vec<(String, Option<String>)> {
    let within = |name: &str| Some(home.join(name).display().to_string());
    vec![
        ("HOME".into(), Some(home.display().to_string())),
        ("XDG_CACHE_HOME".into(), within(".cache")),
        ("XDG_CONFIG_HOME".into(), within(".config")),
        ("XDG_DATA_HOME".into(), within(".local/share")),
        ("XDG_STATE_HOME".into(), within(".local/state")),
    ]
}

fn check_medium(
    medium: Medium,
    option: &str,
    directory: &Path,
    found: &FileSystem,
) -> anyhow::Result<()> {
    let directory = format!("{} ({option})", directory.display());
    let kind = found.describe();
    match (medium, found.durability) {
        (Medium::Tmpfs, Durability::Memory) | (Medium::Disk, Durability::Journal) => {}
        (Medium::Tmpfs, _) => {
            bail!("cannot use {directory}: it is on {kind}; give a directory in memory")
        }
        (Medium::Disk, Durability::Memory) => {
            bail!("cannot use {directory}: it is on {kind}; give a directory on a disk")
        }
        (Medium::Disk, Durability::Plain) => bail!(
            "cannot use {directory}: it is on {kind}, where writing after a removal costs many \
             times what it costs with a journal; give a directory elsewhere, such as on an image \
             made with mkfs.ext4 and mounted with -o loop"
        ),
        (Medium::Disk, Durability::Unknown) => {
            eprint_line(format_args!("floe: {directory} is on {kind}"));
        }
    }
    Ok(())
}

fn check_free_space(directory: &Path, closure: &Closure) -> anyhow::Result<()> {
    let needed = closure.nar_bytes().saturating_add(SLACK_LEN);
    let free = file_system::free_bytes(directory)?;
    if free < needed {
        eprint_line(format_args!(
            "floe: {} has {} free, and the closure needs about {}",
            directory.display(),
            Size(free),
            Size(needed)
        ));
        bail!(AlreadyReported::from(ErrorKind::NoSpace));
    }
    Ok(())
}

/// Space for the database, for logs and for partly filled blocks.
const SLACK_LEN: u64 = 16 * 1024 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scenario_names_source_and_storage() {
        let parsed = |text: &str| parse(text).map(|it| (it.from, it.medium));
        let auto = ("auto".to_owned(), Medium::Tmpfs);
        assert_eq!(parsed("local-tmpfs").unwrap(), auto);
        let store = parsed("local-disk=/srv/a=b").unwrap();
        assert_eq!(store, ("/srv/a=b".to_owned(), Medium::Disk));
        let cache = parsed("cache-disk=http://h/?a=b").unwrap();
        assert_eq!(cache, ("http://h/?a=b".to_owned(), Medium::Disk));
        for text in ["", "cache-tmpfs", "local", "tmpfs=x"] {
            let fault = parsed(text).unwrap_err().to_string();
            assert!(
                fault.contains(text) && fault.contains("cache-tmpfs=URL"),
                "{fault}"
            );
        }
    }

    #[test]
    fn unsuitable_storage_is_refused() {
        let on = |durability| FileSystem {
            kind: "ext4".into(),
            durability,
        };
        let check = |medium, durability| {
            check_medium(medium, "--scratch", Path::new("/d"), &on(durability))
        };
        assert!(check(Medium::Disk, Durability::Journal).is_ok());
        assert!(check(Medium::Tmpfs, Durability::Memory).is_ok());
        assert!(check(Medium::Disk, Durability::Unknown).is_ok());
        for (medium, durability) in [
            (Medium::Disk, Durability::Plain),
            (Medium::Disk, Durability::Memory),
            (Medium::Tmpfs, Durability::Journal),
        ] {
            let fault = check(medium, durability).unwrap_err().to_string();
            assert!(fault.contains("/d (--scratch)"), "{fault}");
        }
    }
}
