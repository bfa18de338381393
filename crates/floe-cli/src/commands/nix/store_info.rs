//! `nix store info`: whether a store can be used.

use std::sync::Arc;

use floe_cache::Network;
use floe_config::StoreAccess;
use floe_copy::{SourceOrder, Sources};
use floe_format::HashPart;
use floe_transfer::{Cancel, Error, Events, PathSpec, Session, StoreConfig, StoreServer};
use serde_json::{Map, Value};

use super::args::StoreInfoArgs;
use crate::commands::nix_daemon::VERSION;
use crate::display::eprint_line;
use crate::options::Settings;
use crate::stdout::print;

/// Prints on stderr, as Nix does. The JSON goes to stdout, also if the store cannot be used.
pub(super) fn run(args: &StoreInfoArgs) -> anyhow::Result<()> {
    let settings = Settings::load(&args.options, None)?;
    let choice = args.local.choice();
    // As for Nix, the store is the one that this user can write, if there is one.
    let store = match settings.store(choice, StoreAccess::Write) {
        Err(_) => settings.store(choice, StoreAccess::Read)?,
        store => store?,
    };
    let url = url(args, &*store);
    if !args.json {
        eprint_line(format_args!("Store URL: {url}"));
    }
    let session = Session::new(Cancel::default(), Events::default())
        .with_options::<Network>(settings.network(true));
    let is_local = store.layout().is_some();
    let server = connect(store, is_local, &session);
    let found = server.as_ref().ok();
    let version = found.and_then(|it| it.version.clone());
    let trusted = found.and_then(|it| it.trusts_client);
    if args.json {
        let mut object = Map::from_iter([("url".to_owned(), Value::from(url))]);
        object.extend(version.map(|it| ("version".to_owned(), it.into())));
        object.extend(trusted.map(|it| ("trusted".to_owned(), it.into())));
        print(Value::Object(object))?;
    } else {
        if let Some(version) = version {
            eprint_line(format_args!("Version: {version}"));
        }
        if let Some(trusted) = trusted {
            eprint_line(format_args!("Trusted: {}", u8::from(trusted)));
        }
    }
    server.map(drop)
}

/// Opens a store. floe itself is the server of a local one.
fn connect(
    store: Arc<dyn StoreConfig>,
    is_local: bool,
    session: &Session,
) -> anyhow::Result<StoreServer> {
    let sources = Sources::open(&[store], SourceOrder::AsListed, session)?;
    let Some(source) = sources.list.first() else {
        return Ok(StoreServer::default());
    };
    if is_local {
        return Ok(StoreServer {
            version: Some(VERSION.to_owned()),
            trusts_client: Some(true),
        });
    }
    if let Some(server) = source.query_server()? {
        return Ok(server);
    }
    // A cache is open when it has answered a query. It need not have the path.
    let hash_part = HashPart::parse(UNLIKELY).ok_or(Error::Internal("a hash part is wrong"))?;
    source.query_path_info(&PathSpec::HashPart(hash_part), &session.cancel)?;
    Ok(StoreServer::default())
}

/// Returns the URL in the form of the newest Nix, which names a local store without its directory,
/// unless a parameter has it.
fn url(args: &StoreInfoArgs, store: &dyn StoreConfig) -> String {
    let given = args.local.store.as_deref().unwrap_or_default();
    match given.strip_prefix("local?") {
        Some(parameters) => format!("local://?{parameters}"),
        None if store.layout().is_some() => "local".into(),
        None => store.to_string(),
    }
}

/// A hash part that no path has.
const UNLIKELY: &str = "00000000000000000000000000000000";
