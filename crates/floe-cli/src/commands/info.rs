//! `floe info`: what a store or cache knows of paths.

use std::collections::{BTreeMap, BTreeSet};

use floe_engine::{Cancel, Error, Root, Source, Sources};
use floe_format::{NarInfo, StorePath};
use serde_json::{Map, Value};

use super::print;
use crate::args::InfoArgs;
use crate::settings;

pub(crate) fn run(args: InfoArgs) -> anyhow::Result<()> {
    let store_dir = settings::store_dir(args.store_dir.as_deref())?;
    let location = settings::location(&args.from, store_dir.as_ref())?;
    let sources = Sources::open(
        &[location],
        settings::certificates().as_deref(),
        &Cancel::default(),
    )?;
    let Some(source) = sources.iter().next() else {
        return Ok(());
    };
    let roots = args
        .paths
        .iter()
        .map(|text| Root::parse(text, source.store_dir()))
        .collect::<Result<Vec<_>, _>>()?;
    let found = look_up(source, &roots, args.recursive)?;
    if args.json {
        let mut object = Map::new();
        for narinfo in found.values() {
            object.insert(
                source.store_dir().print(&narinfo.info.path),
                to_json(source, narinfo)?,
            );
        }
        print(Value::Object(object))?;
    } else {
        for narinfo in found.values() {
            print(to_text(source, narinfo))?;
        }
    }
    Ok(())
}

/// The narinfos of the roots, and of their closures if asked for, by their paths.
pub(super) fn look_up(
    source: &Source,
    roots: &[Root],
    recursive: bool,
) -> Result<BTreeMap<StorePath, NarInfo>, Error> {
    let mut found = BTreeMap::new();
    let mut seen = BTreeSet::new();
    let mut todo: Vec<Root> = roots.to_vec();
    while let Some(root) = todo.pop() {
        let (part, text) = match &root {
            Root::Path(path) => (path.hash_part().to_owned(), path.to_string()),
            Root::HashPart(part) => (part.clone(), part.clone()),
        };
        if !seen.insert(part.clone()) {
            continue;
        }
        let not_found = || Error::NotFound {
            path: text.clone(),
            sources: vec![source.name()],
        };
        let narinfo = source.lookup(&part)?.ok_or_else(not_found)?;
        if let Root::Path(path) = &root
            && *path != narinfo.info.path
        {
            return Err(not_found());
        }
        if recursive {
            todo.extend(narinfo.info.references.iter().cloned().map(Root::Path));
        }
        found.insert(narinfo.info.path.clone(), narinfo);
    }
    Ok(found)
}

/// A path in a store has no file that could be fetched.
fn to_text(source: &Source, narinfo: &NarInfo) -> String {
    let text = narinfo.to_text(source.store_dir());
    let is_about_file = |line: &&str| line.starts_with("URL:") || line.starts_with("Compression:");
    match source.as_store() {
        None => text,
        Some(_) => text
            .lines()
            .filter(|line| !is_about_file(line))
            .collect::<Vec<_>>()
            .join("\n"),
    }
}

/// A store knows less of files and more of registration than a cache.
fn to_json(source: &Source, narinfo: &NarInfo) -> Result<Value, Error> {
    let dir = source.store_dir();
    match source.as_store() {
        None => Ok(narinfo.to_json(dir)),
        Some(store) => {
            let info = store.path_info(&narinfo.info.path)?;
            Ok(info.map_or(Value::Null, |info| info.to_json(dir)))
        }
    }
}
