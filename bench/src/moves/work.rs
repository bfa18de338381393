//! Who does the work of a row, and how it is seen that it was done.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::rc::Rc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use floe_bench::{BenchError, Invocation, Variant, file_system};

use super::fixture::{Corpus, Fixture};
use super::rows::{FLOE, NIX, OLDER, words};

/// Bytes of the results, by variant.
pub(super) type Sizes = Rc<RefCell<BTreeMap<String, u64>>>;

/// A check of a result.
type Check<'a> = Box<dyn Fn() -> Result<(), BenchError> + 'a>;

/// Where a row writes.
#[derive(Clone)]
pub(super) struct Destination {
    /// The root of a store.
    pub(super) root: PathBuf,
    /// A directory whose disk must be at rest before a run.
    pub(super) settled: Option<PathBuf>,
}

/// The programs that do the same work, by name, in the order of reports.
pub(super) fn programs(fixture: &Fixture) -> Vec<(&'static str, String)> {
    let nix = |bin: &PathBuf| bin.join("nix").display().to_string();
    let mut programs = vec![
        (NIX, nix(&fixture.nix)),
        (FLOE, fixture.floe.display().to_string()),
    ];
    programs.extend(fixture.older_nix.as_ref().map(|bin| (OLDER, nix(bin))));
    programs
}

/// A variant that runs some words, with an empty home.
pub(super) fn variant<'a>(
    fixture: &'a Fixture,
    name: &str,
    words: Vec<String>,
    to: Option<&Destination>,
) -> Variant<'a> {
    let home = fixture.home();
    let settled = to.and_then(|to| to.settled.clone());
    let mut scratch_paths = vec![home.clone()];
    scratch_paths.extend(to.map(|to| to.root.clone()));
    Variant {
        name: name.into(),
        invocation: Invocation {
            arguments: words,
            environment: fixture.environment(),
            stderr: fixture.aside.path().join("stderr"),
            deadline: DEADLINE,
        },
        scratch_paths,
        prepare: Box::new(move || {
            fs::create_dir(&home).map_err(|error| BenchError::Result(error.to_string()))?;
            settled.as_deref().map_or(Ok(()), file_system::sync)
        }),
        check: Box::new(|| Ok(())),
    }
}

/// No run of these takes a tenth of it.
const DEADLINE: Duration = Duration::from_secs(600);

/// Nix and floe, moving the closure of a corpus.
pub(super) fn movers<'a>(
    fixture: &'a Fixture,
    corpus: &Corpus,
    from: &str,
    to: &Destination,
    signed: bool,
) -> Result<Vec<Variant<'a>>> {
    let expected = Rc::new(hashes(fixture, &corpus.store(), &corpus.paths)?);
    let root = to.root.display().to_string();
    let mut movers = Vec::new();
    for (name, program) in programs(fixture) {
        let mut all = words(&[
            &program,
            "copy",
            "--from",
            from,
            "--to",
            &root,
            &corpus.root,
        ]);
        match (signed, name) {
            (false, _) => all.push("--no-check-sigs".into()),
            (true, FLOE) => all.extend(words(&["--trusted-public-keys", &corpus.key])),
            (true, _) => all.extend(words(&["--option", "trusted-public-keys", &corpus.key])),
        }
        let mut mover = variant(fixture, name, all, Some(to));
        mover.check = check_store(fixture, to.root.clone(), corpus.paths.clone(), &expected);
        movers.push(mover);
    }
    Ok(movers)
}

/// What the newest Nix says of some paths in a store: a hash for each.
fn hashes(fixture: &Fixture, store: &std::path::Path, paths: &[String]) -> Result<String> {
    let mut command = fixture.nix_command("nix-store");
    command
        .arg("--store")
        .arg(store)
        .args(["--query", "--hash"])
        .args(paths);
    let output = command
        .output()
        .context("running nix-store --query --hash")?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(
        output.status.success() && text.lines().count() == paths.len(),
        "{} has not all of the closure",
        store.display()
    );
    Ok(text)
}

/// Every path is valid with its hash; the first time, Nix hashes the contents as well.
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
        let found = hashes(fixture, &root, &paths).map_err(|error| wrong(format!("{error:#}")))?;
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

/// A narinfo for each path; what the files weigh goes to `sizes`.
pub(super) fn check_cache(
    cache: PathBuf,
    paths: usize,
    name: &'static str,
    sizes: Sizes,
) -> Check<'static> {
    Box::new(move || {
        let list = |directory: PathBuf| fs::read_dir(directory).into_iter().flatten().flatten();
        let narinfos = list(cache.clone())
            .filter(|entry| entry.path().extension().is_some_and(|it| it == "narinfo"))
            .count();
        if narinfos != paths {
            return Err(BenchError::Result(format!(
                "{narinfos} narinfos for {paths} paths"
            )));
        }
        let bytes = list(cache.join("nar")).filter_map(|entry| Some(entry.metadata().ok()?.len()));
        sizes.borrow_mut().insert(name.into(), bytes.sum());
        Ok(())
    })
}

/// The parts of the work by themselves: decoding or reading, hashing, writing. Their names are
/// given back if all of them can be measured.
pub(super) fn baselines<'a>(
    fixture: &'a Fixture,
    corpus: &Corpus,
    compression: &str,
    to: &Destination,
    variants: &mut Vec<Variant<'a>>,
) -> Result<Vec<&'static str>> {
    let plain = corpus.nars("none");
    if plain.is_empty() {
        return Ok(Vec::new());
    }
    let baseline = fixture.baseline.display().to_string();
    let run = |what: &str, files: Vec<String>| {
        let mut all = words(&[&baseline, "baseline", what]);
        all.extend(files);
        all
    };
    let mut names = vec!["hash", "write"];
    match compression {
        "none" => {}
        "local" => {
            let tree = corpus.store().join("nix/store").display().to_string();
            let read = words(&["sh", "-c", "tar -C \"$0\" -cf - . | cat > /dev/null", &tree]);
            variants.push(variant(fixture, "read", read, None));
            names.push("read");
        }
        compression => {
            let decode = run(compression, corpus.nars(compression));
            variants.push(variant(fixture, "decode", decode, None));
            names.push("decode");
        }
    }
    variants.push(variant(fixture, "hash", run("sha256", plain), None));
    variants.push(untar(fixture, corpus, "write", false, to)?);
    Ok(names)
}

/// tar, unpacking the same trees, with the decoder that floe has, or none.
pub(super) fn untar<'a>(
    fixture: &'a Fixture,
    corpus: &Corpus,
    name: &str,
    is_compressed: bool,
    to: &Destination,
) -> Result<Variant<'a>> {
    let archive = archive(fixture, corpus, is_compressed)?
        .display()
        .to_string();
    let root = to.root.display().to_string();
    let script = "mkdir \"$0\" && exec tar -C \"$0\" \"$@\"";
    let mut all = words(&["sh", "-c", script, &root]);
    if is_compressed {
        let decoder = format!("{} baseline cat", fixture.baseline.display());
        all.extend(words(&["-I", &decoder]));
    }
    all.extend(words(&["-xf", &archive]));
    Ok(variant(fixture, name, all, Some(to)))
}

/// The trees of a closure in an archive, made once.
fn archive(fixture: &Fixture, corpus: &Corpus, is_compressed: bool) -> Result<PathBuf> {
    let name = corpus.root.rsplit('/').next().unwrap_or_default();
    let end = if is_compressed { "tar.zst" } else { "tar" };
    let place = fixture.place.join(format!("{name}.{end}"));
    if place.exists() {
        return Ok(place);
    }
    let new = place.with_extension("new");
    let tree = corpus.store().join("nix/store");
    let script = match is_compressed {
        true => "tar -C \"$0\" -cf - . | zstd -q -3 -f -o \"$1\"",
        false => "tar -C \"$0\" -cf \"$1\" .",
    };
    let made = Command::new("sh")
        .args(["-c", script])
        .arg(tree)
        .arg(&new)
        .status()?;
    ensure!(made.success(), "making {} failed", place.display());
    fs::rename(&new, &place)?;
    Ok(place)
}
