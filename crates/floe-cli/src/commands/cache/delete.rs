//! `floe cache delete`: deletes paths from a cache.

use std::collections::BTreeSet;

use anyhow::bail;
use floe_format::{StorePath, sum_of_sizes};
use floe_transfer::{CacheContents, Error, PathSpec, Size};
use serde_json::json;

use super::OpenCache;
use super::args::CacheDeleteArgs;
use crate::display::eprint_line;
use crate::messages::counted;
use crate::stdout::print;

pub(super) fn run(args: &CacheDeleteArgs) -> anyhow::Result<()> {
    let cache = OpenCache::open(&args.of, args.dry_run)?;
    let specs = args
        .paths
        .iter()
        .map(|text| PathSpec::parse(text, cache.dir()));
    let specs = specs.collect::<Result<Vec<_>, _>>()?;
    let contents = cache.contents()?;
    let mut paths = find(&specs, &contents, &cache)?;
    if args.also_referrers {
        add_referrers(&mut paths, &contents);
    }
    refuse_referrers(&paths, &contents)?;
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
        inventory.delete(&first, &cache.cancel)?;
        inventory.delete(&files, &cache.cancel)?;
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
        cache.store,
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
    cache: &OpenCache,
) -> Result<BTreeSet<StorePath>, Error> {
    let find = |spec: &PathSpec| {
        let part = spec.hash_part();
        let mut all = contents.narinfos.keys();
        let source_name = || cache.store.to_string();
        match all.find(|path| path.hash_part() == part) {
            Some(path) if spec.matches(path) => Ok(path.clone()),
            Some(path) => Err(Error::WrongName {
                wanted: spec.text(),
                found: path.clone(),
                source_name: source_name(),
            }),
            None => Err(Error::NotFound {
                path: spec.text(),
                sources: vec![source_name()],
            }),
        }
    };
    specs.iter().map(find).collect()
}

/// Adds all direct and indirect referrers.
fn add_referrers(paths: &mut BTreeSet<StorePath>, contents: &CacheContents) {
    loop {
        let all = contents.narinfos.iter();
        let refers = |references: &BTreeSet<StorePath>| !references.is_disjoint(paths);
        let more = all.filter(|(path, found)| {
            !paths.contains(*path) && refers(&found.narinfo.info.references)
        });
        let more: Vec<StorePath> = more.map(|(path, _)| path.clone()).collect();
        if more.is_empty() {
            return;
        }
        paths.extend(more);
    }
}

/// Refuses to delete paths to which others refer.
fn refuse_referrers(paths: &BTreeSet<StorePath>, contents: &CacheContents) -> anyhow::Result<()> {
    for path in paths {
        let others = contents.referrers(path);
        let others: Vec<&&StorePath> = others.iter().filter(|it| !paths.contains(**it)).collect();
        if let Some(first) = others.first() {
            bail!(
                "cannot delete {path}: {} to it, such as {first}; try --also-referrers",
                match others.len() {
                    1 => "one path refers".to_owned(),
                    count => format!("{count} paths refer"),
                }
            );
        }
    }
    Ok(())
}
