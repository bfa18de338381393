//! `floe cache verify`: finds what makes paths of a cache unusable.

use std::hash::{BuildHasher as _, RandomState};
use std::num::NonZeroUsize;
use std::time::Instant;

use floe_copy::Verification;
use floe_format::StorePath;
use floe_transfer::{CacheContents, PathSpec, Size};
use serde_json::json;

use super::ChosenCache;
use super::args::CacheVerifyArgs;
use crate::args::TrustArgs;
use crate::commands::verify::elsewhere;
use crate::commands::verify::problems::{self, Problem};
use crate::display::{eprint_line, is_json};
use crate::exit;
use crate::messages::{counted, escaped};
use crate::stdout::print;

pub(super) fn run(args: &CacheVerifyArgs) -> anyhow::Result<()> {
    let began = Instant::now();
    let chosen = ChosenCache::of(&args.of, None)?;
    let cache = chosen.open(true)?;
    let contents = cache.contents()?;
    let mut found = problems::of_contents(&contents);
    let unused = contents.unreferenced_nars();
    let mut read = None;
    if args.contents || args.sigs_needed.is_some() {
        let mut verification = verification(&chosen, (args.sigs_needed, &args.trust))?;
        verification.paths = Some(sample(args, &contents));
        verification.options.dry_run = !args.contents;
        let verified = elsewhere::run_verification(&verification)?;
        problems::add(&mut found, &verified.problems);
        read = args.contents.then_some(verified);
    }
    let paths = contents.narinfos.len();
    if args.of.json {
        print(json!({
            "paths": paths,
            "problems": found.iter().map(Problem::to_json).collect::<Vec<_>>(),
            "unusedFiles": unused,
            "pathsRead": read.as_ref().map_or(0, |read| read.paths),
            "narBytes": read.as_ref().map_or(0, |read| read.nar_bytes),
            "seconds": began.elapsed().as_secs_f64(),
        }))?;
    } else {
        for problem in &found {
            print(escaped(&problem.message))?;
        }
        for name in &unused {
            print(format_args!("unused: {}", escaped(name)))?;
        }
    }
    let store = &chosen.store;
    let (count, unused) = (found.len(), counted(unused.len(), "unused file"));
    let read = match &read {
        Some(read) => format!(
            " and the contents of {} ({})",
            counted(read.paths, "path"),
            Size(read.nar_bytes)
        ),
        None => String::new(),
    };
    let line = format!(
        "verified {} of {store}{read}: {}, {unused}",
        counted(paths, "narinfo"),
        counted(count, "problem")
    );
    if count == 0 || !is_json() {
        eprint_line(&line);
    }
    if count == 0 {
        return Ok(());
    }
    let kind = problems::error_kind(&found);
    Err(exit::reported_failures(&line, count, kind))
}

/// Returns the verification of all paths, with their contents.
pub(super) fn verification(
    chosen: &ChosenCache,
    trust: (Option<NonZeroUsize>, &TrustArgs),
) -> anyhow::Result<Verification> {
    elsewhere::verification((&chosen.store, &chosen.settings), trust, &chosen.cancel)
}

/// Returns the paths that are read: all, or a sample if the user wants one.
fn sample(args: &CacheVerifyArgs, contents: &CacheContents) -> Vec<PathSpec> {
    let mut paths: Vec<&StorePath> = contents.narinfos.keys().collect();
    if let Some(percent) = args.sample {
        let count = (paths.len() * usize::from(percent)).div_ceil(100);
        // Each process has random keys of its own.
        let keys = RandomState::new();
        paths.sort_by_cached_key(|path| keys.hash_one(path));
        paths.truncate(count);
    }
    paths.into_iter().cloned().map(PathSpec::Path).collect()
}
