//! Writes requests.

use floe_format::StoreDir;

use super::{COLLECT_NOTHING, ClientOptions, Request};
use crate::output;
use crate::worker::path_info::{write_info, write_paths};

impl Request {
    /// Appends the request.
    ///
    /// Returns `false` for a request that the protocol does not have, and for
    /// [`Request::BuildDerivation`], which floe does not send.
    #[must_use]
    pub fn write(&self, output: &mut Vec<u8>, dir: &StoreDir) -> bool {
        let Some(operation) = self.operation() else {
            return false;
        };
        if let Request::BuildDerivation { .. } = self {
            return false;
        }
        output::number(output, operation);
        match self {
            Request::QueryAllValidPaths
            | Request::QueryClosure(_)
            | Request::BuildDerivation { .. }
            | Request::FindRoots
            | Request::SyncWithGc
            | Request::Compress
            | Request::OptimiseStore => {}
            Request::AddTempRoot(path)
            | Request::QueryPathInfo(path)
            | Request::QueryPath(_, path)
            | Request::EnsurePath(path)
            | Request::NarFromPath(path) => output::text(output, dir.full_path(path)),
            Request::AddIndirectRoot(text)
            | Request::QueryRealisation(text)
            | Request::RegisterDrvOutput(text)
            | Request::AddBuildLog(text) => output::text(output, text),
            Request::AddPermRoot { path, link } => {
                output::text(output, dir.full_path(path));
                output::text(output, link);
            }
            Request::WaitForGc => COLLECT_NOTHING
                .into_iter()
                .for_each(|word| output::number(output, word)),
            Request::CollectGarbage {
                action,
                paths,
                ignore_liveness,
                max_freed,
            } => {
                output::number(output, *action as u64);
                write_paths(output, dir, paths);
                output::boolean(output, *ignore_liveness);
                output::number(output, *max_freed);
                (0..3).for_each(|_| output::number(output, 0));
            }
            Request::QueryPathFromHashPart(part) => output::text(output, part.as_str()),
            Request::VerifyStore {
                check_contents,
                repair,
            } => {
                output::boolean(output, *check_contents);
                output::boolean(output, *repair);
            }
            Request::QuerySubstitutablePaths(paths) | Request::QueryClosureInfos(paths) => {
                write_paths(output, dir, paths);
            }
            Request::QuerySubstitutablePathInfos(paths) => {
                output::number(output, paths.len() as u64);
                for (path, ca) in paths {
                    output::text(output, dir.full_path(path));
                    output::text(output, ca);
                }
            }
            Request::QueryMissing(paths) => output::texts(output, paths.iter()),
            Request::BuildPaths(paths, mode) | Request::BuildPathsWithResults(paths, mode) => {
                output::texts(output, paths.iter());
                output::number(output, *mode as u64);
            }
            Request::QueryValidPaths {
                paths, substitute, ..
            } => {
                write_paths(output, dir, paths);
                output::boolean(output, *substitute);
            }
            Request::AddToStoreNar {
                info,
                repair,
                dont_check_sigs,
            } => {
                output::text(output, dir.full_path(&info.path));
                write_info(output, info, dir);
                output::boolean(output, *repair);
                output::boolean(output, *dont_check_sigs);
            }
            Request::AddMultipleToStore {
                repair,
                dont_check_sigs,
            } => {
                output::boolean(output, *repair);
                output::boolean(output, *dont_check_sigs);
            }
            Request::AddToStore {
                name,
                method,
                references,
                repair,
            } => {
                output::text(output, name);
                output::text(output, method);
                write_paths(output, dir, references);
                output::boolean(output, *repair);
            }
            Request::AddSignatures { path, signatures } => {
                output::text(output, dir.full_path(path));
                output::texts(output, signatures.iter().map(ToString::to_string));
            }
            Request::SetOptions(options) => write_options(output, options),
        }
        true
    }
}

fn write_options(output: &mut Vec<u8>, options: &ClientOptions) {
    // Numbers about builds, and about the log.
    (0..11).for_each(|_| output::number(output, 0));
    output::boolean(output, options.use_substitutes);
    output::number(output, options.overrides.len() as u64);
    for (name, value) in &options.overrides {
        output::text(output, name);
        output::text(output, value);
    }
}
