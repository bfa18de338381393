//! The systems of the paths of a list: `store-paths.xz` has the paths of all systems.

use floe_format::{NarInfo, StorePath};
use floe_transfer::Error;

use crate::access::Access;
use crate::memory::Systems;
use crate::package::SourceError;

/// Returns the system of the outputs of one derivation, such as `x86_64-linux`: that of a known
/// path that they refer to, of their own programs, or of the programs of a small reference. Returns
/// `None` if none of them has a program.
///
/// Errors: no cache replies.
pub(super) fn system_of(
    outputs: &[&NarInfo],
    (access, systems): (&dyn Access, &mut Systems),
) -> Result<Option<String>, SourceError> {
    let references = references(outputs);
    let own = outputs.iter().map(|narinfo| &narinfo.info.path);
    let known = own
        .chain(&references)
        .find_map(|path| systems.get(&path.to_string())?.clone());
    if known.is_some() {
        return Ok(known);
    }
    let of_outputs = first_system(outputs, access, systems)?;
    if let Some(system) = of_outputs {
        let mut loaders = references.iter().filter(|path| is_loader(path.name()));
        // The next package with this loader needs no request. A package for two systems has two.
        if let (Some(loader), None) = (loaders.next(), loaders.next()) {
            systems.insert(loader.to_string(), Some(system.clone()));
        }
        return Ok(Some(system));
    }
    let narinfos = access.narinfos(&references);
    let narinfos = narinfos.map_err(|error| SourceError::Fetch(error.into()))?;
    let narinfos: Vec<NarInfo> = narinfos.into_iter().flatten().collect();
    first_system(&narinfos.iter().collect::<Vec<_>>(), access, systems)
}

/// Returns the system of the first program in the smallest paths.
fn first_system(
    narinfos: &[&NarInfo],
    access: &dyn Access,
    systems: &mut Systems,
) -> Result<Option<String>, SourceError> {
    let len = |narinfo: &NarInfo| narinfo.file_size.unwrap_or(narinfo.info.nar_size);
    let is_small = |it: &&&NarInfo| len(it) <= LEN_MAX && it.info.nar_size <= NAR_SIZE_MAX;
    let mut small: Vec<&&NarInfo> = narinfos.iter().filter(is_small).collect();
    small.sort_by_key(|narinfo| len(narinfo));
    for narinfo in small.into_iter().take(PATHS_MAX) {
        let path = narinfo.info.path.to_string();
        let system = match systems.get(&path) {
            Some(system) => system.clone(),
            None => match access.system(narinfo) {
                Ok(read) => {
                    systems.insert(path, read.clone());
                    read
                }
                Err(error @ Error::Cancelled) => return Err(SourceError::Fetch(error.into())),
                // Another path may tell the system.
                Err(_) => None,
            },
        };
        if system.is_some() {
            return Ok(system);
        }
    }
    Ok(None)
}

/// Returns the references of paths to others.
fn references(outputs: &[&NarInfo]) -> Vec<StorePath> {
    let all = outputs.iter().flat_map(|narinfo| &narinfo.info.references);
    let is_own = |path: &StorePath| outputs.iter().any(|narinfo| narinfo.info.path == *path);
    let mut others: Vec<StorePath> = all.filter(|path| !is_own(path)).cloned().collect();
    others.sort();
    others.dedup();
    others
}

/// Whether a path has the loader of the programs that refer to it.
fn is_loader(name: &str) -> bool {
    ["glibc-2", "musl-1"]
        .iter()
        .any(|prefix| name.starts_with(prefix))
}

/// The largest NAR file that is fetched to look for a program, in bytes.
const LEN_MAX: u64 = 8 * 1024 * 1024;

/// The largest NAR that is read to look for a program, in bytes.
const NAR_SIZE_MAX: u64 = 64 * 1024 * 1024;

/// How many paths are fetched to look for a program.
const PATHS_MAX: usize = 4;
