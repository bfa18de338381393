//! Writes replies.

use std::collections::BTreeSet;

use floe_format::StoreDir;

use super::{BuildResult, MissingPaths, Reply, SubstitutableInfo};
use crate::output;
use crate::version::Version;
use crate::worker::path_info::{write_info, write_optional_path, write_paths};
use crate::worker::realisation::write_outputs;

impl Reply {
    /// Appends the reply in a version of the protocol. A NAR follows apart.
    pub fn write(&self, output: &mut Vec<u8>, dir: &StoreDir, version: Version) {
        match self {
            Reply::Done => output::number(output, 1),
            Reply::Added | Reply::Nothing | Reply::Nar | Reply::Compressed => {}
            Reply::Boolean(value) => output::boolean(output, *value),
            Reply::Text(text) => output::text(output, text),
            Reply::Texts(texts) => output::texts(output, texts.iter()),
            Reply::Collected => {
                write_paths(output, dir, &BTreeSet::new());
                output::number(output, 0);
                output::number(output, 0);
            }
            Reply::Garbage { paths, bytes } => {
                output::texts(output, paths.iter());
                output::number(output, *bytes);
                output::number(output, 0);
            }
            Reply::Verified { has_problems } => output::boolean(output, *has_problems),
            Reply::Path(path) => write_optional_path(output, dir, path.as_ref()),
            Reply::Paths(paths) => write_paths(output, dir, paths),
            Reply::PathInfo(info) => {
                output::boolean(output, info.is_some());
                if let Some(info) = info {
                    write_info(output, info, dir);
                }
            }
            Reply::AddedInfo(info) => {
                write_optional_path(output, dir, Some(&info.path));
                write_info(output, info, dir);
            }
            Reply::OutputMap(outputs) => {
                output::number(output, outputs.len() as u64);
                for (name, path) in outputs {
                    output::text(output, name);
                    write_optional_path(output, dir, path.as_ref());
                }
            }
            Reply::SubstitutableInfo(info) => {
                output::boolean(output, info.is_some());
                if let Some(info) = info {
                    write_substitutable(output, info, dir);
                }
            }
            Reply::SubstitutableInfos(infos) => {
                output::number(output, infos.len() as u64);
                for (path, info) in infos {
                    write_optional_path(output, dir, Some(path));
                    write_substitutable(output, info, dir);
                }
            }
            Reply::PathInfos(infos) => {
                output::number(output, infos.len() as u64);
                for info in infos {
                    write_optional_path(output, dir, Some(&info.path));
                    write_info(output, info, dir);
                }
            }
            Reply::Missing(missing) => write_missing(output, missing, dir),
            Reply::Roots(roots) => {
                output::number(output, roots.len() as u64);
                for (link, path) in roots {
                    output::text(output, link);
                    write_optional_path(output, dir, Some(path));
                }
            }
            Reply::BuildResult(result) => write_result(output, result, version),
            Reply::BuildResults(results) => {
                output::number(output, results.len() as u64);
                for (requested, result) in results {
                    output::text(output, requested);
                    write_result(output, result, version);
                }
            }
        }
    }
}

fn write_substitutable(output: &mut Vec<u8>, info: &SubstitutableInfo, dir: &StoreDir) {
    write_optional_path(output, dir, info.deriver.as_ref());
    write_paths(output, dir, &info.references);
    output::number(output, info.download_size);
    output::number(output, info.nar_size);
}

fn write_missing(output: &mut Vec<u8>, missing: &MissingPaths, dir: &StoreDir) {
    for paths in [
        &missing.will_build,
        &missing.will_substitute,
        &missing.unknown,
    ] {
        write_paths(output, dir, paths);
    }
    output::number(output, missing.download_size);
    output::number(output, missing.nar_size);
}

fn write_result(output: &mut Vec<u8>, result: &BuildResult, version: Version) {
    output::number(output, result.status);
    output::text(output, &result.message);
    // How often it was built, whether it was different each time, and when; since 1.37 how long
    // the CPU was busy, which is not known.
    let numbers = if version.has_cpu_times() { 6 } else { 4 };
    (0..numbers).for_each(|_| output::number(output, 0));
    write_outputs(output, &result.outputs);
}
