//! Parses requests.

use floe_format::{HashPart, StoreDir};

use super::{
    BuildMode, COLLECT_NOTHING, COMPRESS, ClientOptions, GcAction, PathQuery, QUERY_CLOSURE_INFOS,
    Request,
};
use crate::error::WireError;
use crate::input::{Input, NUMBER_LEN, TEXT_LEN_MAX};
use crate::worker::derivation::read_outputs;
use crate::worker::path_info::{read_info, read_path, read_paths, read_signatures};

impl Request {
    /// Parses a request without its frames.
    ///
    /// Errors: [`WireError::Value`] also for an operation that floe does not know.
    pub fn parse(input: &mut Input<'_>, dir: &StoreDir) -> Result<Request, WireError> {
        let operation = input.number()?;
        let mut queries = PathQuery::ALL.iter();
        if let Some((_, query)) = queries.find(|(number, _)| *number == operation) {
            return Ok(Request::QueryPath(*query, read_path(input, dir)?));
        }
        Ok(match operation {
            7 => Request::AddToStore {
                name: read_text(input, "a name")?,
                method: read_text(input, "the kind of a content address")?,
                references: read_paths(input, dir)?,
                repair: input.boolean()?,
            },
            9 => Request::BuildPaths(read_texts(input)?, read_mode(input)?),
            10 => Request::EnsurePath(read_path(input, dir)?),
            11 => Request::AddTempRoot(read_path(input, dir)?),
            12 => Request::AddIndirectRoot(read_text(input, "a root")?),
            13 => Request::SyncWithGc,
            14 => Request::FindRoots,
            19 => Request::SetOptions(Box::new(read_options(input)?)),
            20 => read_collection(input, dir)?,
            23 => Request::QueryAllValidPaths,
            26 => Request::QueryPathInfo(read_path(input, dir)?),
            29 => {
                let text = input.text(HASH_PART, TEXT_LEN_MAX)?;
                let part = HashPart::parse(text);
                let invalid = || WireError::value(HASH_PART, text, "it is invalid");
                Request::QueryPathFromHashPart(part.ok_or_else(invalid)?)
            }
            30 => {
                let entry = |input: &mut Input<'_>| {
                    let path = read_path(input, dir)?;
                    Ok((path, read_text(input, "a content address")?))
                };
                let paths = input.list("the paths", 2 * NUMBER_LEN, entry)?;
                Request::QuerySubstitutablePathInfos(paths.into_iter().collect())
            }
            31 => Request::QueryValidPaths {
                paths: read_paths(input, dir)?,
                substitute: input.boolean()?,
                lock: false,
            },
            32 => Request::QuerySubstitutablePaths(read_paths(input, dir)?),
            34 => Request::OptimiseStore,
            35 => Request::VerifyStore {
                check_contents: input.boolean()?,
                repair: input.boolean()?,
            },
            36 => {
                let path = read_path(input, dir)?;
                let outputs = read_outputs(input)?;
                // floe builds in no mode.
                read_mode(input)?;
                Request::BuildDerivation { path, outputs }
            }
            37 => Request::AddSignatures {
                path: read_path(input, dir)?,
                signatures: read_signatures(input)?,
            },
            38 => Request::NarFromPath(read_path(input, dir)?),
            39 => {
                let path = read_path(input, dir)?;
                Request::AddToStoreNar {
                    info: Box::new(read_info(input, path, dir)?),
                    repair: input.boolean()?,
                    dont_check_sigs: input.boolean()?,
                }
            }
            40 => Request::QueryMissing(read_texts(input)?),
            42 => Request::RegisterDrvOutput(read_text(input, "a realisation")?),
            43 => Request::QueryRealisation(read_text(input, "an output")?),
            44 => Request::AddMultipleToStore {
                repair: input.boolean()?,
                dont_check_sigs: input.boolean()?,
            },
            45 => Request::AddBuildLog(read_text(input, "a derivation")?),
            46 => Request::BuildPathsWithResults(read_texts(input)?, read_mode(input)?),
            47 => Request::AddPermRoot {
                path: read_path(input, dir)?,
                link: read_text(input, "a root")?,
            },
            COMPRESS => Request::Compress,
            QUERY_CLOSURE_INFOS => Request::QueryClosureInfos(read_paths(input, dir)?),
            other => {
                return Err(WireError::value(
                    "the operation",
                    other.to_string(),
                    "floe does not know it",
                ));
            }
        })
    }
}

fn read_text(input: &mut Input<'_>, what: &'static str) -> Result<String, WireError> {
    Ok(input.text(what, TEXT_LEN_MAX)?.to_owned())
}

fn read_texts(input: &mut Input<'_>) -> Result<Vec<String>, WireError> {
    input.list("the paths to build", NUMBER_LEN, |input| {
        read_text(input, "a path to build")
    })
}

fn read_mode(input: &mut Input<'_>) -> Result<BuildMode, WireError> {
    match input.number()? {
        0 => Ok(BuildMode::Normal),
        1 => Ok(BuildMode::Repair),
        2 => Ok(BuildMode::Check),
        other => {
            let reason = "it is 0 to 2";
            Err(WireError::value("a build", other.to_string(), reason))
        }
    }
}

fn read_collection(input: &mut Input<'_>, dir: &StoreDir) -> Result<Request, WireError> {
    let action = match input.number()? {
        0 => GcAction::ReturnLive,
        1 => GcAction::ReturnDead,
        2 => GcAction::DeleteDead,
        3 => GcAction::DeleteSpecific,
        other => {
            let reason = "it is 0 to 3";
            return Err(WireError::value("a collection", other.to_string(), reason));
        }
    };
    let paths = read_paths(input, dir)?;
    let (ignore_liveness, max_freed) = (input.boolean()?, input.number()?);
    (0..3).try_for_each(|_| input.number().map(drop))?;
    let words = [
        action as u64,
        paths.len() as u64,
        u64::from(ignore_liveness),
        max_freed,
    ];
    if words == COLLECT_NOTHING[..4] {
        return Ok(Request::WaitForGc);
    }
    Ok(Request::CollectGarbage {
        action,
        paths,
        ignore_liveness,
        max_freed,
    })
}

/// Reads the options of a client. The first eleven numbers are about builds and the log.
fn read_options(input: &mut Input<'_>) -> Result<ClientOptions, WireError> {
    (0..11).try_for_each(|_| input.number().map(drop))?;
    let use_substitutes = input.boolean()?;
    let entry = |input: &mut Input<'_>| {
        let name = read_text(input, "a setting")?;
        Ok((name, read_text(input, "a setting")?))
    };
    let overrides = input.list("the settings", 2 * NUMBER_LEN, entry)?;
    Ok(ClientOptions {
        use_substitutes,
        overrides: overrides.into_iter().collect(),
    })
}

const HASH_PART: &str = "a hash part";
