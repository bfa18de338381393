//! `cargo xtask check`: the rules of this repository that a small program can check.
//!
//! Each rule is a function from text to faults, with tests in its own file. This file collects the
//! sources and prints the faults.

use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use crate::Outcome;

mod circles;
pub(crate) mod code;
mod documents;
mod layers;
mod licences;
mod plain_threads;
pub(crate) mod prose;
mod retired;
mod server_texts;
mod shared_directories;
mod sleeps;
mod sources;
mod written_files;

/// A place that breaks a rule.
#[derive(Debug)]
pub(crate) struct Fault {
    file: String,
    /// Counted from 1; 0 if the fault concerns the whole file.
    line: usize,
    rule: &'static str,
    why: String,
}

impl Fault {
    fn new(file: &str, line: usize, rule: &'static str, why: &str) -> Fault {
        Fault {
            file: file.into(),
            line,
            rule,
            why: why.into(),
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.file)?;
        if self.line > 0 {
            write!(f, "{}:", self.line)?;
        }
        write!(f, " {}: {}", self.rule, self.why)
    }
}

pub(crate) fn command(root: &Path, arguments: &[String]) -> Result<Outcome> {
    if let Some(argument) = arguments.first() {
        return Ok(Outcome::Usage(format!(
            "check takes no argument `{argument}`"
        )));
    }
    let faults = faults(root)?;
    for fault in &faults {
        println!("{fault}");
    }
    println!("check: {} faults", faults.len());
    Ok(if faults.is_empty() {
        Outcome::Good
    } else {
        Outcome::Bad
    })
}

/// Returns all faults of the repository.
pub(crate) fn faults(root: &Path) -> Result<Vec<Fault>> {
    let files = files(root)?;
    let mut faults = Vec::new();
    let mut sources = Vec::new();
    for file in &files {
        let bytes = std::fs::read(root.join(file)).with_context(|| format!("reading {file}"))?;
        faults.extend(documents::faults(file, &bytes));
        if let Ok(text) = std::str::from_utf8(&bytes) {
            faults.extend(retired::faults(file, text));
            // Benchmarks write these.
            let is_generated = file.starts_with("bench/results/");
            if file.ends_with(".md") && !is_generated {
                faults.extend(documents::width_faults(file, text));
            }
        }
        if file.ends_with(".rs") {
            let text = String::from_utf8_lossy(&bytes).into_owned();
            faults.extend(sources::faults(file, &text));
            faults.extend(sleeps::faults(file, &text));
            sources.push((file.clone(), text));
        }
    }
    faults.extend(circles::faults(&sources));
    faults.extend(shared_directories::stale_entries(&files));
    let mut document = |name: &str, rules: &dyn Fn(&str) -> Vec<Fault>| {
        faults.extend(match std::fs::read_to_string(root.join(name)) {
            Ok(text) => rules(&text),
            Err(error) => vec![Fault::new(name, 0, "present", &error.to_string())],
        });
    };
    document("CHANGELOG.md", &documents::changelog_faults);
    document("ARCHITECTURE.md", &|text| {
        documents::architecture_faults(text, &files)
    });
    // Without deny.toml no licence is allowed, so every package becomes a fault.
    let deny = std::fs::read_to_string(root.join("deny.toml")).unwrap_or_default();
    let metadata = metadata(root)?;
    faults.extend(layers::faults(&metadata));
    faults.extend(licences::faults(&metadata, &licences::allowed(&deny)));
    Ok(faults)
}

fn metadata(root: &Path) -> Result<Value> {
    let output = crate::cargo(root, &["metadata", "--format-version", "1"])
        .stderr(Stdio::inherit())
        .output()
        .context("starting cargo metadata")?;
    ensure!(output.status.success(), "cargo metadata: {}", output.status);
    serde_json::from_slice(&output.stdout).context("reading what cargo metadata printed")
}

/// Returns the files of the repository: those that git tracks, and those that it would track, so
/// that a fault shows before the commit.
pub(crate) fn files(root: &Path) -> Result<BTreeSet<String>> {
    let git = Command::new("git")
        // Containers check out as one user and run tests as another.
        .args(["-c", "safe.directory=*", "ls-files", "-z"])
        .args(["--cached", "--others", "--exclude-standard"])
        .current_dir(root)
        .stdin(Stdio::null())
        .output();
    let mut found = BTreeSet::new();
    match git {
        Ok(output) if output.status.success() => {
            let names = output
                .stdout
                .split(|&byte| byte == 0)
                .filter(|name| !name.is_empty());
            for name in names.map(String::from_utf8_lossy) {
                // Symbolic links have no text, and a deleted file may still be in the index.
                if root
                    .join(&*name)
                    .symlink_metadata()
                    .is_ok_and(|data| data.is_file())
                {
                    found.insert(name.into_owned());
                }
            }
        }
        // A source archive has no git: all files count, except cargo's output.
        _ => walk(root, "", &mut found)?,
    }
    Ok(found)
}

fn walk(root: &Path, inner: &str, found: &mut BTreeSet<String>) -> Result<()> {
    let directory = root.join(inner);
    let entries = std::fs::read_dir(&directory).with_context(|| directory.display().to_string())?;
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = if inner.is_empty() {
            name.clone()
        } else {
            format!("{inner}/{name}")
        };
        let kind = entry.file_type()?;
        if kind.is_dir() && name != ".git" && name != "target" {
            walk(root, &path, found)?;
        } else if kind.is_file() {
            found.insert(path);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fault_prints_place_rule_and_reason() {
        let fault = Fault::new("a/b.rs", 3, "width", "too wide");
        assert_eq!(fault.to_string(), "a/b.rs:3: width: too wide");
        let fault = Fault::new("a", 0, "blob", "too big");
        assert_eq!(fault.to_string(), "a: blob: too big");
    }
}
