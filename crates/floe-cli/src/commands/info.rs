//! `floe info`: shows the metadata of paths in a store or cache.

pub(crate) mod args;
pub(crate) mod page;

use std::collections::{BTreeMap, HashMap};
use std::ops::ControlFlow;

use floe_format::{Compression, HashPart, JsonFormat, NarInfo, StorePath};
use floe_transfer::{Error, PathSpec, QueriedClosure, Registry, Source};
use serde_json::Value;

use crate::display::eprint_error;
use crate::path_infos::{Queried, print_columns, print_json, without};
use crate::requested_paths::OpenSource;
use crate::stdout::{LongOutput, print};
use args::InfoArgs;

pub(crate) fn run(args: InfoArgs) -> anyhow::Result<()> {
    let open = OpenSource::open(&args.source, &args.local, &args.options)?;
    let source = open.source();
    let is_plain = args.columns.is_empty() && args.json_format.is_none();
    if let (true, Some(registry)) = (args.paths.all && is_plain, source.as_registry()) {
        return print_registry(&args, source, registry);
    }
    let roots = open.requested(&args.paths, &args.names)?;
    let queried = open.query(&roots, args.recursive || args.columns.closure_size)?;
    let absent = if args.json || !args.columns.is_empty() {
        print_as_nix(&args, source, &roots, queried)?
    } else {
        print_texts(source, &roots, queried.found)?;
        queried.absent
    };
    // The others were printed.
    let mut absent = absent.into_iter();
    let first = absent.next();
    absent.for_each(eprint_error);
    first.map_or(Ok(()), |error| Err(error.into()))
}

/// Prints all paths of a store, one after the other: there may be millions.
fn print_registry(
    args: &InfoArgs,
    source: &dyn Source,
    registry: &dyn Registry,
) -> anyhow::Result<()> {
    let dir = source.store_dir();
    let mut output = LongOutput::new();
    let mut is_first = true;
    registry.for_each_registration(&mut |info| {
        let is_first = std::mem::take(&mut is_first);
        if args.json {
            let (start, path) = (if is_first { '{' } else { ',' }, dir.full_path(&info.path));
            let (path, info) = (Value::from(path), info.to_json(dir));
            return output.write(format_args!("{start}{path}:{info}"));
        }
        let separator = if is_first { "" } else { "\n" };
        let narinfo = NarInfo {
            info,
            url: String::new(),
            compression: Compression::None,
            file_hash: None,
            file_size: None,
        };
        output.write(format_args!("{separator}{}\n", to_text(source, &narinfo)))
    })?;
    // A break shows in the result of `finish`.
    _ = match (args.json, is_first) {
        (true, true) => output.write("{}\n"),
        (true, false) => output.write("}\n"),
        (false, _) => ControlFlow::Continue(()),
    };
    output.finish()
}

/// Prints the lines or the JSON of `nix path-info`. Returns errors about the paths that are left
/// out.
fn print_as_nix(
    args: &InfoArgs,
    source: &dyn Source,
    roots: &[PathSpec],
    QueriedClosure { found, absent }: QueriedClosure,
) -> anyhow::Result<Vec<Error>> {
    let queried = Queried {
        columns: &args.columns,
        recursive: args.recursive,
        source,
        found,
    };
    queried.check_closure_sizes()?;
    let (listed, missing) = queried.listed(roots);
    match (args.json, args.json_format) {
        (false, _) => print_columns(&queried, &listed)?,
        (true, None) => print_json(&queried, &listed, &[], JsonFormat::default())?,
        (true, Some(format)) => {
            print_json(&queried, &listed, &missing, format)?;
            return Ok(without(absent, &missing));
        }
    }
    Ok(absent)
}

fn print_texts(
    source: &dyn Source,
    roots: &[PathSpec],
    found: BTreeMap<StorePath, NarInfo>,
) -> anyhow::Result<()> {
    let ordered = requested_first(roots, found);
    let texts = ordered.iter().map(|narinfo| to_text(source, narinfo));
    match texts.collect::<Vec<_>>() {
        none if none.is_empty() => Ok(()),
        texts => print(texts.join("\n\n")),
    }
}

/// Returns the requested paths in the order of the command line, then the rest of their closures.
fn requested_first(roots: &[PathSpec], mut found: BTreeMap<StorePath, NarInfo>) -> Vec<NarInfo> {
    let by_hash_part: HashMap<HashPart, StorePath> = found
        .keys()
        .map(|path| (path.hash_part(), path.clone()))
        .collect();
    let mut ordered = Vec::new();
    for root in roots {
        let path = by_hash_part.get(&root.hash_part());
        ordered.extend(path.and_then(|path| found.remove(path)));
    }
    ordered.extend(found.into_values());
    ordered
}

/// Returns the lines of the narinfo, for a store without the fields about a file to fetch.
fn to_text(source: &dyn Source, narinfo: &NarInfo) -> String {
    let text = narinfo.to_text(source.store_dir());
    let is_about_file = |line: &&str| {
        let fields = ["URL:", "Compression:", "FileHash:", "FileSize:"];
        fields.iter().any(|field| line.starts_with(field))
    };
    let has_files = source.facts().has_nar_files;
    let lines = text
        .lines()
        .filter(|line| has_files || !is_about_file(line));
    lines.collect::<Vec<_>>().join("\n")
}
