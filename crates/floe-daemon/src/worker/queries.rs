//! Queries of a client of the daemon.

use std::collections::{BTreeMap, BTreeSet};

use floe_format::derivation::DERIVATION_LEN_MAX;
use floe_format::{Derivation, NarInfo, StorePath};
use floe_store::read_regular_file_nofollow;
use floe_wire::worker::{MissingPaths, PathQuery, Reply, Request, SubstitutableInfo};

use crate::error::HostError;
use crate::hosted_store::HostedStore;
use crate::refusals::{are_valid, cannot_build, outputs_of};

/// Replies to a query.
///
/// Errors: those of the store; [`HostError::Refused`] for a request that is not a query.
pub(super) fn execute(store: &HostedStore, request: Request) -> Result<Reply, HostError> {
    let reader = store.reader();
    Ok(match request {
        Request::QueryPath(query, path) => query_path(store, query, &path)?,
        Request::QueryPathInfo(path) => Reply::PathInfo(reader.path_info(&path)?.map(Box::new)),
        Request::QueryPathFromHashPart(part) => {
            Reply::Path(reader.query_path_from_hash_part(part)?)
        }
        Request::QueryAllValidPaths => Reply::Paths(reader.valid_paths()?.into_iter().collect()),
        Request::QueryValidPaths {
            paths, substitute, ..
        } => Reply::Paths(store.query_valid(paths, (false, substitute))?),
        Request::QuerySubstitutablePaths(paths) => {
            let paths: Vec<StorePath> = paths.into_iter().collect();
            let found = store.query_substituters(&paths, false)?.into_iter();
            Reply::Paths(found.map(|narinfo| narinfo.info.path).collect())
        }
        Request::QuerySubstitutablePathInfos(paths) => {
            let paths: Vec<StorePath> = paths.into_keys().collect();
            let found = store.query_substituters(&paths, false)?.into_iter();
            let infos = found.map(|narinfo| (narinfo.info.path.clone(), substitutable(narinfo)));
            Reply::SubstitutableInfos(infos.collect())
        }
        Request::QueryMissing(paths) => Reply::Missing(Box::new(query_missing(store, &paths)?)),
        // floe keeps no realisations.
        Request::QueryRealisation(_) => Reply::Texts(Vec::new()),
        // floe decides itself what a client may set: nothing beside its substitution.
        Request::SetOptions(_) => Reply::Nothing,
        other => {
            return Err(HostError::Refused(format!(
                "cannot do {other:?}: floe does not host it"
            )));
        }
    })
}

fn query_path(store: &HostedStore, query: PathQuery, path: &StorePath) -> Result<Reply, HostError> {
    let reader = store.reader();
    Ok(match query {
        PathQuery::IsValid => Reply::Boolean(reader.is_valid(path)?),
        PathQuery::Referrers => Reply::Paths(reader.referrers(path)?.into_iter().collect()),
        PathQuery::Deriver => Reply::Path(store.valid_path_info(path)?.deriver),
        PathQuery::SubstitutableInfo => {
            let found = store.query_substituters(std::slice::from_ref(path), false)?;
            Reply::SubstitutableInfo(found.into_iter().next().map(substitutable))
        }
        PathQuery::DerivationOutputs => {
            let outputs = outputs_by_name(store, path)?.into_values();
            Reply::Paths(outputs.flatten().collect())
        }
        PathQuery::DerivationOutputNames => {
            Reply::Texts(outputs_by_name(store, path)?.into_keys().collect())
        }
        PathQuery::DerivationOutputMap => Reply::OutputMap(outputs_by_name(store, path)?),
        PathQuery::ValidDerivers => {
            Reply::Paths(reader.valid_derivers(path)?.into_iter().collect())
        }
    })
}

/// Returns the paths of the outputs of a valid derivation, as far as they are known.
fn outputs_by_name(
    store: &HostedStore,
    path: &StorePath,
) -> Result<BTreeMap<String, Option<StorePath>>, HostError> {
    store.valid_path_info(path)?;
    let unreadable = |reason: String| HostError::Refused(format!("cannot read {path}: {reason}"));
    // A client can add a link under any other name, and must not choose the file that is opened.
    let name = Derivation::name_from_path(path).map_err(|error| unreadable(error.to_string()))?;
    let file = store.reader().real_path(path);
    let text = read_regular_file_nofollow(&file, DERIVATION_LEN_MAX as u64);
    let text = text.map_err(|error| unreadable(error.to_string()))?;
    let derivation = Derivation::parse(&text, store.store_dir(), name);
    let derivation = derivation.map_err(|error| unreadable(error.to_string()))?;
    Ok(derivation.output_paths(store.store_dir(), name))
}

fn substitutable(narinfo: NarInfo) -> SubstitutableInfo {
    SubstitutableInfo {
        deriver: narinfo.info.deriver,
        references: narinfo.info.references,
        download_size: narinfo.file_size.unwrap_or_default(),
        nar_size: narinfo.info.nar_size,
    }
}

/// Returns what a build would do. A derivation whose outputs substituters have is not built.
fn query_missing(store: &HostedStore, texts: &[String]) -> Result<MissingPaths, HostError> {
    let mut missing = MissingPaths::default();
    let mut wanted: BTreeMap<StorePath, Option<StorePath>> = BTreeMap::new();
    for text in texts {
        let (path, _) = text.split_once('!').unwrap_or((text, ""));
        let Ok(path) = store.store_dir().parse(path) else {
            continue;
        };
        if path.name().ends_with(".drv") && text.contains('!') {
            for output in outputs_of(store, &path)? {
                wanted.insert(output, Some(path.clone()));
            }
        } else {
            wanted.insert(path, None);
        }
    }
    let mut paths = Vec::new();
    for path in wanted.keys() {
        if !store.reader().is_valid(path)? {
            paths.push(path.clone());
        }
    }
    let found = store.query_substituters(&paths, true)?;
    let known: BTreeSet<&StorePath> = found.iter().map(|narinfo| &narinfo.info.path).collect();
    for path in paths.iter().filter(|path| !known.contains(path)) {
        match &wanted[path] {
            Some(derivation) => missing.will_build.insert(derivation.clone()),
            None => missing.unknown.insert(path.clone()),
        };
    }
    for narinfo in &found {
        if !store.reader().is_valid(&narinfo.info.path)? {
            missing.will_substitute.insert(narinfo.info.path.clone());
            missing.download_size += narinfo.file_size.unwrap_or_default();
            missing.nar_size += narinfo.info.nar_size;
        }
    }
    Ok(missing)
}

/// Substitutes paths, and outputs of derivations: `DERIVATION!OUTPUT,…`.
///
/// Errors: [`HostError::Refused`] if something would have to be built; [`HostError::Substitute`].
pub(super) fn build(store: &HostedStore, texts: &[String]) -> Result<(), HostError> {
    for text in texts {
        let (path, _) = text.split_once('!').unwrap_or((text, ""));
        let parsed = store.store_dir().parse(path);
        let parsed =
            parsed.map_err(|error| HostError::Refused(format!("cannot build {text}: {error}")))?;
        let is_derivation = text.contains('!') && parsed.name().ends_with(".drv");
        let wanted: BTreeSet<StorePath> = if is_derivation {
            outputs_of(store, &parsed)?.into_iter().collect()
        } else {
            [parsed].into()
        };
        if let Some(writer) = store
            .writer("build paths")
            .ok()
            .filter(|_| !wanted.is_empty())
        {
            writer.add_temp_roots(wanted.iter())?;
        }
        store.substitute(&wanted)?;
        let wanted: Vec<String> = wanted
            .iter()
            .map(|path| store.store_dir().full_path(path))
            .collect();
        if are_valid(store, wanted.iter().map(String::as_str))? {
            continue;
        }
        return Err(HostError::Refused(if is_derivation {
            cannot_build(path)
        } else {
            format!("cannot fetch {path}: no substituter of this machine has it")
        }));
    }
    Ok(())
}
