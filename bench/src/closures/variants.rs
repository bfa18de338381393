//! The variants of a row: the commands that do the work, and the checks of their results.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::rc::Rc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use floe_bench::{BenchError, Invocation, Variant};

use super::fixture::{Fixture, Kind, Program};
use crate::corpus::Corpus;
use crate::file_cache;

/// Bytes of the results by variant, where they differ.
pub(super) type Sizes = Rc<RefCell<BTreeMap<String, u64>>>;

/// The check of a result.
pub(super) type Check<'a> = Box<dyn Fn() -> Result<(), BenchError> + 'a>;

/// Where a row writes.
#[derive(Clone)]
pub(super) struct Destination {
    /// The root of a store.
    pub(super) root: PathBuf,
    /// A directory whose disk is synchronised before each run.
    pub(super) synced: Option<PathBuf>,
}

/// No run takes a tenth of this.
const DEADLINE: Duration = Duration::from_secs(600);

/// A variant that runs a command with an empty home.
pub(super) fn variant<'a>(
    fixture: &'a Fixture,
    name: &str,
    arguments: Vec<String>,
    to: Option<&Destination>,
) -> Variant<'a> {
    Variant {
        name: name.into(),
        invocation: Invocation {
            arguments,
            environment: fixture.settings.environment(),
            stderr: fixture.scratch.path().join("stderr"),
            deadline: DEADLINE,
        },
        home: fixture.settings.home(),
        scratch_paths: to.map(|to| to.root.clone()).into_iter().collect(),
        synced: to.and_then(|to| to.synced.clone()),
        prepare: Box::new(|| Ok(())),
        check: Box::new(|| Ok(())),
    }
}

/// One variant per program that copies the closure of a corpus from a signed cache.
pub(super) fn copies_from_cache<'a>(
    fixture: &'a Fixture,
    corpus: &Corpus,
    url: &str,
    to: &Destination,
) -> Result<Vec<Variant<'a>>> {
    copies(fixture, corpus, (url, Some(&corpus.public_key)), to)
}

/// One variant per program that copies the closure of a corpus from its local store.
pub(super) fn copies_from_store<'a>(
    fixture: &'a Fixture,
    corpus: &Corpus,
    to: &Destination,
) -> Result<Vec<Variant<'a>>> {
    let from = corpus.store().display().to_string();
    copies(fixture, corpus, (&from, None), to)
}

fn copies<'a>(
    fixture: &'a Fixture,
    corpus: &Corpus,
    (from, key): (&str, Option<&str>),
    to: &Destination,
) -> Result<Vec<Variant<'a>>> {
    let programs = fixture.programs.iter();
    let variants = programs.map(|program| copy(fixture, (program, corpus), (from, key), to));
    variants.collect()
}

/// A program that copies the closure of a corpus from a signed cache.
pub(super) fn copy_from_cache<'a>(
    fixture: &'a Fixture,
    corpus: &Corpus,
    (program, url): (&Program, &str),
    to: &Destination,
) -> Result<Variant<'a>> {
    let from = (url, Some(&*corpus.public_key));
    copy(fixture, (program, corpus), from, to)
}

/// A program that copies the closure of a corpus from a cache without signatures.
pub(super) fn unsigned_copy<'a>(
    fixture: &'a Fixture,
    corpus: &Corpus,
    (program, url): (&Program, &str),
    to: &Destination,
) -> Result<Variant<'a>> {
    copy(fixture, (program, corpus), (url, None), to)
}

fn copy<'a>(
    fixture: &'a Fixture,
    (program, corpus): (&Program, &Corpus),
    (from, key): (&str, Option<&str>),
    to: &Destination,
) -> Result<Variant<'a>> {
    let expected = Rc::new(nar_hashes(fixture, &corpus.store(), &corpus.paths)?);
    let root = to.root.display().to_string();
    let path = program.path.display().to_string();
    let mut all = strings(&[&path, "copy", "--from", from, "--to", &root, &corpus.root]);
    match (key, program.kind) {
        (None, _) => all.push("--no-check-sigs".into()),
        (Some(key), Kind::Floe) => all.extend(strings(&["--trusted-public-keys", key])),
        (Some(key), Kind::Nix) => {
            all.extend(strings(&["--option", "trusted-public-keys", key]));
        }
    }
    let mut copy = variant(fixture, program.name, all, Some(to));
    copy.check = check_store(fixture, to.root.clone(), corpus.paths.clone(), &expected);
    Ok(copy)
}

/// Checks that a store has the closure of a corpus.
pub(super) fn check_closure<'a>(
    fixture: &'a Fixture,
    corpus: &Corpus,
    root: PathBuf,
) -> Result<Check<'a>> {
    let expected = Rc::new(nar_hashes(fixture, &corpus.store(), &corpus.paths)?);
    Ok(check_store(fixture, root, corpus.paths.clone(), &expected))
}

/// The NAR hash of each path, as Nix reads it from the database of a store.
fn nar_hashes(fixture: &Fixture, store: &Path, paths: &[String]) -> Result<String> {
    let mut command = fixture.nix_command("nix-store");
    command
        .arg("--store")
        .arg(store)
        .args(["--query", "--hash"])
        .args(paths);
    let output = command
        .output()
        .context("cannot run nix-store --query --hash")?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(
        output.status.success() && text.lines().count() == paths.len(),
        "{} lacks a part of the closure",
        store.display()
    );
    Ok(text)
}

/// Checks that every path is valid with its NAR hash. After the first run, Nix also hashes the
/// contents.
fn check_store<'a>(
    fixture: &'a Fixture,
    root: PathBuf,
    paths: Vec<String>,
    expected: &Rc<String>,
) -> Check<'a> {
    let expected = expected.clone();
    let has_verified = Cell::new(false);
    Box::new(move || {
        let wrong = |text: String| BenchError::Result(text);
        let found =
            nar_hashes(fixture, &root, &paths).map_err(|error| wrong(format!("{error:#}")))?;
        if found != *expected {
            return Err(wrong("paths with other NAR hashes".into()));
        }
        if !has_verified.replace(true) {
            let mut command = fixture.nix_command("nix-store");
            command
                .arg("--store")
                .arg(&root)
                .args(["--verify", "--check-contents"]);
            let status = command.stdout(Stdio::null()).status();
            if !status.is_ok_and(|status| status.success()) {
                return Err(wrong("nix-store --verify --check-contents fails".into()));
            }
        }
        Ok(())
    })
}

/// Checks that a cache has a narinfo for each path, and notes the size of its NAR files.
pub(super) fn check_cache(
    cache: PathBuf,
    paths: usize,
    name: &'static str,
    sizes: Sizes,
) -> Check<'static> {
    Box::new(move || {
        let list = |directory: PathBuf| fs::read_dir(directory).into_iter().flatten().flatten();
        let narinfos = file_cache::count_narinfos(&cache);
        if narinfos != paths {
            let text = format!("{narinfos} narinfos for {paths} paths");
            return Err(BenchError::Result(text));
        }
        let bytes = list(cache.join("nar")).filter_map(|entry| Some(entry.metadata().ok()?.len()));
        sizes.borrow_mut().insert(name.into(), bytes.sum());
        Ok(())
    })
}

/// Adds variants that do one part of the work each: receive, decode or read, hash, write. Returns
/// their names; none if the corpus lacks uncompressed NARs, or if two builds of floe are compared.
pub(super) fn add_baseline<'a>(
    fixture: &'a Fixture,
    corpus: &Corpus,
    source: Source<'_>,
    (to, variants): (&Destination, &mut Vec<Variant<'a>>),
) -> Result<Vec<&'static str>> {
    let plain = corpus.nar_files("none");
    let Some(bench) = fixture.bench.as_deref().filter(|_| !plain.is_empty()) else {
        return Ok(Vec::new());
    };
    let mut names = vec!["hash", "write"];
    match source {
        Source::Cache { compression, url } => {
            if let Some(url) = url {
                let urls = corpus.nar_urls(compression, url);
                let receive = baseline_command(bench, "receive", urls);
                variants.push(variant(fixture, "receive", receive, None));
                names.push("receive");
            }
            if compression != "none" {
                let files = corpus.nar_files(compression);
                let decode = baseline_command(bench, compression, files);
                variants.push(variant(fixture, "decode", decode, None));
                names.push("decode");
            }
        }
        Source::Store => {
            let tree = corpus.store().join("nix/store").display().to_string();
            let read = strings(&["sh", "-c", "tar -C \"$0\" -cf - . | cat > /dev/null", &tree]);
            variants.push(variant(fixture, "read", read, None));
            names.push("read");
        }
    }
    let hash = baseline_command(bench, "sha256", plain);
    variants.push(variant(fixture, "hash", hash, None));
    variants.push(untar(fixture, corpus, ("write", None), to)?);
    Ok(names)
}

/// The source of a copy.
#[derive(Clone, Copy)]
pub(super) enum Source<'a> {
    Store,
    Cache {
        compression: &'a str,
        /// Of the server; `None` for a cache in files.
        url: Option<&'a str>,
    },
}

/// A command line of `bench baseline`.
pub(super) fn baseline_command(bench: &Path, part: &str, inputs: Vec<String>) -> Vec<String> {
    let mut all = strings(&[&bench.display().to_string(), "baseline", part]);
    all.extend(inputs);
    all
}

/// tar, which unpacks the same trees: from an archive in zstd with `decoder`, the path of this
/// tool, or else from one without compression.
pub(super) fn untar<'a>(
    fixture: &'a Fixture,
    corpus: &Corpus,
    (name, decoder): (&str, Option<&Path>),
    to: &Destination,
) -> Result<Variant<'a>> {
    let archive = archive(fixture, corpus, decoder.is_some())?;
    let archive = archive.display().to_string();
    let root = to.root.display().to_string();
    let script = "mkdir \"$0\" && exec tar -C \"$0\" \"$@\"";
    let mut all = strings(&["sh", "-c", script, &root]);
    if let Some(bench) = decoder {
        all.extend(strings(&[
            "-I",
            &format!("{} baseline cat", bench.display()),
        ]));
    }
    all.extend(strings(&["-xf", &archive]));
    Ok(variant(fixture, name, all, Some(to)))
}

/// An archive of the trees of a closure, made once.
fn archive(fixture: &Fixture, corpus: &Corpus, is_compressed: bool) -> Result<PathBuf> {
    let name = corpus.root.rsplit('/').next().unwrap_or_default();
    let extension = if is_compressed { "tar.zst" } else { "tar" };
    let file = fixture.directory.join(format!("{name}.{extension}"));
    if file.exists() {
        return Ok(file);
    }
    let new = file.with_extension("new");
    let script = if is_compressed {
        "tar -C \"$0\" -cf - . | zstd -q -3 -f -o \"$1\""
    } else {
        "tar -C \"$0\" -cf \"$1\" ."
    };
    let status = Command::new("sh")
        .args(["-c", script])
        .arg(corpus.store().join("nix/store"))
        .arg(&new)
        .status()?;
    ensure!(status.success(), "cannot create {}", file.display());
    fs::rename(&new, &file)?;
    Ok(file)
}

pub(super) fn strings(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}
