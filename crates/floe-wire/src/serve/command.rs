//! The commands of a client of `nix-store --serve`.

use std::collections::BTreeSet;

use floe_format::{PathInfo, StoreDir, StorePath};

use super::read_added_info;
use crate::error::WireError;
use crate::input::{Input, NUMBER_LEN, TEXT_LEN_MAX};
use crate::version::Version;
use crate::worker::derivation::read_outputs;
use crate::worker::path_info::{read_path, read_paths};

/// A command with its arguments (`ServeProto::Command`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Queries which of some paths are valid (`QueryValidPaths`).
    QueryValidPaths {
        /// The paths.
        paths: BTreeSet<StorePath>,
        /// Whether missing paths are first fetched from substituters.
        substitute: bool,
        /// Whether the paths become temporary roots.
        lock: bool,
    },
    /// Queries the metadata of paths (`QueryPathInfos`).
    QueryPathInfos(BTreeSet<StorePath>),
    /// Reads the NAR of a path (`DumpStorePath`).
    DumpStorePath(StorePath),
    /// Adds paths in the format of `nix-store --export`, which follow (`ImportPaths`).
    ImportPaths,
    /// Reads paths in the format of `nix-store --export` (`ExportPaths`).
    ExportPaths(BTreeSet<StorePath>),
    /// Builds derivations, or fetches paths (`BuildPaths`).
    BuildPaths(Vec<String>),
    /// Queries the closure of paths (`QueryClosure`).
    QueryClosure {
        /// The paths.
        paths: BTreeSet<StorePath>,
        /// Whether the closure has the outputs of its derivations, too.
        include_outputs: bool,
    },
    /// Builds a derivation that the store need not have (`BuildDerivation`).
    BuildDerivation {
        /// The derivation.
        path: StorePath,
        /// The names and the paths of its outputs, as far as they are known.
        outputs: Vec<(String, String)>,
    },
    /// Adds a path, whose NAR follows (`AddToStoreNar`).
    AddToStoreNar(Box<PathInfo>),
}

impl Command {
    /// Parses a command without the NAR after it.
    ///
    /// Errors: [`WireError::Value`] also for a number that is not a command.
    pub(super) fn parse(
        input: &mut Input<'_>,
        dir: &StoreDir,
        version: Version,
    ) -> Result<Command, WireError> {
        Ok(match input.number()? {
            1 => {
                let (lock, substitute) = (input.boolean()?, input.boolean()?);
                Command::QueryValidPaths {
                    paths: read_paths(input, dir)?,
                    substitute,
                    lock,
                }
            }
            2 => Command::QueryPathInfos(read_paths(input, dir)?),
            3 => Command::DumpStorePath(read_path(input, dir)?),
            4 => Command::ImportPaths,
            5 => {
                // Once, whether the paths are signed.
                input.number()?;
                Command::ExportPaths(read_paths(input, dir)?)
            }
            6 => {
                let text = |input: &mut Input<'_>| {
                    Ok(input.text("a path to build", TEXT_LEN_MAX)?.to_owned())
                };
                let paths = input.list("the paths to build", NUMBER_LEN, text)?;
                skip_build_options(input, version)?;
                Command::BuildPaths(paths)
            }
            7 => {
                let include_outputs = input.boolean()?;
                Command::QueryClosure {
                    paths: read_paths(input, dir)?,
                    include_outputs,
                }
            }
            8 => {
                let path = read_path(input, dir)?;
                let outputs = read_outputs(input)?;
                skip_build_options(input, version)?;
                Command::BuildDerivation { path, outputs }
            }
            9 => {
                let path = read_path(input, dir)?;
                Command::AddToStoreNar(Box::new(read_added_info(input, path, dir)?))
            }
            other => {
                return Err(WireError::value(
                    "the command",
                    other.to_string(),
                    "floe does not know it",
                ));
            }
        })
    }

    /// Returns the name of the command in Nix's sources.
    pub fn name(&self) -> &'static str {
        match self {
            Command::QueryValidPaths { .. } => "QueryValidPaths",
            Command::QueryPathInfos(_) => "QueryPathInfos",
            Command::DumpStorePath(_) => "DumpStorePath",
            Command::ImportPaths => "ImportPaths",
            Command::ExportPaths(_) => "ExportPaths",
            Command::BuildPaths(_) => "BuildPaths",
            Command::QueryClosure { .. } => "QueryClosure",
            Command::BuildDerivation { .. } => "BuildDerivation",
            Command::AddToStoreNar(_) => "AddToStoreNar",
        }
    }
}

/// Skips the settings of a build (`ServeProto::BuildOptions`): the limits of silence, of time and,
/// since version 2.2, of the log; since 2.3 two numbers without a meaning; since 2.7 whether the
/// directory of a failed build stays.
fn skip_build_options(input: &mut Input<'_>, version: Version) -> Result<(), WireError> {
    let count = match version.minor {
        ..2 => 2,
        2 => 3,
        3..7 => 5,
        7.. => 6,
    };
    (0..count).try_for_each(|_| input.number().map(drop))
}
