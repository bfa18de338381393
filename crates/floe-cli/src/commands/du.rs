//! `floe du`: shows how large closures are, and which references make them large.

pub(crate) mod args;
mod graph;
pub(crate) mod page;

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::ControlFlow;

use floe_format::StorePath;
use floe_transfer::Size;
use serde_json::{Map, Value, json};

use crate::closures::Closures;
use crate::stdout::{LongOutput, print};
use crate::tree_lines::draw_trees;
use args::DuArgs;
use graph::{Branch, ClosureGraph};

pub(crate) fn run(args: &DuArgs) -> anyhow::Result<()> {
    let closures = Closures::query(&args.closure.query, &args.paths)?;
    if args.closure.json {
        let dir = &closures.store_dir;
        let objects = closures.roots.iter().map(|root| {
            let graph = ClosureGraph::of(&closures, root);
            let shown = if args.tree {
                tree_to_json(&closures, &graph)
            } else {
                shares_to_json(&closures, (root, &graph))
            };
            (dir.full_path(root), shown)
        });
        return print(Value::Object(objects.collect()));
    }
    let mut output = LongOutput::new();
    let (header, show): (_, Show) = if args.tree {
        ("    ONLY       OWN  PATH\n", show_tree)
    } else {
        (" CLOSURE       OWN      ONLY  PATH\n", show_shares)
    };
    _ = output.write(header);
    for root in &closures.roots {
        let graph = ClosureGraph::of(&closures, root);
        if show(&closures, (root, &graph), &mut output)?.is_break() {
            break;
        }
    }
    output.finish()
}

/// Writes lines about the closure of a path.
type Show =
    fn(&Closures, (&StorePath, &ClosureGraph), &mut LongOutput) -> anyhow::Result<ControlFlow<()>>;

/// Writes a line for a path, and one for each of its references.
fn show_shares(
    closures: &Closures,
    (root, graph): (&StorePath, &ClosureGraph<'_>),
    output: &mut LongOutput,
) -> anyhow::Result<ControlFlow<()>> {
    let line = |closure: u64, path: &StorePath, only: Option<u64>, indent: &str| {
        let (closure, own) = (Size(closure), Size(closures.nar_size(path)));
        let only = only.map_or(String::new(), |only| Size(only).to_string());
        let path = closures.store_dir.full_path(path);
        format!("{closure:>8}  {own:>8}  {only:>8}  {indent}{path}\n")
    };
    let shares = graph.shares();
    let lines = shares
        .iter()
        .map(|it| line(it.closure_size, it.path, Some(it.only_size), "  "));
    let first = line(graph.nar_size(), root, None, "");
    Ok(output.write(std::iter::once(first).chain(lines).collect::<String>()))
}

/// Writes a tree in which each path stands below the one without which the closure would not have
/// it.
fn show_tree(
    closures: &Closures,
    (root, graph): (&StorePath, &ClosureGraph<'_>),
    output: &mut LongOutput,
) -> anyhow::Result<ControlFlow<()>> {
    let all = graph.branches();
    let mut below: BTreeMap<Option<&StorePath>, Vec<&Branch<'_>>> = BTreeMap::new();
    for branch in &all {
        below.entry(branch.parent).or_default().push(branch);
    }
    for branches in below.values_mut() {
        branches.sort_by_key(|it| (Reverse(it.only_size), it.path));
    }
    let only_sizes: BTreeMap<&StorePath, u64> =
        all.iter().map(|it| (it.path, it.only_size)).collect();
    let mut flow = ControlFlow::Continue(());
    let mut write = |before: &str, path: &&StorePath, _| {
        let (only, own) = (Size(only_sizes[*path]), Size(closures.nar_size(path)));
        let path = closures.store_dir.full_path(path);
        flow = output.write(format_args!("{only:>8}  {own:>8}  {before}{path}\n"));
        Ok(flow)
    };
    let mut branches = |path: &&StorePath| {
        let below = below.get(&Some(*path)).into_iter().flatten();
        Ok(below.map(|it| it.path).collect())
    };
    draw_trees([root], &mut branches, &mut write)?;
    Ok(flow)
}

fn shares_to_json(closures: &Closures, (root, graph): (&StorePath, &ClosureGraph<'_>)) -> Value {
    let shares = graph.shares();
    let references = shares.iter().map(|it| {
        let share = json!({
            "narSize": closures.nar_size(it.path),
            "closureNarBytes": it.closure_size,
            "onlyNarBytes": it.only_size,
        });
        (closures.store_dir.full_path(it.path), share)
    });
    json!({
        "narSize": closures.nar_size(root),
        "closurePaths": graph.len(),
        "closureNarBytes": graph.nar_size(),
        "references": references.collect::<Map<String, Value>>(),
    })
}

fn tree_to_json(closures: &Closures, graph: &ClosureGraph<'_>) -> Value {
    let dir = &closures.store_dir;
    let branches = graph.branches();
    let paths = branches.iter().map(|it| {
        let branch = json!({
            "narSize": closures.nar_size(it.path),
            "onlyNarBytes": it.only_size,
            "parent": it.parent.map(|parent| dir.full_path(parent)),
        });
        (dir.full_path(it.path), branch)
    });
    json!({
        "closurePaths": graph.len(),
        "closureNarBytes": graph.nar_size(),
        "paths": paths.collect::<Map<String, Value>>(),
    })
}
