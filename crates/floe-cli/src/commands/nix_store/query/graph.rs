//! Closures as trees and as graphs.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use floe_format::{PathInfo, StorePath};
use floe_store::references_first;

use super::Query;
use crate::stdout::print;
use crate::tree_lines::{Occurrence, draw_trees};

/// Prints the closure of each path as a tree. A path that was printed before has no branches.
pub(super) fn print_trees(query: &Query<'_>) -> anyhow::Result<()> {
    let mut branches = |path: &StorePath| sorted_references(query, &query.info(path)?);
    let mut write = |before: &str, path: &StorePath, occurrence| {
        let full = query.full(path);
        print(match occurrence {
            Occurrence::First => format!("{before}{full}"),
            Occurrence::Again => format!("{before}{full} [...]"),
        })?;
        Ok(ControlFlow::Continue(()))
    };
    draw_trees(query.paths.iter().cloned(), &mut branches, &mut write)
}

/// Returns the references of a path, those to which others refer first.
fn sorted_references(query: &Query<'_>, info: &PathInfo) -> anyhow::Result<Vec<StorePath>> {
    let infos = info.references.iter().map(|path| query.info(path));
    let infos = infos.collect::<anyhow::Result<Vec<_>>>()?.into_iter();
    let references = infos.map(|info| (info.path, info.references));
    Ok(references_first(&references.collect()))
}

/// Prints the closures in the language of Graphviz.
pub(super) fn print_graph(query: &Query<'_>) -> anyhow::Result<()> {
    let mut open = query.used()?;
    let mut done = BTreeSet::new();
    let mut colors = COLORS.into_iter().cycle();
    print("digraph G {")?;
    while let Some(path) = open.pop_first() {
        if !done.insert(path.clone()) {
            continue;
        }
        print(format_args!(
            "\"{path}\" [label = \"{}\", shape = box, style = filled, fillcolor = \"#ff0000\"];",
            path.name()
        ))?;
        for reference in query.info(&path)?.references {
            if reference == path {
                continue;
            }
            let color = colors.next().unwrap_or_default();
            print(format_args!(
                "\"{reference}\" -> \"{path}\" [color = \"{color}\"];"
            ))?;
            open.insert(reference);
        }
    }
    print("}")
}

/// The colors of the arrows, in turns.
const COLORS: [&str; 6] = ["black", "red", "green", "blue", "magenta", "burlywood"];
