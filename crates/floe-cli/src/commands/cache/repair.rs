//! `floe cache repair`: fetches damaged and missing paths of a cache again.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::sync::Arc;
use std::time::{Duration, Instant};

use floe_copy::{CacheCollection, CollectionEvent, CollectionOptions, CopyRequest, RequestedPaths};
use floe_format::{HashPart, PathInfo, StorePath};
use floe_transfer::{CacheContents, CopyOptions, Error, Events, PathSpec, Size, StoreConfig};
use serde_json::json;

use super::args::CacheRepairArgs;
use super::{ChosenCache, gc, verify};
use crate::commands::verify::elsewhere;
use crate::commands::verify::problems::{self, Problem};
use crate::commands::verify::repair::report_failed_repair;
use crate::copying::warn_of_unavailable;
use crate::display::{Display, eprint_line, is_json, warn};
use crate::exit::{self, UsageError};
use crate::messages::{counted, escaped};
use crate::stdout::print;

pub(super) fn run(args: &CacheRepairArgs) -> anyhow::Result<()> {
    let began = Instant::now();
    let keys = &args.secret_key_file;
    let chosen = ChosenCache::with(&args.of, None, |settings| {
        settings.set_push_defaults(keys, false)
    })?;
    let repair = Repair {
        args,
        chosen: &chosen,
    };
    let result = repair.run();
    let outcome = result.map_err(|error| exit::explain_interrupt(error, INTERRUPTED))?;
    report(args, &*chosen.store, &outcome, began.elapsed())
}

const INTERRUPTED: &str =
    "interrupted; paths that were replaced stay, and another run repairs the rest";

struct Repair<'a> {
    args: &'a CacheRepairArgs,
    chosen: &'a ChosenCache,
}

/// The problems of a cache.
struct Found {
    contents: CacheContents,
    problems: Vec<Problem>,
}

impl Found {
    /// Returns the paths, or the hash parts, whose objects cannot be used, with the reasons.
    fn damaged(&self) -> BTreeMap<&str, &str> {
        let damaged = self.problems.iter().filter(|it| it.is_of_objects());
        damaged.map(|it| (&*it.path, &*it.message)).collect()
    }

    fn damaged_parts(&self) -> BTreeSet<HashPart> {
        self.damaged().keys().filter_map(|it| part_of(it)).collect()
    }

    /// Returns the references of paths that the cache lacks.
    fn absent(&self) -> BTreeSet<&StorePath> {
        let narinfos = &self.contents.narinfos;
        let references = narinfos.values().flat_map(|it| &it.narinfo.info.references);
        let is_unusable = |path: &StorePath| {
            let name = format!("{}.narinfo", path.hash_part());
            let contents = &self.contents;
            contents.unusable.contains_key(&name) || contents.unreadable.contains_key(&name)
        };
        let absent = references.filter(|it| !narinfos.contains_key(*it) && !is_unusable(it));
        absent.collect()
    }

    /// Returns what the narinfo of a damaged path states.
    fn info(&self, name: &str) -> Option<&PathInfo> {
        let path = StorePath::parse(name).ok()?;
        Some(&self.contents.narinfos.get(&path)?.narinfo.info)
    }
}

/// The result of a repair.
#[derive(Default)]
struct Outcome {
    narinfos: usize,
    /// The paths that were fetched, or would be.
    fetched: Vec<StorePath>,
    fetched_bytes: u64,
    deleted: BTreeSet<HashPart>,
    /// The problems that remain, or with a dry run all.
    problems: Vec<Problem>,
}

/// The result of an attempt to fetch paths.
#[derive(Default)]
struct Fetched {
    paths: Vec<StorePath>,
    nar_bytes: u64,
    /// The paths of which all sources have replied that they do not have them.
    absent: BTreeSet<HashPart>,
}

impl Repair<'_> {
    fn run(&self) -> anyhow::Result<Outcome> {
        let found = self.find()?;
        let mut outcome = Outcome {
            narinfos: found.contents.narinfos.len(),
            ..Outcome::default()
        };
        let fetched = self.fetch(&found)?;
        let parts: BTreeSet<HashPart> = fetched.paths.iter().map(StorePath::hash_part).collect();
        outcome.fetched = fetched.paths;
        outcome.fetched_bytes = fetched.nar_bytes;
        if self.args.dry_run {
            outcome.problems = found.problems;
            return Ok(outcome);
        }
        let mut lost = found.damaged_parts();
        lost.retain(|part| !parts.contains(part));
        if self.args.delete && !lost.is_empty() {
            let found = lost.len();
            lost.retain(|part| fetched.absent.contains(part));
            if lost.len() < found {
                warn(format_args!(
                    "keeping {} that cannot be used: not every source has replied that it does not \
                     have them",
                    counted(found - lost.len(), "path")
                ));
            }
            if !lost.is_empty() {
                // The user also learns what was fetched.
                outcome.deleted = self.delete(&lost).or_else(report_failed_repair)?;
            }
        }
        let is_solved = |part: &HashPart| parts.contains(part) || outcome.deleted.contains(part);
        outcome.problems = if parts.is_empty() && outcome.deleted.is_empty() {
            found.problems
        } else {
            let contents = self.chosen.open(true)?.contents()?;
            let mut left = problems::of_contents(&contents);
            // Whatever only a look into the contents shows.
            let found = found.problems.into_iter().filter(Problem::is_of_objects);
            let found = found.filter(|it| part_of(&it.path).is_none_or(|it| !is_solved(&it)));
            problems::add_all(&mut left, found);
            left
        };
        Ok(outcome)
    }

    fn find(&self) -> anyhow::Result<Found> {
        let contents = self.chosen.open(true)?.contents()?;
        let mut problems = problems::of_contents(&contents);
        if self.args.contents {
            let paths = contents.narinfos.keys().cloned();
            problems::add(&mut problems, &self.read(paths.collect())?);
        }
        Ok(Found { contents, problems })
    }

    /// Reads the contents of paths, and returns what is wrong with them.
    fn read(&self, paths: Vec<StorePath>) -> anyhow::Result<Vec<Error>> {
        let mut verification = verify::verification(self.chosen, (None, &self.args.trust))?;
        verification.paths = Some(paths.into_iter().map(PathSpec::Path).collect());
        Ok(elsewhere::run_verification(&verification)?.problems)
    }

    /// Fetches the damaged and the missing paths.
    fn fetch(&self, found: &Found) -> anyhow::Result<Fetched> {
        let (damaged, absent) = (found.damaged(), found.absent());
        let texts = damaged.keys().map(|it| (*it).to_owned());
        let texts: Vec<String> = texts
            .chain(absent.iter().map(ToString::to_string))
            .collect();
        if texts.is_empty() {
            return Ok(Fetched::default());
        }
        let request = self.request(texts, found)?;
        // The problems are still listed.
        self.copy(&request, &damaged).or_else(report_failed_repair)
    }

    fn copy(
        &self,
        request: &CopyRequest,
        damaged: &BTreeMap<&str, &str>,
    ) -> anyhow::Result<Fetched> {
        let copy = request.open()?;
        warn_of_unavailable(&copy.sources);
        let known = damaged.iter().filter_map(|(name, reason)| {
            let path = StorePath::parse(name).ok()?;
            Some((path, (*reason).to_owned()))
        });
        copy.target.replace(known.collect());
        let summary = copy.run()?;
        let is_absent = |error: &Error| match error {
            Error::NotFound { path, .. } => part_of(path),
            // A source that has failed, or that is not trusted, may have the path.
            _ => None,
        };
        let mut absent: BTreeSet<HashPart> =
            summary.failures.iter().filter_map(is_absent).collect();
        if !copy.sources.unavailable.is_empty() {
            absent.clear();
        }
        let paths: Vec<StorePath> = if self.args.dry_run {
            summary.planned.into_iter().map(|(path, ..)| path).collect()
        } else {
            summary.requested_paths
        };
        Ok(Fetched {
            paths,
            nar_bytes: summary.nar_bytes,
            absent,
        })
    }

    fn request(&self, texts: Vec<String>, found: &Found) -> anyhow::Result<CopyRequest> {
        let (settings, store) = (&self.chosen.settings, &self.chosen.store);
        let args = self.args;
        let names = RequestedPaths::Named(texts);
        let mut request = settings.copy_from(&args.from, store.clone(), names)?;
        let place = place_of(&store.address());
        request
            .sources
            .retain(|source| place_of(&source.address()) != place);
        if request.sources.is_empty() {
            anyhow::bail!(UsageError(format!(
                "cannot repair {store}: it has no other source than itself; name one with --from"
            )));
        }
        let known = found.damaged().into_keys();
        let infos = known.filter_map(|name| {
            let info = found.info(name)?.clone();
            Some((info.path.clone(), info))
        });
        Ok(CopyRequest {
            network: settings.network(true),
            events: Events::new(Arc::new(Display::default())),
            options: CopyOptions {
                trusted_keys: settings.trusted_keys(&args.trust)?,
                check_signatures: !args.trust.no_check_sigs,
                replaced: Some(infos.collect()),
                closure_limit: settings.closure_limit(),
                dry_run: args.dry_run,
                cancel: self.chosen.cancel.clone(),
                ..CopyOptions::default()
            },
            ..request
        })
    }

    /// Deletes the narinfos of paths that no source has.
    fn delete(&self, parts: &BTreeSet<HashPart>) -> anyhow::Result<BTreeSet<HashPart>> {
        let cache = self.chosen.open(false)?;
        let options = CollectionOptions::default();
        let collection = CacheCollection {
            cache: cache.inventory()?,
            options: &options,
            cancel: &self.chosen.cancel,
            events: &|event: CollectionEvent<'_>| gc::show(event),
        };
        let mut failure = None;
        let deleted = collection.delete_unusable(parts, || {
            self.still_damaged(parts)
                .map_err(|error| match error.downcast::<Error>() {
                    Ok(error) => error,
                    Err(other) => {
                        failure = Some(other);
                        Error::Cancelled
                    }
                })
        });
        match failure {
            Some(error) => Err(error),
            None => Ok(deleted?),
        }
    }

    /// Looks again which of some paths cannot be used.
    fn still_damaged(&self, parts: &BTreeSet<HashPart>) -> anyhow::Result<BTreeSet<HashPart>> {
        let contents = self.chosen.open(true)?.contents()?;
        let mut problems = problems::of_contents(&contents);
        if self.args.contents {
            let paths = contents.narinfos.keys();
            let paths = paths.filter(|path| parts.contains(&path.hash_part()));
            problems::add(&mut problems, &self.read(paths.cloned().collect())?);
        }
        let found = Found { contents, problems };
        Ok(found.damaged_parts())
    }
}

/// Returns the directory behind the address of a cache, whatever its spelling, or else the address.
fn place_of(address: &str) -> String {
    let place = address
        .split('?')
        .next()
        .unwrap_or_default()
        .trim_end_matches('/');
    let directory = place.strip_prefix("file://");
    let resolved = directory.and_then(|directory| fs::canonicalize(directory).ok());
    resolved.map_or(place.to_owned(), |directory| {
        directory.display().to_string()
    })
}

/// Returns the hash part of a base name, or the hash part that the text is.
fn part_of(name: &str) -> Option<HashPart> {
    let part = name.split_once('-').map_or(name, |(part, _)| part);
    HashPart::parse(part)
}

fn report(
    args: &CacheRepairArgs,
    store: &dyn StoreConfig,
    outcome: &Outcome,
    time: Duration,
) -> anyhow::Result<()> {
    let problems = &outcome.problems;
    if args.of.json {
        let fetched = outcome.fetched.iter().map(StorePath::as_str);
        let deleted = outcome.deleted.iter().map(HashPart::as_str);
        print(json!({
            "paths": outcome.narinfos,
            "fetched": fetched.collect::<Vec<_>>(),
            "fetchedBytes": outcome.fetched_bytes,
            "deleted": deleted.collect::<Vec<_>>(),
            "problems": problems.iter().map(Problem::to_json).collect::<Vec<_>>(),
            "seconds": time.as_secs_f64(),
        }))?;
    } else {
        let lines = problems.iter().map(|problem| escaped(&problem.message));
        lines.into_iter().try_for_each(print)?;
    }
    let (paths, fetched) = (
        counted(outcome.narinfos, "path"),
        counted(outcome.fetched.len(), "path"),
    );
    let fetched = format!("{fetched} ({})", Size(outcome.fetched_bytes));
    let found = counted(problems.len(), "problem");
    let line = if args.dry_run {
        format!("would fetch {fetched} into {store}: {found} of {paths}")
    } else {
        let deleted = match outcome.deleted.len() {
            0 => String::new(),
            count => format!(", deleted {count}"),
        };
        format!("fetched {fetched} into {store}{deleted}: {found} of {paths} left")
    };
    if problems.is_empty() || !is_json() {
        eprint_line(&line);
    }
    if problems.is_empty() {
        return Ok(());
    }
    let kind = problems::error_kind(problems);
    Err(exit::reported_failures(&line, problems.len(), kind))
}
