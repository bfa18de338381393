//! `floe roots`: the roots of a store, and what each keeps.

pub(crate) mod args;
pub(crate) mod page;

use anyhow::bail;
use floe_format::StorePath;
use floe_store::{ReferenceGraph, Root, StoreReader};
use floe_transfer::{PathSpec, Size};
use serde_json::json;

use crate::display::eprint_line;
use crate::messages::{counted, escaped};
use crate::path_names;
use crate::root_links::{warn_of_skipped_rows, warn_of_stale};
use crate::stdout::print;
use crate::store_choice::LocalStore;
use args::RootsArgs;

pub(crate) fn run(args: &RootsArgs) -> anyhow::Result<()> {
    let (store, found) = LocalStore::find(&args.store)?.open_and_find_roots()?;
    warn_of_stale(&found.stale);
    let targets: Vec<StorePath> = found.roots.iter().map(|root| root.path.clone()).collect();
    let graph = store.reference_graph(&targets)?;
    warn_of_skipped_rows(&store);
    if !args.why.is_empty() {
        return explain(args, &store, &found.roots, &graph);
    }
    let dir = &store.layout().store_dir;
    let sizes = graph.closure_sizes(found.roots.iter().map(|root| &root.path));
    if args.store.json {
        let roots = found.roots.iter().zip(sizes).map(|(root, size)| {
            json!({
                "root": root.place.to_string(),
                "path": dir.full_path(&root.path),
                "closurePaths": size.paths,
                "closureNarBytes": size.nar_bytes,
            })
        });
        return print(json!({ "roots": roots.collect::<Vec<_>>() }));
    }
    for (root, size) in found.roots.iter().zip(sizes) {
        let (place, path) = (escaped(&root.place), dir.full_path(&root.path));
        let (paths, bytes) = (counted(size.paths, "path"), Size(size.nar_bytes));
        print(format_args!("{place} -> {path} ({paths}, {bytes})"))?;
    }
    Ok(())
}

/// Prints the chain from each root to the paths.
fn explain(
    args: &RootsArgs,
    store: &StoreReader,
    roots: &[Root],
    graph: &ReferenceGraph,
) -> anyhow::Result<()> {
    let dir = &store.layout().store_dir;
    let mut explained = Vec::new();
    for text in path_names::follow(store.layout(), &args.why)? {
        let path = PathSpec::parse(&text, dir)?.find_in_store(store)?;
        if !store.is_valid(&path)? {
            let path = dir.full_path(&path);
            bail!("cannot explain what keeps {path}: it is not valid in this store");
        }
        let chains = roots.iter().filter_map(|root| {
            let chain = graph.chain(&root.path, &path)?;
            let chain: Vec<String> = chain.iter().map(|path| dir.full_path(path)).collect();
            Some((root, chain))
        });
        let chains: Vec<_> = chains.collect();
        let shown = dir.full_path(&path);
        if args.store.json {
            let chains = chains.iter();
            let chains = chains
                .map(|(root, chain)| json!({ "root": root.place.to_string(), "chain": chain }));
            explained.push(json!({ "path": shown, "chains": chains.collect::<Vec<_>>() }));
            continue;
        }
        if chains.is_empty() {
            eprint_line(format_args!("no root keeps {shown}"));
        }
        for (root, chain) in chains {
            let place = root.place.describe_use(&dir.full_path(&root.path));
            let place = place.unwrap_or_else(|| root.place.to_string());
            let chain = chain.iter().map(|path| format!("\n  -> {path}"));
            print(format_args!(
                "{}{}",
                escaped(place),
                chain.collect::<String>()
            ))?;
        }
    }
    if args.store.json {
        print(json!({ "paths": explained }))
    } else {
        Ok(())
    }
}
