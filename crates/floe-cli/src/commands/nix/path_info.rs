//! `nix path-info`: paths of a store or cache, with sizes and signatures.

use floe_cache::Network;
use floe_config::StoreAccess;
use floe_copy::{SourceOrder, Sources};
use floe_transfer::{Cancel, Events, QueriedClosure, Session};

use super::args::PathInfoArgs;
use crate::options::Settings;
use crate::path_infos::{Queried, print_columns, print_json, without};
use crate::requested_paths::requested;

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
        args.recursive || args.columns.closure_size,
        (settings.closure_limit(), &session.cancel),
    )?;
    let queried = Queried {
        columns: &args.columns,
        recursive: args.recursive,
        source: &**source,
        found,
    };
    let (listed, missing) = queried.listed(&specs);
    let absent = if args.json {
        // A requested path is null then.
        without(absent, &missing)
    } else {
        absent
    };
    // Nix prints nothing unless it knows all other paths.
    if let Some(error) = absent.into_iter().next() {
        return Err(error.into());
    }
    queried.check_closure_sizes()?;
    if args.json {
        let format = args.json_format.unwrap_or_default();
        return print_json(&queried, &listed, &missing, format);
    }
    print_columns(&queried, &listed)
}
