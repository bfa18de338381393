//! The rows of collections and of hard links: each run gets a copy of a store of its own.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use floe_bench::BenchError;

use super::chains;
use super::fixture::{Fixture, Kind, NIX, Program};
use super::rows::{Group, PreparedRow, RowPlan, ext4};
use super::variants::{self, Destination, strings};
use crate::aims::Aim;
use crate::corpus::Corpus;

/// The rows.
pub(super) fn rows() -> Vec<RowPlan> {
    type PrepareFn = fn(&Fixture) -> Result<PreparedRow<'_>>;
    let row = |name: &str, most: f64, prepare: PrepareFn| RowPlan {
        group: Group::Collect,
        name: name.into(),
        aim: Aim::time(NIX, most),
        prepare: Box::new(prepare),
    };
    vec![
        row("kdenlive, half dead, gc", 0.60, |fixture| {
            gc(fixture, &fixture.corpus(&["kdenlive"])?)
        }),
        row("firefox, half dead, gc", 0.60, |fixture| {
            gc(fixture, &fixture.corpus(&["firefox", "firefox-esr"])?)
        }),
        row("20,000 tiny paths, half dead, gc", 0.50, |fixture| {
            gc(fixture, &tiny(fixture)?)
        }),
        row("firefox, optimise", 0.50, optimise),
    ]
}

/// A closure of many paths with one small file each.
fn tiny(fixture: &Fixture) -> Result<Corpus> {
    let directory = fixture.directory.join("tiny");
    let tool = |tool: &str| fixture.nix_command(tool);
    chains::make(&directory, chains::Shape::TINY, &tool)?;
    Corpus::read(directory)
}

/// A collection that deletes the half of the closure that refers to the other half.
fn gc<'a>(fixture: &'a Fixture, corpus: &Corpus) -> Result<PreparedRow<'a>> {
    let to = ext4(fixture)?;
    // References come before their referrers.
    let live = &corpus.paths[..corpus.paths.len() / 2];
    let variants = fixture.programs.iter().map(|program| {
        let command = command(program, &to, ("gc", "--gc"));
        let mut variant = variants::variant(fixture, program.name, command, Some(&to));
        variant.prepare = prepare(corpus, &to, live);
        let (root, live) = (to.root.clone(), live.to_vec());
        variant.check = Box::new(move || check_collected(fixture, &root, &live));
        variant
    });
    Ok(PreparedRow::new(variants.collect()))
}

fn optimise(fixture: &Fixture) -> Result<PreparedRow<'_>> {
    let corpus = fixture.corpus(&["firefox", "firefox-esr"])?;
    let to = ext4(fixture)?;
    let links = links_of_nix(fixture, &corpus, &to)?;
    let variants = fixture.programs.iter().map(|program| {
        let command = command(program, &to, ("optimise", "--optimise"));
        let mut variant = variants::variant(fixture, program.name, command, Some(&to));
        variant.prepare = prepare(&corpus, &to, &[]);
        let (root, links) = (to.root.clone(), links.clone());
        variant.check = Box::new(move || check_links(&root, &links));
        variant
    });
    Ok(PreparedRow::new(variants.collect()))
}

/// The command of a program: the one of floe, or that of nix-store.
fn command(program: &Program, to: &Destination, (floe, nix): (&str, &str)) -> Vec<String> {
    let (path, root) = (
        program.path.display().to_string(),
        to.root.display().to_string(),
    );
    match program.kind {
        Kind::Floe => strings(&[&path, floe, "--root", &root]),
        Kind::Nix => strings(&[&format!("{path}-store"), "--store", &root, nix]),
    }
}

/// Copies the store of a corpus, and makes a root for each live path.
fn prepare<'a>(
    corpus: &Corpus,
    to: &Destination,
    live: &[String],
) -> Box<dyn Fn() -> Result<(), BenchError> + 'a> {
    let (from, to, live) = (corpus.store(), to.root.clone(), live.to_vec());
    Box::new(move || {
        copy_store(&from, &to, &live).map_err(|error| BenchError::Result(format!("{error:#}")))
    })
}

fn copy_store(from: &Path, to: &Path, live: &[String]) -> Result<()> {
    let copied = Command::new("cp").arg("-a").arg(from).arg(to).status()?;
    ensure!(copied.success(), "cannot copy {}", from.display());
    let state = to.join("nix/var/nix");
    for directory in ["gcroots", "profiles"] {
        // The corpus may have roots of its own.
        let _ = fs::remove_dir_all(state.join(directory));
    }
    let roots = state.join("gcroots/live");
    fs::create_dir_all(&roots).context("cannot create the roots")?;
    for (number, path) in live.iter().enumerate() {
        symlink(path, roots.join(number.to_string()))?;
    }
    Ok(())
}

/// Checks that exactly the live paths are valid and on disk.
fn check_collected(fixture: &Fixture, root: &Path, live: &[String]) -> Result<(), BenchError> {
    let mut dump = fixture.nix_command("nix-store");
    let dumped = dump.arg("--store").arg(root).arg("--dump-db").output();
    // Each path has a line with its hash, a line with its size, and further ones without a blank.
    let valid = dumped.ok().map(|output| {
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let lines = text.lines();
        lines
            .filter(|line| line.len() == HASH_LEN && !line.contains('/'))
            .count()
    });
    let files = names(&root.join("nix/store")).len();
    // Beside the paths there is `.links`.
    match (valid, files) {
        (Some(valid), files) if valid == live.len() && files == live.len() + 1 => Ok(()),
        (valid, files) => Err(BenchError::Result(format!(
            "{valid:?} live paths and {files} files instead of {} paths",
            live.len()
        ))),
    }
}

fn names(directory: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.collect()
}

/// The names in `.links` after `nix-store --optimise`.
fn links_of_nix(fixture: &Fixture, corpus: &Corpus, to: &Destination) -> Result<BTreeSet<String>> {
    copy_store(&corpus.store(), &to.root, &[])?;
    let mut optimise = fixture.nix_command("nix-store");
    let optimised = optimise
        .arg("--store")
        .arg(&to.root)
        .arg("--optimise")
        .status()?;
    ensure!(optimised.success(), "nix-store --optimise failed");
    let links = names(&links_directory(&to.root));
    fs::remove_dir_all(&to.root)?;
    ensure!(!links.is_empty(), "nix-store --optimise made no links");
    Ok(links)
}

fn links_directory(root: &Path) -> PathBuf {
    root.join("nix/store/.links")
}

fn check_links(root: &Path, expected: &BTreeSet<String>) -> Result<(), BenchError> {
    if names(&links_directory(root)) == *expected {
        Ok(())
    } else {
        Err(BenchError::Result(
            "other links than those of nix-store".into(),
        ))
    }
}

/// A SHA-256 in hexadecimal.
const HASH_LEN: usize = 64;
