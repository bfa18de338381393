//! `floe tree`: shows the closures of paths as trees.

pub(crate) mod args;
pub(crate) mod page;

use std::collections::{BTreeMap, BTreeSet};

use floe_format::StorePath;
use floe_store::references_first;
use serde_json::{Map, Value, json};

use crate::closures::Closures;
use crate::stdout::{LongOutput, print};
use crate::tree_lines::{Occurrence, draw_trees};
use args::TreeArgs;

pub(crate) fn run(args: &TreeArgs) -> anyhow::Result<()> {
    let closures = Closures::query(&args.closure.query, &args.paths)?;
    if args.closure.json {
        return print(to_json(&closures));
    }
    let mut output = LongOutput::new();
    let mut write = |before: &str, path: &&StorePath, occurrence| {
        let full = closures.store_dir.full_path(path);
        Ok(output.write(match occurrence {
            Occurrence::First => format!("{before}{full}\n"),
            Occurrence::Again => format!("{before}{full} [...]\n"),
        }))
    };
    let mut branches = |path: &&StorePath| Ok(sorted_references(&closures, path));
    draw_trees(&closures.roots, &mut branches, &mut write)?;
    output.finish()
}

/// Returns the references of a path. As in Nix, one to which another refers comes before that one,
/// which keeps the tree flat.
fn sorted_references<'a>(closures: &'a Closures, path: &StorePath) -> Vec<&'a StorePath> {
    let all: BTreeMap<StorePath, BTreeSet<StorePath>> = closures
        .references(path)
        .map(|it| (it.clone(), closures.references(it).cloned().collect()))
        .collect();
    let sorted = references_first(&all);
    sorted.iter().filter_map(|it| closures.find(it)).collect()
}

/// Returns an object with the size and the references of each path.
fn to_json(closures: &Closures) -> Value {
    let dir = &closures.store_dir;
    let all = closures.reachable(&closures.roots, |_, _| true);
    let paths = all.into_iter().map(|path| {
        let references = closures.references(path).map(|it| dir.full_path(it));
        let node = json!({
            "narSize": closures.nar_size(path),
            "references": references.collect::<Vec<String>>(),
        });
        (dir.full_path(path), node)
    });
    let roots = closures.roots.iter().map(|root| dir.full_path(root));
    json!({
        "roots": roots.collect::<Vec<String>>(),
        "paths": paths.collect::<Map<String, Value>>(),
    })
}
