//! `floe list`: the paths that roots and profiles keep.

pub(crate) mod args;
pub(crate) mod page;

use std::collections::BTreeSet;
use std::fs;
use std::time::SystemTime;

use floe_format::StorePath;
use floe_store::{ClosureSize, FoundRoots, GraphPath, ReferenceGraph, Root};
use floe_transfer::Size;
use serde_json::{Value, json};

use crate::display::eprint_line;
use crate::messages::escaped;
use crate::root_links::{
    link_path, profile_generation, warn_of_skipped_rows, warn_of_stale, warn_of_unreadable,
};
use crate::stdout::print;
use crate::store_choice::LocalStore;
use crate::times;
use args::ListArgs;

/// A path, and what keeps it.
struct Row {
    path: StorePath,
    nar_size: u64,
    closure: ClosureSize,
    since: Option<SystemTime>,
    /// `None` if no root keeps the path.
    kept_by: Option<KeptBy>,
}

struct KeptBy {
    link: String,
    generation: Option<(u64, bool)>,
}

pub(crate) fn run(args: &ListArgs) -> anyhow::Result<()> {
    let local = LocalStore::find(&args.store)?;
    let (store, all) = if args.all {
        local.open_and_find_roots()?
    } else {
        (local.open()?, FoundRoots::default())
    };
    let links = store.find_links()?;
    let mut targets: Vec<StorePath> = links.roots.iter().map(|it| it.path.clone()).collect();
    let mut roots = links.roots.clone();
    if args.all {
        roots = all.roots;
        targets = store.valid_paths()?;
    } else {
        warn_of_unreadable(&links.unreadable);
    }
    warn_of_stale(&links.stale);
    let graph = store.reference_graph(&targets)?;
    warn_of_skipped_rows(&store);
    let mut rows: Vec<Row> = links
        .roots
        .iter()
        .map(|root| row_of_root(root, &graph))
        .collect();
    if args.all {
        let mut seen = BTreeSet::new();
        let others = roots.iter().filter(|root| link_path(&root.place).is_none());
        // A process uses most paths in several ways.
        let others = others.filter(|root| seen.insert(&root.path));
        rows.extend(others.map(|root| row_of_root(root, &graph)));
        let without = graph.only_in(&targets, roots.iter().map(|root| &root.path));
        rows.extend(without.into_iter().map(|it| row(it.path(), &graph)));
    }
    let closures = graph.closure_sizes(rows.iter().map(|row| &row.path));
    for (row, closure) in rows.iter_mut().zip(closures) {
        row.closure = closure;
    }
    let dir = &store.layout().store_dir;
    if args.store.json {
        let rows = rows
            .iter()
            .map(|row| row.to_json(&dir.full_path(&row.path)));
        return print(json!({ "paths": rows.collect::<Vec<_>>() }));
    }
    local.note_hidden_store();
    if rows.is_empty() {
        eprint_line(match store.valid_paths()?.len() {
            0 => "the store is empty".to_owned(),
            1 => "no link and no profile keeps a path; --all shows the valid one".to_owned(),
            valid => {
                format!("no link and no profile keeps a path; --all shows the {valid} valid ones")
            }
        });
        return Ok(());
    }
    let heads = ["NAME", "SIZE", "CLOSURE", "SINCE", "KEPT BY"].map(str::to_owned);
    let mut table = vec![heads];
    table.extend(rows.iter().map(Row::cells));
    aligned(&table).try_for_each(print)
}

/// Returns the rows of a table as lines. All columns but the last are as wide as their widest cell.
fn aligned<const N: usize>(rows: &[[String; N]]) -> impl Iterator<Item = String> {
    let widths: [usize; N] = std::array::from_fn(|column| {
        let widths = rows.iter().map(|row| row[column].chars().count());
        widths.max().unwrap_or(0)
    });
    rows.iter().map(move |row| {
        let cells = row.iter().zip(&widths);
        let cells = cells.map(|(cell, width)| format!("{cell:<width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    })
}

/// Makes a row whose closure is not known yet.
fn row(path: &StorePath, graph: &ReferenceGraph) -> Row {
    let found = graph.get(path);
    let registered = found.and_then(GraphPath::registration_time);
    Row {
        path: path.clone(),
        nar_size: found.map_or(0, GraphPath::nar_size),
        closure: ClosureSize::default(),
        since: registered.map(times::from_seconds),
        kept_by: None,
    }
}

fn row_of_root(root: &Root, graph: &ReferenceGraph) -> Row {
    let generation = profile_generation(&root.place);
    let since = link_path(&root.place).and_then(|link| {
        let metadata = fs::symlink_metadata(link).ok()?;
        metadata.modified().ok()
    });
    let link = match &generation {
        Some(generation) => generation.profile.path().display().to_string(),
        None => root.place.to_string(),
    };
    Row {
        since,
        kept_by: Some(KeptBy {
            link,
            generation: generation.map(|it| (it.number, it.is_current)),
        }),
        ..row(&root.path, graph)
    }
}

impl KeptBy {
    fn text(&self) -> String {
        let link = escaped(&self.link);
        match self.generation {
            None => link,
            Some((number, true)) => format!("{link} (generation {number}, current)"),
            Some((number, false)) => format!("{link} (generation {number})"),
        }
    }
}

impl Row {
    fn cells(&self) -> [String; 5] {
        let since = self.since.map(times::date).unwrap_or_default();
        let kept_by = match &self.kept_by {
            None => "no root".to_owned(),
            Some(kept_by) => kept_by.text(),
        };
        [
            self.path.name().to_owned(),
            Size(self.nar_size).to_string(),
            Size(self.closure.nar_bytes).to_string(),
            since,
            kept_by,
        ]
    }

    fn to_json(&self, path: &str) -> Value {
        let kept_by = self.kept_by.as_ref();
        let generation = kept_by.and_then(|kept_by| kept_by.generation);
        json!({
            "path": path,
            "name": self.path.name(),
            "narSize": self.nar_size,
            "closurePaths": self.closure.paths,
            "closureNarBytes": self.closure.nar_bytes,
            "since": self.since.map(times::seconds),
            "keptBy": kept_by.map(|kept_by| &kept_by.link),
            "generation": generation.map(|(number, _)| number),
            "isCurrent": generation.map(|(_, is_current)| is_current),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_of_links_are_escaped() {
        let kept_by = KeptBy {
            link: "/a/e\x1b[31m\nü".into(),
            generation: None,
        };
        assert_eq!(kept_by.text(), "/a/e\\u{1b}[31m\\nü");
    }
}
