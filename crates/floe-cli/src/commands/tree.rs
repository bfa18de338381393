//! `floe tree`: shows the closures of paths as trees.

pub(crate) mod args;
pub(crate) mod page;

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use floe_format::StorePath;
use serde_json::{Map, Value, json};

use crate::closures::{Closures, branches};
use crate::stdout::{LongOutput, print};
use args::TreeArgs;

pub(crate) fn run(args: &TreeArgs) -> anyhow::Result<()> {
    let closures = Closures::query(&args.closure, &args.paths)?;
    if args.closure.json {
        return print(to_json(&closures));
    }
    let mut output = LongOutput::new();
    let mut printed = BTreeSet::new();
    for root in &closures.roots {
        let mut tree = Tree {
            closures: &closures,
            printed: &mut printed,
            output: &mut output,
        };
        if tree.print(root, ("", "")).is_break() {
            break;
        }
    }
    output.finish()
}

/// Prints trees with the lines of `nix-store --query --tree`.
struct Tree<'a, 't> {
    closures: &'a Closures,
    /// The paths whose references were printed.
    printed: &'t mut BTreeSet<&'a StorePath>,
    output: &'t mut LongOutput,
}

impl<'a> Tree<'a, '_> {
    fn print(&mut self, path: &'a StorePath, (first, others): (&str, &str)) -> ControlFlow<()> {
        let text = self.closures.store_dir.full_path(path);
        if !self.printed.insert(path) {
            return self.output.write(format_args!("{first}{text} [...]\n"));
        }
        self.output.write(format_args!("{first}{text}\n"))?;
        let mut references = references_first(self.closures, path).into_iter().peekable();
        while let Some(reference) = references.next() {
            let (first, others) = branches(others, references.peek().is_none());
            self.print(reference, (&first, &others))?;
        }
        ControlFlow::Continue(())
    }
}

/// Returns the references of a path. As in Nix, one to which another refers comes before that one,
/// which keeps the tree flat.
fn references_first<'a>(closures: &'a Closures, path: &'a StorePath) -> Vec<&'a StorePath> {
    let all: BTreeSet<&StorePath> = closures.references(path).collect();
    let (mut sorted, mut visited) = (Vec::new(), BTreeSet::new());
    for reference in &all {
        visit(closures, &all, reference, (&mut sorted, &mut visited));
    }
    sorted
}

fn visit<'a>(
    closures: &'a Closures,
    all: &BTreeSet<&'a StorePath>,
    path: &'a StorePath,
    (sorted, visited): (&mut Vec<&'a StorePath>, &mut BTreeSet<&'a StorePath>),
) {
    if !visited.insert(path) {
        return;
    }
    for reference in closures.other_references(path) {
        if all.contains(reference) {
            visit(closures, all, reference, (sorted, visited));
        }
    }
    sorted.push(path);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_of_siblings_come_first() {
        let closures = Closures::of(&[
            ("0", 1, &["1", "2", "3", "0"]),
            ("1", 1, &["3"]),
            ("2", 1, &["1"]),
            ("3", 1, &[]),
        ]);
        let sorted = references_first(&closures, &closures.roots[0]);
        let names: String = sorted.iter().map(|path| path.name()).collect();
        assert_eq!(names, "3120");
    }
}
