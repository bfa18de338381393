//! The worker protocol: the Nix daemon, and `nix-daemon --stdio` for `ssh-ng://`.

mod adding;
mod connection;
mod greeting;
mod maintenance;
mod queries;

use floe_wire::worker::{BuildMode, Reply, Request};

use crate::builds;
use crate::error::HostError;
use crate::hosted_store::HostedStore;
use connection::Connection;
pub use greeting::WorkerClient;

/// Serves a store until the client ends the connection.
///
/// Errors: those of the connection. The client gets all others, and all paths that have arrived
/// whole are registered.
fn serve(store: &HostedStore, connection: &mut Connection<'_>) -> Result<(), HostError> {
    let served = serve_requests(store, connection);
    if let Err(error @ HostError::Wire(_)) = &served {
        // The client shows why, and gets the replies that it waits for.
        connection.commit()?;
        connection.fail_last(error)?;
    }
    served
}

fn serve_requests(store: &HostedStore, connection: &mut Connection<'_>) -> Result<(), HostError> {
    while let Some(request) = connection.next_request()? {
        if let Request::AddToStoreNar {
            info,
            repair,
            dont_check_sigs,
        } = request
        {
            // Its reply waits for the registration of several paths.
            connection.add(*info, (repair, dont_check_sigs))?;
            continue;
        }
        connection.commit()?;
        if request == Request::Compress {
            connection.compress()?;
            continue;
        }
        match execute(store, connection, request) {
            Ok(reply) => connection.reply(&reply)?,
            Err(error) if error.ends_connection() => return Err(error),
            Err(error) => {
                // A client may kill its host as soon as it has the message.
                connection.commit()?;
                connection.fail(&error)?;
            }
        }
    }
    connection.commit()?;
    connection.flush()
}

fn execute(
    store: &HostedStore,
    connection: &mut Connection<'_>,
    request: Request,
) -> Result<Reply, HostError> {
    match request {
        Request::NarFromPath(path) => {
            store.valid_path_info(&path)?;
            connection.send_nar(&path)
        }
        Request::AddMultipleToStore {
            repair,
            dont_check_sigs,
        } => {
            connection.add_multiple(repair, dont_check_sigs)?;
            Ok(Reply::Nothing)
        }
        Request::AddToStore {
            name,
            method,
            references,
            repair,
        } => {
            connection::refuse_repair(repair)?;
            let info = adding::add_to_store(connection, (&name, &method), references)?;
            Ok(Reply::AddedInfo(Box::new(info)))
        }
        Request::EnsurePath(path) => {
            let text = store.store_dir().full_path(&path);
            builds::realise_all(store, &[text])?;
            Ok(Reply::Done)
        }
        Request::BuildPaths(paths, mode) => {
            refuse_mode(mode)?;
            builds::realise_all(store, &paths)?;
            Ok(Reply::Done)
        }
        Request::BuildPathsWithResults(paths, mode) => {
            refuse_mode(mode)?;
            let results = builds::realise_with_results(store, paths)?;
            Ok(Reply::BuildResults(results))
        }
        Request::BuildDerivation { path, outputs } => Ok(Reply::BuildResult(
            builds::result_of_derivation(store, &path, outputs)?,
        )),
        Request::RegisterDrvOutput(_) => Err(HostError::Refused(
            "cannot register a realisation: floe hosts no content-addressed derivations".into(),
        )),
        Request::AddBuildLog(_) => Err(HostError::Refused(
            "cannot add a build log: floe keeps the logs of Nix alone".into(),
        )),
        other => match maintenance::execute(store, &other)? {
            Some(reply) => Ok(reply),
            None => queries::execute(store, other),
        },
    }
}

/// Refuses to build again what is there.
///
/// Errors: [`HostError::Refused`].
fn refuse_mode(mode: BuildMode) -> Result<(), HostError> {
    match mode {
        BuildMode::Normal => Ok(()),
        BuildMode::Repair => connection::refuse_repair(true),
        BuildMode::Check => Err(HostError::Refused(
            "cannot check a build: this machine has floe, which builds nothing".into(),
        )),
    }
}
