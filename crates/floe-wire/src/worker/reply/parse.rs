//! Parses replies.

use floe_format::StoreDir;

use super::{BuildResult, MissingPaths, Reply, ReplyKind, SubstitutableInfo};
use crate::error::WireError;
use crate::input::{Input, NUMBER_LEN, TEXT_LEN_MAX};
use crate::version::Version;
use crate::worker::CLOSURE_LEN_MAX;
use crate::worker::path_info::{read_info, read_optional_path, read_path, read_paths};
use crate::worker::realisation::read_outputs;

impl Reply {
    /// Parses the reply of a kind in a version of the protocol, without its NAR.
    pub fn parse(
        input: &mut Input<'_>,
        kind: &ReplyKind,
        (dir, version): (&StoreDir, Version),
    ) -> Result<Reply, WireError> {
        Ok(match kind {
            ReplyKind::Done => {
                input.number()?;
                Reply::Done
            }
            ReplyKind::Added(_) => Reply::Added,
            ReplyKind::Nothing => Reply::Nothing,
            ReplyKind::Boolean => Reply::Boolean(input.boolean()?),
            ReplyKind::Text => Reply::Text(read_text(input)?),
            ReplyKind::Texts => Reply::Texts(input.list(TEXT, NUMBER_LEN, read_text)?),
            ReplyKind::Path => Reply::Path(read_optional_path(input, dir)?),
            ReplyKind::Paths => Reply::Paths(read_paths(input, dir)?),
            ReplyKind::PathInfo(path) => Reply::PathInfo(if input.boolean()? {
                Some(Box::new(read_info(input, path.clone(), dir)?))
            } else {
                None
            }),
            ReplyKind::AddedInfo => {
                let path = read_path(input, dir)?;
                Reply::AddedInfo(Box::new(read_info(input, path, dir)?))
            }
            ReplyKind::OutputMap => {
                let outputs = input.list("the outputs", 2 * NUMBER_LEN, |input| {
                    let name = read_text(input)?;
                    Ok((name, read_optional_path(input, dir)?))
                })?;
                Reply::OutputMap(outputs.into_iter().collect())
            }
            ReplyKind::SubstitutableInfo => Reply::SubstitutableInfo(if input.boolean()? {
                Some(read_substitutable(input, dir)?)
            } else {
                None
            }),
            ReplyKind::SubstitutableInfos => {
                let infos = input.list("the paths", 5 * NUMBER_LEN, |input| {
                    let path = read_path(input, dir)?;
                    Ok((path, read_substitutable(input, dir)?))
                })?;
                Reply::SubstitutableInfos(infos.into_iter().collect())
            }
            ReplyKind::Missing => Reply::Missing(Box::new(MissingPaths {
                will_build: read_paths(input, dir)?,
                will_substitute: read_paths(input, dir)?,
                unknown: read_paths(input, dir)?,
                download_size: input.number()?,
                nar_size: input.number()?,
            })),
            ReplyKind::Roots => Reply::Roots(input.list("the roots", 2 * NUMBER_LEN, |input| {
                let link = read_text(input)?;
                Ok((link, read_path(input, dir)?))
            })?),
            ReplyKind::Verified => Reply::Verified {
                has_problems: input.boolean()?,
            },
            ReplyKind::Collected => {
                read_paths(input, dir)?;
                // The freed bytes, and a number without a meaning.
                input.number()?;
                input.number()?;
                Reply::Collected
            }
            ReplyKind::Garbage => {
                let paths = input.list(TEXT, NUMBER_LEN, read_text)?;
                let bytes = input.number()?;
                input.number()?;
                Reply::Garbage { paths, bytes }
            }
            ReplyKind::BuildResult => Reply::BuildResult(read_result(input, (dir, version))?),
            ReplyKind::BuildResults => {
                Reply::BuildResults(input.list("the results", 2 * NUMBER_LEN, |input| {
                    let requested = read_text(input)?;
                    Ok((requested, read_result(input, (dir, version))?))
                })?)
            }
            ReplyKind::Nar(_) => Reply::Nar,
            ReplyKind::Compressed => Reply::Compressed,
            ReplyKind::PathInfos => {
                let info = |input: &mut Input<'_>| {
                    let path = read_path(input, dir)?;
                    read_info(input, path, dir)
                };
                let what = "the closure";
                Reply::PathInfos(input.list_at_most(CLOSURE_LEN_MAX, what, 5 * NUMBER_LEN, info)?)
            }
        })
    }
}

fn read_text(input: &mut Input<'_>) -> Result<String, WireError> {
    Ok(input.text(TEXT, TEXT_LEN_MAX)?.to_owned())
}

fn read_substitutable(
    input: &mut Input<'_>,
    dir: &StoreDir,
) -> Result<SubstitutableInfo, WireError> {
    Ok(SubstitutableInfo {
        deriver: read_optional_path(input, dir)?,
        references: read_paths(input, dir)?,
        download_size: input.number()?,
        nar_size: input.number()?,
    })
}

/// Reads the result of a build.
fn read_result(
    input: &mut Input<'_>,
    (dir, version): (&StoreDir, Version),
) -> Result<BuildResult, WireError> {
    let (status, message) = (input.number()?, read_text(input)?);
    (0..4).try_for_each(|_| input.number().map(drop))?;
    if version.has_cpu_times() {
        for _ in 0..2 {
            if input.boolean()? {
                input.number()?;
            }
        }
    }
    let outputs = read_outputs(input, dir)?;
    Ok(BuildResult {
        status,
        message,
        outputs,
    })
}

const TEXT: &str = "a text of a reply";
