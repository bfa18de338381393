//! The worker protocol: the Nix daemon, and `nix-daemon --stdio` for `ssh-ng://`.

mod adding;
mod connection;
mod maintenance;
mod queries;

use std::os::fd::OwnedFd;

use floe_format::StoreDir;
use floe_wire::worker::{
    BuildResult, DaemonError, Reply, Request, ServerEvent, ServerInfo, ServerSession, Version,
};

use crate::error::HostError;
use crate::hosted_store::HostedStore;
use crate::refusals::cannot_build;
use crate::stream::Stream;
use connection::Connection;

/// Serves a store over the worker protocol until the client ends the connection. `version` is the
/// name and version that the client gets.
///
/// Errors: those of the connection. The client gets all others, and all paths that have arrived
/// whole are registered.
pub fn serve_worker(
    store: &HostedStore,
    (input, output): (OwnedFd, OwnedFd),
    version: &str,
) -> Result<(), HostError> {
    let mut connection = Connection::new(store, (input, output), version);
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
        match execute(store, &mut connection, request) {
            Ok(reply) => connection.reply(&reply)?,
            Err(error) if error.ends_connection() => return Err(error),
            Err(error) => connection.fail(&error)?,
        }
    }
    connection.commit()?;
    connection.flush()
}

/// Lets the first request of a client fail, so that the client shows why it is not served.
///
/// Errors: those of the connection.
pub fn refuse_worker(
    dir: &StoreDir,
    (input, output): (OwnedFd, OwnedFd),
    version: &str,
    reason: &str,
) -> Result<(), HostError> {
    let info = ServerInfo {
        nix_version: Some(version.to_owned()),
        trusts_client: Some(false),
    };
    let mut session = ServerSession::new(dir.clone(), info, Version::OFFERED);
    let mut stream = Stream::new(input, output);
    loop {
        while let Some(event) = session.next_event(&mut stream.unsent)? {
            if let ServerEvent::Request(_) = event {
                let error = DaemonError {
                    message: reason.to_owned(),
                    ..DaemonError::default()
                };
                session.fail(error, &mut stream.unsent);
                return stream.flush();
            }
        }
        stream.flush()?;
        let len = stream.read(session.space())?;
        if len == 0 {
            return Ok(());
        }
        session.fill(len);
    }
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
            repair: _,
        } => {
            let info = adding::add_to_store(connection, (&name, &method), references)?;
            Ok(Reply::AddedInfo(Box::new(info)))
        }
        Request::EnsurePath(path) => {
            let text = store.store_dir().full_path(&path);
            queries::build(store, &[text])?;
            Ok(Reply::Done)
        }
        Request::BuildPaths(paths) => {
            queries::build(store, &paths)?;
            Ok(Reply::Done)
        }
        Request::BuildPathsWithResults(paths) => {
            let results = paths.into_iter().map(|path| {
                let built = queries::build(store, std::slice::from_ref(&path));
                Ok((path, build_result(built)?))
            });
            Ok(Reply::BuildResults(
                results.collect::<Result<_, HostError>>()?,
            ))
        }
        Request::BuildDerivation { path, outputs } => {
            let paths = outputs.iter().map(|(_, path)| &**path);
            let is_built = crate::refusals::are_valid(store, paths)?;
            let refused = || HostError::Refused(cannot_build(&store.store_dir().full_path(&path)));
            let built = if is_built { Ok(()) } else { Err(refused()) };
            Ok(Reply::BuildResult(build_result(built)?))
        }
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

/// Makes the result of a build of what floe does instead.
///
/// Errors: those of the connection and of the store.
fn build_result(built: Result<(), HostError>) -> Result<BuildResult, HostError> {
    match built {
        Ok(()) => Ok(BuildResult {
            status: ALREADY_VALID,
            message: String::new(),
        }),
        Err(error @ (HostError::Refused(_) | HostError::Substitute(_))) => Ok(BuildResult {
            status: MISC_FAILURE,
            message: error.to_string(),
        }),
        Err(error) => Err(error),
    }
}

/// `BuildResult::AlreadyValid`
const ALREADY_VALID: u64 = 2;

/// `BuildResult::MiscFailure`
const MISC_FAILURE: u64 = 9;
