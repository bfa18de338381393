//! Queries of a client of the daemon.

use floe_format::{NarInfo, StorePath};
use floe_wire::worker::{PathQuery, Reply, Request, SubstitutableInfo};

use crate::derivations::{Wanted, output_paths};
use crate::error::HostError;
use crate::hosted_store::HostedStore;
use crate::missing::query_missing;

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
        Request::QueryClosureInfos(paths) => {
            let paths: Vec<StorePath> = paths.into_iter().collect();
            Reply::PathInfos(store.rooted_closure(&paths)?)
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
        Request::QueryMissing(texts) => {
            let parsed = texts
                .iter()
                .map(|text| Wanted::parse(text, store.store_dir()));
            let wanted: Vec<Wanted> = parsed.flatten().collect();
            Reply::Missing(Box::new(query_missing(store, wanted)?))
        }
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
            let outputs = output_paths(store, path)?.into_values();
            Reply::Paths(outputs.flatten().collect())
        }
        PathQuery::DerivationOutputNames => {
            Reply::Texts(output_paths(store, path)?.into_keys().collect())
        }
        PathQuery::DerivationOutputMap => Reply::OutputMap(output_paths(store, path)?),
        PathQuery::ValidDerivers => {
            Reply::Paths(reader.valid_derivers(path)?.into_iter().collect())
        }
    })
}

fn substitutable(narinfo: NarInfo) -> SubstitutableInfo {
    SubstitutableInfo {
        deriver: narinfo.info.deriver,
        references: narinfo.info.references,
        download_size: narinfo.file_size.unwrap_or_default(),
        nar_size: narinfo.info.nar_size,
    }
}
