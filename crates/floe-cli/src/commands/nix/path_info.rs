//! `nix path-info`: paths of a store or cache, with sizes and signatures.

use floe_cache::Network;
use floe_config::StoreAccess;
use floe_copy::{SourceOrder, Sources};
use floe_format::{PathInfo, StorePath};
use floe_transfer::{Cancel, Events, QueriedClosure, Session};

use super::args::PathInfoArgs;
use super::path_json::print_json;
use super::queried::Queried;
use crate::nix_sizes::render_size;
use crate::options::Settings;
use crate::requested_paths::requested;
use crate::stdout::print;

pub(super) fn run(args: &PathInfoArgs) -> anyhow::Result<()> {
    let settings = Settings::load(&args.options, None)?;
    let store = settings.store(args.local.choice(), StoreAccess::Read)?;
    let layout = store.layout().cloned();
    let session = Session::new(Cancel::default(), Events::default())
        .with_options::<Network>(settings.network(false));
    let sources = Sources::open(&[store], SourceOrder::AsListed, &session)?;
    let Some(source) = sources.list.first() else {
        return Ok(());
    };
    let specs = requested(&args.paths, (&**source, layout.as_ref()), None)?;
    let QueriedClosure { found, absent } = source.query_closure(
        &specs,
        args.recursive || args.closure_size,
        (settings.closure_limit(), &session.cancel),
    )?;
    let queried = Queried {
        args,
        source: &**source,
        found,
    };
    let (listed, missing) = queried.listed(&specs);
    if args.json {
        return print_json(&queried, &listed, &missing, absent);
    }
    match absent.into_iter().next() {
        // Nix prints nothing unless it knows all paths.
        Some(error) => Err(error.into()),
        None => print_lines(&queried, &listed),
    }
}

fn print_lines(queried: &Queried<'_>, paths: &[StorePath]) -> anyhow::Result<()> {
    let args = queried.args;
    let dir = queried.source.store_dir();
    let width = paths.iter().map(|path| dir.full_path(path).len()).max();
    let has_columns = args.size || args.closure_size || args.sigs;
    let width = if has_columns { width.unwrap_or(0) } else { 0 };
    for path in paths {
        let mut line = format!("{:width$}", dir.full_path(path));
        if args.size {
            line += &size(args, queried.narinfo(path).info.nar_size);
        }
        if args.closure_size {
            let closure = queried.closure(path);
            line += &size(args, closure.iter().map(|it| it.info.nar_size).sum());
        }
        if args.sigs {
            line += &signatures(&queried.info(path)?);
        }
        print(line)?;
    }
    Ok(())
}

/// Returns the column of a size.
fn size(args: &PathInfoArgs, bytes: u64) -> String {
    if args.human_readable {
        format!("\t{:>10}", render_size(bytes))
    } else {
        format!("\t{bytes:>11}")
    }
}

/// Returns the column of what makes a path trustworthy.
fn signatures(info: &PathInfo) -> String {
    let ultimate = info.ultimate.then(|| "ultimate".to_owned());
    let ca = info.ca.as_ref().map(|ca| format!("ca:{ca}"));
    let signatures = info.signatures.iter().map(ToString::to_string);
    let words: Vec<String> = ultimate.into_iter().chain(ca).chain(signatures).collect();
    format!("\t{}", words.join(" "))
}
