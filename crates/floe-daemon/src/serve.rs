//! The serve protocol: `nix-store --serve`.

mod connection;
mod queries;

use std::collections::BTreeSet;
use std::os::fd::OwnedFd;

use floe_format::StorePath;
use floe_wire::serve::{Command, ServerSession};

use crate::builds;
use crate::error::HostError;
use crate::hosted_store::HostedStore;
use crate::stream;
use connection::Connection;

/// Serves a store over the serve protocol until the client ends the connection.
///
/// The protocol has no error messages: the caller prints the error, and ends the connection.
///
/// Errors: [`HostError`]. All paths that have arrived whole before it are registered.
pub fn serve(store: &HostedStore, input: OwnedFd, output: OwnedFd) -> Result<(), HostError> {
    let mut connection = Connection::new(store, input, output);
    let served = serve_commands(store, &mut connection);
    // The client gets the replies before the error, too. If it is away, that is the error.
    let flushed = connection.flush();
    served.and(flushed)
}

/// Writes paths to `output`, references first, as `nix-store --export` does.
///
/// Errors: [`HostError::NotValid`], [`HostError::Changed`], and those of the store and of `output`.
pub fn export(
    store: &HostedStore,
    paths: &BTreeSet<StorePath>,
    output: OwnedFd,
) -> Result<(), HostError> {
    let input = output.try_clone().map_err(stream::connection("open"))?;
    let mut connection = Connection::new(store, input, output);
    connection.export(paths)?;
    connection.flush()
}

/// Adds the paths that `nix-store --export` has written, and returns them.
///
/// Errors: [`HostError::Wire`], [`HostError::Ended`], and those of the store and of `input`. Whole
/// paths before the error are added.
pub fn import(store: &HostedStore, input: OwnedFd) -> Result<Vec<StorePath>, HostError> {
    let output = input.try_clone().map_err(stream::connection("open"))?;
    Connection::of_import(store, input, output).import()
}

fn serve_commands(store: &HostedStore, connection: &mut Connection<'_>) -> Result<(), HostError> {
    while let Some(command) = connection.next_command()? {
        if !matches!(command, Command::AddToStoreNar(_)) {
            connection.commit()?;
        }
        execute(store, connection, command)?;
    }
    connection.commit()
}

fn execute(
    store: &HostedStore,
    connection: &mut Connection<'_>,
    command: Command,
) -> Result<(), HostError> {
    match command {
        Command::QueryValidPaths {
            paths,
            substitute,
            lock,
        } => {
            let valid = store.query_valid(paths, (lock, substitute))?;
            connection.reply(|session, output| session.reply_paths(&valid, output))
        }
        Command::QueryPathInfos(paths) => connection.send_infos(&paths),
        Command::DumpStorePath(path) => {
            store.valid_path_info(&path)?;
            connection.send_nar(&path)
        }
        Command::QueryClosure {
            paths,
            include_outputs,
        } => {
            let closure = queries::closure(store, paths, include_outputs)?;
            connection.reply(|session, output| session.reply_paths(&closure, output))
        }
        Command::AddToStoreNar(info) => connection.add(*info),
        Command::ImportPaths => {
            connection.import()?;
            connection.reply(ServerSession::reply_added)
        }
        Command::ExportPaths(paths) => connection.export(&paths),
        Command::BuildPaths(paths) => {
            store.writer("build paths")?;
            let refusal = queries::refusal_to_build(store, &paths)?;
            connection.reply(|session, output| {
                let failure = refusal.as_deref().map(|reason| (BUILD_FAILED, reason));
                session.reply_built(failure, output);
            })
        }
        Command::BuildDerivation { path, outputs } => {
            store.writer("build paths")?;
            let result = builds::result_of_derivation(store, &path, outputs)?;
            connection.reply(|session, output| session.reply_build_result(&result, output))
        }
    }
}

/// The exit status of Nix after a failed build.
const BUILD_FAILED: u64 = 100;
