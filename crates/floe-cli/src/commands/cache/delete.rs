//! `floe cache delete`: deletes paths from a cache.

use std::collections::{BTreeSet, HashMap};

use anyhow::bail;
use floe_format::{HashPart, StorePath, sum_of_sizes};
use floe_transfer::{CacheContents, Error, PathSpec, Size, StoreConfig};
use serde_json::json;

use super::ChosenCache;
use super::args::CacheDeleteArgs;
use crate::display::eprint_line;
use crate::messages::counted;
use crate::stdout::print;

pub(super) fn run(args: &CacheDeleteArgs) -> anyhow::Result<()> {
    let chosen = ChosenCache::of(&args.of, None)?;
    let cache = chosen.open(args.dry_run)?;
    let specs = args
        .paths
        .iter()
        .map(|text| PathSpec::parse(text, cache.dir()));
    let specs = specs.collect::<Result<Vec<_>, _>>()?;
    let contents = cache.contents()?;
    let mut paths = find(&specs, &contents, &*chosen.store)?;
    let referrers = contents.referrers();
    if args.also_referrers {
        add_referrers(&mut paths, &referrers);
    }
    refuse_referrers(&paths, &referrers)?;
    let paths: Vec<StorePath> = paths.into_iter().collect();
    let mut objects = contents.objects_of(&paths);
    objects.extend(paths.iter().map(|path| format!("{}.ls", path.hash_part())));
    let files = objects
        .iter()
        .filter_map(|name| contents.nars.get(name)?.len);
    let bytes = sum_of_sizes(files);
    if !args.dry_run {
        let inventory = cache.inventory()?;
        let is_file = |name: &String| name.starts_with("nar/");
        let (files, first): (Vec<String>, Vec<String>) = objects.into_iter().partition(is_file);
        // Without its narinfo, no client asks for a NAR.
        let check = || {
            if chosen.cancel.is_raised() {
                return Err(Error::Cancelled);
            }
            Ok(())
        };
        inventory.delete(&first, &check)?;
        inventory.delete(&files, &check)?;
    }
    let dir = cache.dir();
    if args.of.json {
        let paths = paths.iter().map(|path| dir.full_path(path));
        print(json!({
            "paths": paths.collect::<Vec<_>>(),
            "fileBytes": bytes,
        }))?;
    } else {
        paths
            .iter()
            .map(|path| dir.full_path(path))
            .try_for_each(print)?;
    }
    let (verb, count) = (
        if args.dry_run {
            "would delete"
        } else {
            "deleted"
        },
        counted(paths.len(), "path"),
    );
    eprint_line(format_args!(
        "{verb} {count} of {} ({})",
        chosen.store,
        Size(bytes)
    ));
    Ok(())
}

/// Finds the paths of the command line.
///
/// Errors: [`Error::NotFound`], [`Error::WrongName`].
fn find(
    specs: &[PathSpec],
    contents: &CacheContents,
    store: &dyn StoreConfig,
) -> Result<BTreeSet<StorePath>, Error> {
    let by_part = contents
        .narinfos
        .keys()
        .map(|path| (path.hash_part(), path));
    let by_part: HashMap<HashPart, &StorePath> = by_part.collect();
    let find = |spec: &PathSpec| match by_part.get(&spec.hash_part()) {
        Some(path) if spec.matches(path) => Ok((*path).clone()),
        Some(path) => Err(Error::WrongName {
            wanted: spec.text(),
            found: (*path).clone(),
            source_name: store.to_string(),
        }),
        None => Err(Error::NotFound {
            path: spec.text(),
            sources: vec![store.to_string()],
        }),
    };
    specs.iter().map(find).collect()
}

type Referrers<'a> = HashMap<&'a StorePath, Vec<&'a StorePath>>;

/// Adds all direct and indirect referrers.
fn add_referrers(paths: &mut BTreeSet<StorePath>, referrers: &Referrers<'_>) {
    let mut open: Vec<StorePath> = paths.iter().cloned().collect();
    while let Some(path) = open.pop() {
        for referrer in referrers.get(&path).into_iter().flatten() {
            if paths.insert((*referrer).clone()) {
                open.push((*referrer).clone());
            }
        }
    }
}

/// Refuses to delete paths to which others refer.
fn refuse_referrers(paths: &BTreeSet<StorePath>, referrers: &Referrers<'_>) -> anyhow::Result<()> {
    for path in paths {
        let others = referrers.get(path).into_iter().flatten();
        let others: Vec<_> = others.filter(|it| !paths.contains(**it)).collect();
        let count = match &*others {
            [] => continue,
            [_] => "one path refers".to_owned(),
            others => format!("{} paths refer", others.len()),
        };
        bail!(
            "cannot delete {path}: {count} to it, such as {}; try --also-referrers",
            others[0]
        );
    }
    Ok(())
}
